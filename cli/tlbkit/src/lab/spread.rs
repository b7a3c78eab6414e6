//! How far results lie apart: their median, and the range of the middle nine tenths, or of all where they are few.

use serde::Serialize;

use super::compare::Unit;

/// Parts of the results that lie below the range, and below its end.
const ENDS: [f64; 2] = [0.05, 0.95];

/// The fewest results of which a twentieth is one. The range of fewer is that of all: none can be left out at its ends.
pub(crate) const FEWEST: usize = 20;

/// What the range of `results` results is, in words.
pub(crate) const fn range_words(results: usize) -> &'static str {
    if results < FEWEST { "the range of all draws" } else { "the middle 90 %" }
}

/// The middle of several results, in their unit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// A twentieth lies below it; of fewer results than [`FEWEST`] none does.
    pub(crate) low: f64,
    /// A twentieth lies above it; of fewer results than [`FEWEST`] none does.
    pub(crate) high: f64,
}

impl Spread {
    /// The spread of `samples`, if there are any.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let ends = if samples.len() < FEWEST { [0.0, 1.0] } else { ENDS };
        let [low, high] = ends.map(|part| below(&sorted, part));
        Some(Self { median: below(&sorted, 0.5)?, low: low?, high: high? })
    }

    /// In the unit's digits, the range in parentheses where it is more than one number.
    pub(crate) fn text(self, unit: Unit) -> String {
        match unit {
            Unit::Count => self.digits(0),
            Unit::Percent => self.digits(1) + " %",
        }
    }

    /// With `digits` digits after the point.
    pub(crate) fn digits(self, digits: usize) -> String {
        let [median, low, high] = [self.median, self.low, self.high].map(|value| format!("{value:.digits$}"));
        if low == high { median } else { format!("{median} ({low} .. {high})") }
    }
}

/// The value below which `part` of the `sorted` ones lie; between two of them on a straight line.
fn below(sorted: &[f64], part: f64) -> Option<f64> {
    let place = part * sorted.len().checked_sub(1)? as f64;
    let (before, after) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(before + place.fract() * (after - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_tenths_lie_inside() {
        let samples: Vec<_> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(Spread::of(&samples), Some(Spread { median: 50.0, low: 5.0, high: 95.0 }));
        let twenty = Spread::of(&samples[..20]).unwrap();
        assert!((twenty.low - 81.95).abs() < 1e-9 && (twenty.high - 99.05).abs() < 1e-9, "{twenty:?}");
        let few = Spread::of(&[30.0, 10.0, 20.0, 40.0]);
        assert_eq!(few, Some(Spread { median: 25.0, low: 10.0, high: 40.0 }), "all of them");
        assert_eq!([19, 20].map(range_words), ["the range of all draws", "the middle 90 %"]);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_range_of_one_number_is_not_shown() {
        let of = |samples: &[f64]| Spread::of(samples).unwrap();
        assert_eq!(of(&[1.0, 2.0, 3.0]).text(Unit::Count), "2 (1 .. 3)");
        assert_eq!(of(&[7.0]).text(Unit::Count), "7");
        assert_eq!(of(&[0.5, 1.5]).text(Unit::Percent), "1.0 (0.5 .. 1.5) %");
    }
}

//! A mean with its interval, and how far one policy is from another in one quantity.
//!
//! Policies are compared seed by seed, and each pair of runs is one sample: what a seed does to both policies is no
//! difference between them. If the interval of the difference contains zero, no difference was found, and the policies
//! are not ranked. If the first policy has only a few events, no percents of them are given. A count of ten events that
//! come by chance varies by a third from run to run, and a count that happens to be equal with all seeds would have an
//! interval of no width.

use serde_json::{Value, json};
use tlbkit_sim::statistics::{half_width_95, mean};

use super::quantity::{FEWEST_EVENTS, LEAST_CYCLES, Unit};

/// A mean, and half of the interval in which it lies with a confidence of 95 %. One sample has no interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Mean {
    pub(crate) mean: f64,
    pub(crate) half_width: Option<f64>,
}

impl Mean {
    /// The mean of `samples`, if there are any.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        (!samples.is_empty()).then(|| Self { mean: mean(samples), half_width: half_width_95(samples) })
    }

    /// In the unit's digits, `+-` before half of the interval.
    pub(crate) fn text(self, unit: Unit) -> String {
        let (digits, sign) = match unit {
            Unit::Count => (0, ""),
            Unit::Percent => (1, " %"),
        };
        let half = match self.half_width {
            // A part can be nothing outside of 0 to 100 %.
            Some(half) if unit == Unit::Percent && half >= 100.0 => " +-100".to_owned(),
            half => half.map_or_else(String::new, |half| format!(" +-{half:.digits$}")),
        };
        format!("{:.digits$}{half}{sign}", self.mean)
    }
}

/// What the tables say of differences.
pub(crate) const RELATIVE: &str = "differences are relative, of parts too: in percent of the first policy's value";

/// What is said in place of percents of a few events.
pub(crate) const TOO_FEW: &str = "too few";

/// What [`TOO_FEW`] means, in a line.
pub(crate) fn too_few_means() -> String {
    format!(
        "{TOO_FEW}: no percents are given of fewer than {FEWEST_EVENTS} events a run, or of less than {LEAST_CYCLES} % \
         of the cycles\n"
    )
}

/// By how many percent of `from` the value `to` is above it; negative if it is below.
pub(crate) fn change_pct(from: f64, to: f64) -> f64 {
    100.0 * (to / from - 1.0)
}

/// The [change](change_pct) of each pair: the values of `from` and `to` at the same place, which have the same seed.
pub(crate) fn changes_pct(from: &[f64], to: &[f64]) -> Vec<f64> {
    from.iter().zip(to).map(|(&from, &to)| change_pct(from, to)).collect()
}

/// How far a policy is from the first one in one quantity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Difference {
    /// In percent of the first's; zero lies outside of the interval.
    Found(Mean),
    /// Zero lies in the interval, or there is one sample.
    NotFound,
    /// The first has so little of it that its percents say nothing.
    TooFew,
    /// They are equal, seed by seed.
    Equal,
    /// The first has nothing of which there could be percents.
    NoBase,
}

impl Difference {
    /// The difference of `ours` from `theirs`, pair by pair.
    pub(crate) fn of(ours: &[f64], theirs: &[f64]) -> Self {
        if ours == theirs {
            return Self::Equal;
        }
        if ours.len() != theirs.len() || theirs.contains(&0.0) {
            return Self::NoBase;
        }
        match Mean::of(&changes_pct(theirs, ours)) {
            Some(mean) if mean.half_width.is_some_and(|half| mean.mean.abs() > half) => Self::Found(mean),
            _ => Self::NotFound,
        }
    }

    /// For a cell.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Found(Mean { mean, half_width }) => {
                format!("{mean:+.1} +-{:.1} %", half_width.unwrap_or_default())
            }
            Self::NotFound => "no difference found".to_owned(),
            Self::TooFew => TOO_FEW.to_owned(),
            Self::Equal => "equal".to_owned(),
            Self::NoBase => "-".to_owned(),
        }
    }

    /// For a machine: `null` where nothing was found.
    pub(crate) fn json(self) -> Value {
        match self {
            Self::Found(mean) => json!({ "percent": mean.mean, "half_width": mean.half_width }),
            Self::Equal => json!({ "percent": 0.0, "half_width": 0.0 }),
            Self::NotFound | Self::TooFew | Self::NoBase => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_inside_the_interval_is_no_difference() {
        let base = [100.0, 110.0, 90.0];
        assert_eq!(Difference::of(&base, &base), Difference::Equal);
        assert_eq!(Difference::of(&[101.0, 108.0, 90.0], &base), Difference::NotFound);
        assert_eq!(Difference::of(&[200.0], &[100.0]), Difference::NotFound, "one sample says nothing");
        assert_eq!(Difference::of(&[1.0, 2.0], &[0.0, 1.0]), Difference::NoBase);
    }

    /// The spread between seeds is far larger than the difference, which all of them show.
    #[test]
    fn policies_are_compared_seed_by_seed() {
        let (base, faster) = ([100.0, 200.0, 400.0], [102.0, 204.2, 407.6]);
        let Difference::Found(Mean { mean, half_width: Some(half) }) = Difference::of(&faster, &base) else {
            panic!("not found")
        };
        assert!((mean - 2.0).abs() < 0.01 && half < 0.3, "{mean} {half}");
    }

    #[test]
    fn a_mean_stands_beside_half_of_its_interval() {
        assert_eq!(Mean::of(&[9.0, 10.0, 11.0]).unwrap().text(Unit::Count), "10 +-2");
        assert_eq!(Mean::of(&[10.0]).unwrap().text(Unit::Percent), "10.0 %");
        assert_eq!(Mean::of(&[0.0, 100.0]).unwrap().text(Unit::Percent), "50.0 +-100 %");
        assert_eq!(Mean::of(&[]), None);
    }
}

//! What several boots say together: the median and the range of a figure, and whether ours lies above stock's.

use serde_json::{Value, json};
use std::fmt;

/// The rule by which a row is marked.
pub(super) const RULE: &str = "A row is above if tlbkit's median exceeds each boot of stock.";

/// The median of some figures and the range in which they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spread {
    pub(super) median: u64,
    min: u64,
    max: u64,
}

impl Spread {
    /// Nothing, if there are no figures. Of an even number of them the median is the upper of the two in the middle.
    pub(super) fn of(figures: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut sorted: Vec<u64> = figures.into_iter().collect();
        sorted.sort_unstable();
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Self { median: sorted[sorted.len() / 2], min, max })
    }

    pub(super) fn json(self) -> Value {
        json!({"median": self.median, "min": self.min, "max": self.max})
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.median)?;
        if self.min == self.max { Ok(()) } else { write!(f, " ({}..{})", self.min, self.max) }
    }
}

/// Where our median lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    AtOrBelow,
    /// Above stock's median, but not above each of its boots.
    WithinRange,
    Above,
}

impl Standing {
    pub(super) fn of(stock: Spread, ours: Spread) -> Self {
        match ours.median {
            median if median <= stock.median => Self::AtOrBelow,
            median if median <= stock.max => Self::WithinRange,
            _ => Self::Above,
        }
    }

    /// What a table says of the row.
    pub(super) const fn mark(self) -> &'static str {
        if matches!(self, Self::Above) { "above" } else { "" }
    }
}

/// All rows in one sentence.
pub(super) fn verdict(rows: impl Iterator<Item = Standing>) -> String {
    let rows: Vec<Standing> = rows.collect();
    let count = |wanted| rows.iter().filter(|&&row| row == wanted).count();
    let above = match count(Standing::Above) {
        0 => "none".to_owned(),
        above => above.to_string(),
    };
    let at_or_below = count(Standing::AtOrBelow);
    format!("{at_or_below} of {} rows at or below stock, {above} above its range", rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread<const N: usize>(figures: [u64; N]) -> Spread {
        Spread::of(figures).expect("there are some")
    }

    #[test]
    fn the_median_is_in_the_middle_and_the_range_holds_all() {
        assert_eq!(spread([9, 1, 5]), Spread { median: 5, min: 1, max: 9 });
        assert_eq!(spread([7, 3, 5, 1]).to_string(), "5 (1..7)");
        assert_eq!(spread([4, 4]).to_string(), "4", "a range of nothing is not printed");
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_row_is_above_only_beyond_the_range_of_stock() {
        let stock = spread([100, 103, 110]);
        let standing = |median| Standing::of(stock, spread([median - 50, median, median + 50]));
        assert_eq!([103, 60].map(standing), [Standing::AtOrBelow; 2]);
        assert_eq!([104, 110].map(standing), [Standing::WithinRange; 2]);
        assert_eq!((standing(111), standing(111).mark()), (Standing::Above, "above"));
        assert_eq!(standing(110).mark(), "");
    }

    #[test]
    fn the_verdict_counts_rows() {
        use Standing::{Above, AtOrBelow, WithinRange};
        let none = verdict([AtOrBelow, WithinRange, AtOrBelow].into_iter());
        assert_eq!(none, "2 of 3 rows at or below stock, none above its range");
        let one = verdict([AtOrBelow, Above].into_iter());
        assert_eq!(one, "1 of 2 rows at or below stock, 1 above its range");
    }
}

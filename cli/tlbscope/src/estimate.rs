//! How an estimate is shown: its lowest and its highest value, or one number where the two are the same.

use tlbkit_output::number::{amount, fixed};
use tlbkit_replay::Estimate;

/// `low .. high`, or the one number.
pub(crate) fn range(range: Estimate) -> String {
    let (low, high) = (amount(range.low), amount(range.high));
    if low == high { low } else { format!("{low} .. {high}") }
}

/// Whether a gain is told from a loss by its sign.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// A plus sign stands before gains: for differences.
    Shown,
    /// No plus sign: for shares.
    Absent,
}

/// Percent of `whole`.
pub(crate) fn percent(range: Estimate, whole: f64, sign: Sign) -> String {
    let share = |part: f64| {
        let text = fixed(100.0 * part / whole, 3);
        if part > 0.0 && sign == Sign::Shown { format!("+{text}") } else { text }
    };
    let (low, high) = (share(range.low), share(range.high));
    if low == high { format!("{low} %") } else { format!("{low} .. {high} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_its_ends_or_one_number() {
        assert_eq!(range(Estimate { low: 5.0, value: 6.0, high: 120_000.0 }), "5 .. 120.0 k");
        assert_eq!(range(Estimate { low: 5.0, value: 5.0, high: 5.0 }), "5");
        assert_eq!(percent(Estimate { low: -1.0, value: 0.0, high: 2.0 }, 100.0, Sign::Shown), "-1.000 .. +2.000 %");
    }
}

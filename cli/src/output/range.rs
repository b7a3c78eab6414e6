//! How an estimate is shown to a person: its lowest and its highest value, or one number where the two are the same.

use tlbkit_replay::Estimate;

use super::number;

/// `low .. high`, or the one number.
pub(crate) fn range(range: Estimate) -> String {
    let (low, high) = (amount(range.low), amount(range.high));
    if low == high { low } else { format!("{low} .. {high}") }
}

/// Three digits and a prefix where it is long; small counts whole.
pub(crate) fn amount(value: f64) -> String {
    const PREFIXES: [(f64, &str); 3] = [(1e9, " G"), (1e6, " M"), (1e5, " k")];
    match PREFIXES.iter().find(|(least, _)| value.abs() >= *least) {
        Some(&(1e5, prefix)) => format!("{}{prefix}", number::fixed(value / 1e3, 1)),
        Some(&(unit, prefix)) => format!("{}{prefix}", number::fixed(value / unit, 2)),
        None => number::plain(value),
    }
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
        let text = number::fixed(100.0 * part / whole, 3);
        if part > 0.0 && sign == Sign::Shown { format!("+{text}") } else { text }
    };
    let (low, high) = (share(range.low), share(range.high));
    if low == high { format!("{low} %") } else { format!("{low} .. {high} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_short() {
        let cases = [(0.0, "0"), (99_999.0, "99999"), (123_456.0, "123.5 k"), (2.5e6, "2.50 M"), (-3e9, "-3.00 G")];
        for (value, text) in cases {
            assert_eq!(amount(value), text);
        }
        assert_eq!(range(Estimate { low: 5.0, value: 6.0, high: 120_000.0 }), "5 .. 120.0 k");
        assert_eq!(range(Estimate { low: 5.0, value: 5.0, high: 5.0 }), "5");
        assert_eq!(percent(Estimate { low: -1.0, value: 0.0, high: 2.0 }, 100.0, Sign::Shown), "-1.000 .. +2.000 %");
    }
}

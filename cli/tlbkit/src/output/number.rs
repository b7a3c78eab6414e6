//! How many digits a person is shown, and how an estimate is: its lowest and its highest value, or one number where the
//! two are the same. Programs get all digits, in the JSON lines.

use tlbkit_replay::Estimate;

use crate::published::figure::{Figure, Role};
use crate::published::tally::{Average, Held};

/// Shown where there is no number.
pub(crate) const NONE: &str = "-";

/// Digits after the point that tell a number of this size from its neighbours.
fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 1000.0 || size == 0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.01 => 3,
        _ => 5,
    }
}

/// Formats with a fixed number of digits after the point, and never as "-0".
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let without_sign = text.trim_start_matches('-');
    if without_sign.chars().all(|c| c == '0' || c == '.') { without_sign.to_owned() } else { text }
}

/// One number by itself.
pub(crate) fn plain(value: f64) -> String {
    let digits = if value.fract() == 0.0 { 0 } else { decimals(value) };
    fixed(value, digits)
}

/// A number of CPUs, in words for a sentence.
pub(crate) fn cpus(count: u64) -> String {
    if count == 1 { "1 CPU".to_owned() } else { format!("{count} CPUs") }
}

/// The numbers of one row, all with the same digits so that they can be compared: published, ours, band.
pub(crate) struct FigureText {
    /// What the document gives.
    pub(crate) published: String,
    /// What this implementation gives.
    pub(crate) ours: String,
    /// Signed, in percent.
    pub(crate) error: String,
    /// What the null model gives.
    pub(crate) null: String,
    /// Lowest and highest acceptable value.
    pub(crate) band: String,
}

/// What a figure is: the claim of a prediction that is judged, or the kind of every other one.
pub(crate) fn kind_word(figure: &Figure) -> &'static str {
    match figure.claim() {
        _ if figure.role == Role::Rule => "rule",
        Some(claim) => claim.word(),
        None => figure.expected.kind.word(),
    }
}

/// Digits after the point of all numbers in the row of a figure.
pub(crate) fn row_digits(figure: &Figure) -> usize {
    let numbers = || figure.expected.published.into_iter().chain(figure.ours);
    let whole = numbers().all(|value| value.fract() == 0.0);
    if whole { 0 } else { decimals(numbers().map(f64::abs).fold(0.0, f64::max)) }
}

/// Formats a figure's numbers.
pub(crate) fn figure_text(figure: &Figure) -> FigureText {
    let digits = row_digits(figure);
    let shown = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), |value| fixed(value, digits));
    FigureText {
        published: shown(figure.expected.published),
        ours: shown(figure.ours) + &figure.interval.map_or(String::new(), |of| plus_minus(of, digits)),
        error: figure.error_pct().map_or_else(|| NONE.to_owned(), error),
        null: shown(figure.null()),
        band: figure.expected.band.map_or_else(|| NONE.to_owned(), band),
    }
}

/// Both ends with the same digits: as many as their size asks for, fewer if they are round.
fn band([low, high]: [f64; 2]) -> String {
    let ends = || [low, high].into_iter().filter(|end| *end != 0.0);
    let mut digits = ends().map(decimals).min().unwrap_or(0);
    let is_hidden = |digits| ends().any(|end| fixed(end, digits).parse() == Ok(0.0));
    while digits < 9 && is_hidden(digits) {
        digits += 1;
    }
    while digits > 0 && ends().all(|end| fixed(end, digits).ends_with('0')) {
        digits -= 1;
    }
    format!("{} .. {}", fixed(low, digits), fixed(high, digits))
}

/// What stands behind a mean over seeds: half its interval.
fn plus_minus([low, high]: [f64; 2], digits: usize) -> String {
    format!(" +- {}", fixed((high - low) / 2.0, digits))
}

/// How many of how many hold.
pub(crate) fn held(held: &Held) -> String {
    format!("{} of {}", held.held, held.all)
}

/// The mean error over `figures` figures and the median error, in percent.
pub(crate) fn average_error(error: Average, figures: usize) -> String {
    let Average { mean_pct, median_pct } = error;
    if figures == 0 { NONE.to_owned() } else { format!("{}, {} %", fixed(mean_pct, 1), fixed(median_pct, 1)) }
}

/// A signed percentage with one digit.
fn error(pct: f64) -> String {
    match fixed(pct, 1) {
        text if text.starts_with('-') || text == "0.0" => format!("{text} %"),
        text => format!("+{text} %"),
    }
}

/// A tick of an axis whose ticks are `step` apart: short, so that it fits a phone.
pub(crate) fn tick(value: f64, step: f64) -> String {
    match (value.abs(), step.abs()) {
        (size, step) if size >= 1e6 && step >= 1e5 => format!("{}M", short(value / 1e6)),
        (size, step) if size >= 1e4 && step >= 1e2 => format!("{}k", short(value / 1e3)),
        _ => short(value),
    }
}

/// At most four digits after the point, without trailing zeros.
pub(crate) fn short(value: f64) -> String {
    let text = fixed(value, 4);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `low .. high`, or the one number.
pub(crate) fn range(range: Estimate) -> String {
    let (low, high) = (amount(range.low), amount(range.high));
    if low == high { low } else { format!("{low} .. {high}") }
}

/// Three digits and a prefix where it is long; small counts whole.
pub(crate) fn amount(value: f64) -> String {
    const PREFIXES: [(f64, &str); 3] = [(1e9, " G"), (1e6, " M"), (1e5, " k")];
    match PREFIXES.iter().find(|(least, _)| value.abs() >= *least) {
        Some(&(1e5, prefix)) => format!("{}{prefix}", fixed(value / 1e3, 1)),
        Some(&(unit, prefix)) => format!("{}{prefix}", fixed(value / unit, 2)),
        None => plain(value),
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
        let text = fixed(100.0 * part / whole, 3);
        if part > 0.0 && sign == Sign::Shown { format!("+{text}") } else { text }
    };
    let (low, high) = (share(range.low), share(range.high));
    if low == high { format!("{low} %") } else { format!("{low} .. {high} %") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::read::builtin;

    #[test]
    fn digits_follow_the_size() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.22, "1.22"),
            (207.0, "207"),
            (880.45, "880.5"),
            (7377.91, "7378"),
            (0.77, "0.770"),
        ];
        for (value, text) in cases {
            assert_eq!(plain(value), text);
        }
        assert_eq!(fixed(-0.001, 2), "0.00");
    }

    #[test]
    fn a_row_uses_the_same_digits_throughout() {
        let pcid = builtin("pcid");
        let shown = figure_text(&pcid.figure("time, pages 512, pcid", 1.9).unwrap());
        assert_eq!((&*shown.published, &*shown.ours, &*shown.error), ("1.80", "1.90", "+5.6 %"));
        assert_eq!(shown.band, "1.53 .. 2.07");
        let change = figure_text(&builtin("batch").figure("time, change", -1.05).unwrap());
        assert_eq!((&*change.ours, &*change.error, &*change.band), ("-1.05", "-5.0 %", "-2.0 .. -0.5"));
        assert_eq!(band([0.0, 0.05]), "0.00 .. 0.05");
        assert_eq!(band([750.55, 1015.4]), "751 .. 1015");
        assert_eq!(band([0.001, 2.0]), "0.001 .. 2.000");
        let even = figure_text(&pcid.figure("time, pages 0, pcid", 1.22).unwrap());
        assert_eq!((&*even.error, &*even.band), ("0.0 %", "-"));
    }

    #[test]
    fn ticks_are_short() {
        let cases = [(0.5, 0.5, "0.5"), (7500.0, 500.0, "7500"), (20000.0, 1e4, "20k"), (2.5e6, 5e5, "2.5M")];
        for (value, step, text) in cases {
            assert_eq!(tick(value, step), text);
        }
    }

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

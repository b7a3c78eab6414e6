//! The numbers of a figure as a person is shown them.

pub(crate) use tlbkit_output::number::{NONE, fixed};

use tlbkit_output::number::decimals;

use crate::published::figure::{Figure, Role};
use crate::published::tally::{Average, Held};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::read::builtin;

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
}

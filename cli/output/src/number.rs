//! How many digits a person is shown. Programs get all digits, in the JSON lines.

/// Shown where there is no number.
pub const NONE: &str = "-";

/// Digits after the point that tell a number of this size from its neighbours.
#[must_use]
pub fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 1000.0 || size == 0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.01 => 3,
        _ => 5,
    }
}

/// Formats with a fixed number of digits after the point, and never as "-0".
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let without_sign = text.trim_start_matches('-');
    if without_sign.chars().all(|c| c == '0' || c == '.') { without_sign.to_owned() } else { text }
}

/// One number by itself.
pub fn plain(value: f64) -> String {
    let digits = if value.fract() == 0.0 { 0 } else { decimals(value) };
    fixed(value, digits)
}

/// A number of CPUs, in words for a sentence.
pub fn cpus(count: u64) -> String {
    if count == 1 { "1 CPU".to_owned() } else { format!("{count} CPUs") }
}

/// A tick of an axis whose ticks are `step` apart: short, so that it fits a phone.
pub fn tick(value: f64, step: f64) -> String {
    match (value.abs(), step.abs()) {
        (size, step) if size >= 1e6 && step >= 1e5 => format!("{}M", short(value / 1e6)),
        (size, step) if size >= 1e4 && step >= 1e2 => format!("{}k", short(value / 1e3)),
        _ => short(value),
    }
}

/// At most four digits after the point, without trailing zeros.
pub fn short(value: f64) -> String {
    let text = fixed(value, 4);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Three digits and a prefix where it is long; small counts whole.
pub fn amount(value: f64) -> String {
    const PREFIXES: [(f64, &str); 3] = [(1e9, " G"), (1e6, " M"), (1e5, " k")];
    match PREFIXES.iter().find(|(least, _)| value.abs() >= *least) {
        Some(&(1e5, prefix)) => format!("{}{prefix}", fixed(value / 1e3, 1)),
        Some(&(unit, prefix)) => format!("{}{prefix}", fixed(value / unit, 2)),
        None => plain(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}

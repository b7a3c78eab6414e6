//! From values to places along an axis, and the round numbers to write beside it.

use tlbkit_output::number;

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Evenly, from zero.
    FromZero,
    /// Evenly, around the data.
    Around,
    /// By their logarithm.
    Log,
}

/// What an axis shows.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Its title.
    pub(crate) title: String,
    /// The unit of its numbers; empty for a plain count.
    pub(crate) unit: String,
    /// How values are spread.
    pub(crate) scale: Scale,
}

impl Axis {
    /// An axis.
    pub(crate) fn new(title: &str, unit: &str, scale: Scale) -> Axis {
        Axis { title: title.to_owned(), unit: unit.to_owned(), scale }
    }

    /// Title and unit as they are written along it.
    pub(super) fn caption(&self) -> String {
        if self.unit.is_empty() { self.title.clone() } else { format!("{} [{}]", self.title, self.unit) }
    }
}

/// Values mapped to `from ..= to` on the drawing.
#[derive(Clone, Debug)]
pub(super) struct Span {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    step: f64,
}

/// A number beside an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// Where it stands along the axis.
    pub(super) place: f64,
    /// What is written there; nothing at a line between two numbers.
    pub(super) label: Option<String>,
}

impl Span {
    /// A span that holds `values`, drawn between `from` and `to`, with about `ticks` numbers.
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>, (from, to): (f64, f64), ticks: usize) -> Span {
        let usable = |value: &f64| value.is_finite() && (scale != Scale::Log || *value > 0.0);
        let (mut low, mut high) = values
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (1.0, 2.0);
        }
        if scale == Scale::Log {
            return Span { scale, low: low / 1.15, high: high * 1.15, from, to, step: 0.0 };
        }
        if scale == Scale::FromZero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if low == high {
            high = low + 1.0;
        }
        let step = round_step((high - low) / ticks as f64);
        Span { scale, low: (low / step).floor() * step, high: (high / step).ceil() * step, from, to, step }
    }

    /// Where `value` lies.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            _ => (value - self.low) / (self.high - self.low),
        };
        self.from + share * (self.to - self.from)
    }

    /// The numbers to write.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        match self.scale {
            Scale::Log => self.log_ticks(),
            _ => self.even_ticks(),
        }
    }

    fn even_ticks(&self) -> Vec<Tick> {
        let count = ((self.high - self.low) / self.step).round() as usize;
        (0..=count)
            .map(|index| self.low + index as f64 * self.step)
            .map(|value| Tick { place: self.place(value), label: Some(number::tick(value, self.step)) })
            .collect()
    }

    /// 1, 2 and 5 of every decade, with numbers; the rest as bare lines.
    fn log_ticks(&self) -> Vec<Tick> {
        let mut ticks = Vec::new();
        let mut decade = 10f64.powf(self.low.log10().floor());
        while decade <= self.high {
            for digit in 1..10 {
                let value = decade * f64::from(digit);
                if value >= self.low && value <= self.high {
                    let label = matches!(digit, 1 | 2 | 5).then(|| number::tick(value, decade));
                    ticks.push(Tick { place: self.place(value), label });
                }
            }
            decade *= 10.0;
        }
        ticks
    }
}

/// The 1, 2 or 5 times a power of ten at or above `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= rough * (1.0 - 1e-9)).unwrap_or(10.0);
    digit * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(span: &Span) -> Vec<String> {
        span.ticks().into_iter().filter_map(|tick| tick.label).collect()
    }

    #[test]
    fn even_ticks_are_round_and_enclose_the_data() {
        let span = Span::new(Scale::Around, [6559.0, 9450.0].into_iter(), (0.0, 100.0), 5);
        assert_eq!(labels(&span), ["6000", "7000", "8000", "9000", "10k"]);
        let zero = Span::new(Scale::FromZero, [0.3, 1.9].into_iter(), (100.0, 0.0), 4);
        assert_eq!(labels(&zero), ["0", "0.5", "1", "1.5", "2"]);
        assert_eq!(zero.place(0.0), 100.0);
        assert_eq!(zero.place(2.0), 0.0);
    }

    #[test]
    fn log_ticks_show_one_two_five() {
        let span = Span::new(Scale::Log, [1.0, 133.0].into_iter(), (0.0, 300.0), 5);
        assert_eq!(labels(&span), ["1", "2", "5", "10", "20", "50", "100"]);
        let middle = span.place(10.0) - span.place(1.0);
        assert!((span.place(100.0) - span.place(10.0) - middle).abs() < 1e-9, "decades are equally long");
    }

    #[test]
    fn nothing_to_show_is_no_disaster() {
        assert!(Span::new(Scale::Log, [].into_iter(), (0.0, 1.0), 5).place(1.0).is_finite());
        assert!(Span::new(Scale::Around, [3.0].into_iter(), (0.0, 1.0), 5).place(3.0).is_finite());
    }
}

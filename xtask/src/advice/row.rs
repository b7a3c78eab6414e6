//! A change that was tried: what `tune` said that it saves, and what was measured.

use serde_json::Value;

/// A range with its middle, in milliseconds of CPU time that a run saves.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Range {
    low: f64,
    value: f64,
    high: f64,
}

/// One change on one program.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    change: String,
    predicted: Range,
    measured: Range,
    /// CPU time of a run without the change.
    without_ms: f64,
}

/// Whether a size is as it was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Size {
    /// The measured median is in the stated range, or near its middle value.
    Right,
    /// It is not, but the measured interval and the stated range overlap: the noise is too large to say that it is
    /// wrong, and nothing says that it is right.
    NotToldApart,
    /// The two have nothing in common.
    Wrong,
}

impl Size {
    const fn word(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::NotToldApart => "not told apart",
            Self::Wrong => "**wrong**",
        }
    }
}

/// Gains below this part of a run are none.
const NOTHING: f64 = 0.02;
/// A middle value as near as this, as a part, is right whatever its range.
const NEAR: f64 = 0.25;

impl Row {
    /// Whether it saves, costs, or does nothing, as was said. A measured interval that holds zero is nothing.
    pub(super) fn is_direction_right(&self) -> bool {
        let least = NOTHING * self.without_ms;
        let of = |value: f64| if value.abs() < least { 0.0 } else { value.signum() };
        let is_noise = self.measured.low <= 0.0 && self.measured.high >= 0.0;
        let measured = if is_noise { 0.0 } else { of(self.measured.value) };
        of(self.predicted.value) == measured
    }

    /// How the measured median, and its interval, lie to the stated range and its middle value.
    pub(super) fn size(&self) -> Size {
        let Range { low, value, high } = self.predicted;
        let measured = self.measured;
        if (low..=high).contains(&measured.value) || (measured.value - value).abs() <= NEAR * measured.value.abs() {
            Size::Right
        } else if measured.low <= high && low <= measured.high {
            Size::NotToldApart
        } else {
            Size::Wrong
        }
    }

    pub(super) fn line(&self, program: &str) -> String {
        let range = |range: &Range| format!("{:.0} ({:.0} to {:.0})", range.value, range.low, range.high);
        let (predicted, measured) = (range(&self.predicted), range(&self.measured));
        let share = 100.0 * self.measured.value / self.without_ms.max(1e-3);
        let word = |is_right| if is_right { "right" } else { "**wrong**" };
        let (direction, size) = (word(self.is_direction_right()), self.size().word());
        let all = format!("{share:.0} % of {:.0} ms", self.without_ms);
        format!("| {program} | `{}` | {predicted} | {measured} | {all} | {direction} | {size} |", self.change)
    }
}

/// Rows of what `tune --try` printed, one for each change that it tried; why not, for one that it could not try.
pub(super) fn rows(values: &[Value]) -> Vec<Result<Row, String>> {
    let of_kind = |kind: &'static str| values.iter().filter(move |value| value["kind"] == kind);
    let untried = of_kind("untried").map(|value| Err(format!("not tried: {}", value["error"].as_str().unwrap_or("?"))));
    let row = |measured: &Value| {
        let setting = of_kind("setting").find(|setting| setting["changes"] == measured["changes"])?;
        let number = |value: &Value| value.as_f64();
        let predicted = Range {
            low: number(&setting["low_ms"])?,
            value: number(&setting["value_ms"])?,
            high: number(&setting["high_ms"])?,
        };
        let without_ms = 1e3 * number(&measured["without"]["median"])?;
        let saved = |ratio: &Value| Some(without_ms * (1.0 - number(ratio)?));
        let ratio = &measured["ratio"];
        let measured_ms =
            Range { low: saved(&ratio["high"])?, value: saved(&ratio["ratio"])?, high: saved(&ratio["low"])? };
        let change = measured["changes"].as_array()?.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        Some(Ok(Row { change, predicted, measured: measured_ms, without_ms }))
    };
    let is_cpu_time = |value: &&Value| value["quantity"].as_str().is_some_and(|name| name.starts_with("CPU time"));
    of_kind("measured").filter(is_cpu_time).filter_map(row).chain(untried).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(predicted: [f64; 3], measured: [f64; 3]) -> Row {
        let range = |[low, value, high]: [f64; 3]| Range { low, value, high };
        Row { change: "A=1".into(), predicted: range(predicted), measured: range(measured), without_ms: 100.0 }
    }

    #[test]
    fn a_direction_is_right_if_both_save_or_neither_does() {
        let is_right = |predicted, measured| row(predicted, measured).is_direction_right();
        assert!(is_right([5.0, 50.0, 60.0], [10.0, 20.0, 30.0]));
        assert!(!is_right([5.0, 50.0, 60.0], [-1.0, 20.0, 30.0]), "noise is nothing");
        assert!(is_right([0.0, 1.0, 2.0], [-1.0, 20.0, 30.0]));
        assert!(!is_right([0.0, 1.0, 2.0], [-9.0, -5.0, -4.0]));
    }

    #[test]
    fn a_size_is_right_in_its_range_or_near_its_middle() {
        let size = |predicted, measured| row(predicted, measured).size();
        assert_eq!(size([5.0, 50.0, 60.0], [5.0, 6.0, 7.0]), Size::Right);
        assert_eq!(size([49.0, 50.0, 51.0], [55.0, 60.0, 66.0]), Size::Right);
        assert_eq!(size([49.0, 50.0, 51.0], [75.0, 80.0, 85.0]), Size::Wrong);
        assert_eq!(size([0.0, 0.0, 0.0], [-2.0, -1.0, -0.5]), Size::Wrong, "a loss that no noise hides");
    }

    #[test]
    fn a_size_that_noise_hides_is_neither_right_nor_wrong() {
        let size = |predicted, measured| row(predicted, measured).size();
        assert_eq!(size([0.0, 0.0, 0.0], [-98.0, 89.0, 158.0]), Size::NotToldApart);
        assert_eq!(size([0.0, 1.0, 2.0], [-1.0, -0.1, 0.0]), Size::NotToldApart);
        assert_eq!(size([0.0, 1.0, 2.0], [2.1, 5.0, 9.0]), Size::Wrong);
    }

    #[test]
    fn a_setting_meets_its_own_measurement() {
        let values = [
            json!({"kind": "setting", "changes": ["A=1"], "low_ms": 1.0, "value_ms": 2.0, "high_ms": 3.0}),
            json!({"kind": "setting", "changes": ["B=1"], "low_ms": 7.0, "value_ms": 8.0, "high_ms": 9.0}),
            json!({
                "kind": "measured", "changes": ["B=1"], "quantity": "CPU time, s", "without": {"median": 0.1},
                "ratio": {"ratio": 0.5, "low": 0.4, "high": 0.6},
            }),
            json!({"kind": "measured", "changes": ["B=1"], "quantity": "wall time, s", "without": {"median": 9.0}}),
            json!({"kind": "untried", "changes": ["A=1"], "error": "no right"}),
        ];
        let found = rows(&values);
        let expected = Row { change: "B=1".into(), ..row([7.0, 8.0, 9.0], [40.0, 50.0, 60.0]) };
        assert_eq!(found, [Ok(expected), Err("not tried: no right".into())]);
    }
}

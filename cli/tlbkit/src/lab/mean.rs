//! A mean of several runs, and how far it may be off.

use tlbkit_sim::statistics::{half_width_95, mean};

use super::compare::Unit;

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

    /// As a whole number.
    pub(crate) fn count(self) -> String {
        self.text(Unit::Count)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_stands_beside_half_of_its_interval() {
        assert_eq!(Mean::of(&[9.0, 10.0, 11.0]).unwrap().text(Unit::Count), "10 +-2");
        assert_eq!(Mean::of(&[10.0]).unwrap().text(Unit::Percent), "10.0 %");
        assert_eq!(Mean::of(&[0.0, 100.0]).unwrap().text(Unit::Percent), "50.0 +-100 %");
        assert_eq!(Mean::of(&[]), None);
    }
}

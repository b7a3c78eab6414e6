//! A rule: what must hold of several figures together, such as "at least six of these eight lie in their band".
//!
//! Its outcome is a figure like any other: how many passed, and the band "at least the count". Its members keep their
//! own verdicts.

use serde::Deserialize;

use super::claim::Sceptic;
use super::expected::{Expected, FigureKind};
use super::figure::{Figure, Role};

/// How the figures that pass are counted against the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuleKind {
    /// No fewer than `count` of them.
    AtLeast,
}

/// What a single figure must do to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Test {
    /// Lie in its band.
    InBand,
    /// Be above zero.
    Positive,
}

/// A rule over the figures whose quantity starts with `prefix` and ends with `suffix`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// How it counts.
    pub(crate) kind: RuleKind,
    /// The name of its row.
    pub(crate) quantity: String,
    /// The limit.
    pub(crate) count: usize,
    /// How the quantities of its members begin.
    pub(crate) prefix: String,
    /// How they end.
    #[serde(default)]
    pub(crate) suffix: String,
    /// What a member must do.
    pub(crate) test: Test,
    /// Why it is known not to hold.
    pub(crate) known_miss: Option<String>,
    /// Where the rule is from.
    pub(crate) source: String,
}

impl Rule {
    /// Whether a figure called `quantity` is a member.
    pub(crate) fn covers(&self, quantity: &str) -> bool {
        quantity.starts_with(&self.prefix) && quantity.ends_with(&self.suffix)
    }

    /// The outcome over `figures`, as a row.
    pub(super) fn outcome(&self, experiment: &str, figures: &[Figure]) -> Figure {
        let RuleKind::AtLeast = self.kind;
        let members: Vec<_> = figures.iter().filter(|figure| self.covers(&figure.expected.quantity)).collect();
        let passed = members.iter().filter(|figure| self.passes(figure)).count();
        let expected = Expected {
            experiment: experiment.to_owned(),
            quantity: self.quantity.clone(),
            unit: format!("of {}", members.len()),
            published: None,
            kind: FigureKind::Prediction,
            band: Some([self.count as f64, members.len().max(self.count) as f64]),
            source: self.source.clone(),
            note: None,
            known_miss: self.known_miss.clone(),
            sceptic: Sceptic::default(),
        };
        Figure { role: Role::Rule, ..Figure::new(&expected, passed as f64) }
    }

    fn passes(&self, figure: &Figure) -> bool {
        match self.test {
            Test::InBand => figure.is_ok(),
            Test::Positive => figure.ours.is_some_and(|value| value > 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::published::figure::{Figure, Role};
    use crate::published::read::builtin;

    /// How many pass each of the two rules of `range`, and whether that is enough, over the published gains, the first
    /// `spoilt` of them replaced. What is recorded of today's outcomes plays no part.
    fn outcomes(spoilt: usize, value: f64) -> Vec<(Option<f64>, bool)> {
        let range = builtin("range");
        let figures = range.expected.iter().map(|expected| {
            let hit = (1..=spoilt).any(|threads| expected.quantity == format!("gain, threads {threads}, nowalk"));
            Figure::new(expected, if hit { value } else { expected.published.unwrap() })
        });
        let rows = range.judge(figures.collect());
        rows.iter().filter(|row| row.role == Role::Rule).map(|row| (row.ours, row.is_ok())).collect()
    }

    #[test]
    fn two_gains_of_eight_may_leave_their_band_and_not_three() {
        assert_eq!(outcomes(2, 99.0), [(Some(6.0), true), (Some(8.0), true)]);
        assert_eq!(outcomes(3, 99.0)[0], (Some(5.0), false));
    }

    #[test]
    fn one_loss_is_one_too_many() {
        assert_eq!(outcomes(1, -0.1), [(Some(7.0), true), (Some(7.0), false)]);
    }
}

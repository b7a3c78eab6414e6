//! A rule: what must hold of several figures together, such as "at least six of these eight lie in their band".
//!
//! Its outcome is a figure like any other: how many passed, and the band "at least the count". A rule about bands
//! takes the decision away from its members, which is how a noisy row may miss without failing a run.

use serde::Deserialize;

use super::figure::{Figure, Kind, Role};

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
    /// Where the rule is from.
    pub(crate) source: String,
}

impl Rule {
    /// Whether a figure called `quantity` is a member.
    pub(crate) fn covers(&self, quantity: &str) -> bool {
        quantity.starts_with(&self.prefix) && quantity.ends_with(&self.suffix)
    }

    /// The outcome as a row; members are marked as judged by it.
    pub(super) fn apply(&self, experiment: &str, figures: &mut [Figure]) -> Figure {
        let mut passed = 0;
        let mut members = 0;
        for figure in figures.iter_mut().filter(|figure| self.covers(&figure.quantity)) {
            members += 1;
            passed += usize::from(self.passes(figure));
            if self.test == Test::InBand {
                figure.role = Role::Member;
            }
        }
        self.outcome(experiment, passed, members)
    }

    fn passes(&self, figure: &Figure) -> bool {
        match self.test {
            Test::InBand => figure.ok,
            Test::Positive => figure.ours.is_some_and(|value| value > 0.0),
        }
    }

    fn outcome(&self, experiment: &str, passed: usize, members: usize) -> Figure {
        let RuleKind::AtLeast = self.kind;
        Figure {
            experiment: experiment.to_owned(),
            quantity: self.quantity.clone(),
            unit: format!("of {members}"),
            published: None,
            ours: Some(passed as f64),
            error_pct: None,
            kind: Kind::Prediction,
            band: Some([self.count as f64, members.max(self.count) as f64]),
            ok: passed >= self.count,
            note: None,
            source: self.source.clone(),
            role: Role::Rule,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::published::figure::{Figure, Role, Verdict, all_ok};
    use crate::published::read::builtin;

    /// The `range` experiment with the published gains, but those at the first `spoilt` thread counts replaced.
    fn range_with_spoilt_gains(spoilt: usize, value: f64) -> Vec<Figure> {
        let range = builtin("range");
        let figures = range.expected.iter().map(|expected| {
            let hit = (1..=spoilt).any(|threads| expected.quantity == format!("gain, threads {threads}, nowalk"));
            Figure::new(expected, if hit { value } else { expected.published.unwrap() })
        });
        range.judge(figures.collect())
    }

    fn find<'a>(figures: &'a [Figure], quantity: &str) -> &'a Figure {
        figures.iter().find(|figure| figure.quantity == quantity).unwrap()
    }

    #[test]
    fn two_gains_of_eight_may_leave_their_band_and_not_three() {
        let two = range_with_spoilt_gains(2, 99.0);
        assert!(all_ok(&two));
        assert_eq!(find(&two, "gains within half to double").ours, Some(6.0));
        assert_eq!(find(&two, "gain, threads 1, nowalk").verdict(), Verdict::Outlier);
        let three = range_with_spoilt_gains(3, 99.0);
        assert!(!all_ok(&three));
        assert_eq!(find(&three, "gains within half to double").verdict(), Verdict::Miss);
    }

    #[test]
    fn one_loss_is_one_too_many() {
        let loss = range_with_spoilt_gains(1, -0.1);
        assert!(find(&loss, "gains within half to double").ok);
        assert!(!find(&loss, "gains above zero").ok);
        assert!(!all_ok(&loss));
    }

    #[test]
    fn a_rule_takes_only_its_members() {
        let figures = range_with_spoilt_gains(0, 0.0);
        let members = figures.iter().filter(|figure| figure.role == Role::Member).count();
        assert_eq!(members, 8, "the gains of the other policy are not members");
    }
}

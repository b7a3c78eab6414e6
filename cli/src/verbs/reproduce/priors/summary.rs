//! What all draws together say of predictions and of misses.

use serde_json::{Value, json};

use super::drawn::{DrawnExperiment, DrawnFigure};
use crate::published::claim::Claim;
use crate::published::tally::Held;

/// A figure with its experiment.
pub(super) type Miss<'a> = (&'a DrawnExperiment, &'a DrawnFigure);

/// How many published values lie in the range of the draws. Predictions of which nothing was published do not count.
#[derive(Default)]
pub(super) struct Summary<'a> {
    pub(super) strong: Held,
    pub(super) weak: Held,
    /// Misses on the file's own machine whose published value lies in the range.
    pub(super) inside: Vec<Miss<'a>>,
    /// Predictions whose published value lies outside of the range.
    pub(super) outside: Vec<Miss<'a>>,
}

impl<'a> Summary<'a> {
    /// Of all predictions of these.
    pub(super) fn of(experiments: impl IntoIterator<Item = &'a DrawnExperiment>) -> Self {
        let mut all = Self::default();
        for experiment in experiments {
            experiment.predictions().for_each(|figure| all.count(experiment, figure));
        }
        all
    }

    fn count(&mut self, experiment: &'a DrawnExperiment, figure: &'a DrawnFigure) {
        let Some(is_held) = figure.holds_published() else { return };
        if figure.is_miss() {
            let misses = if is_held { &mut self.inside } else { &mut self.outside };
            misses.push((experiment, figure));
        }
        let counted = match figure.own.claim() {
            Some(Claim::Strong) => &mut self.strong,
            Some(Claim::Weak) => &mut self.weak,
            Some(Claim::Tautological) | None => return,
        };
        counted.all += 1;
        counted.held += usize::from(is_held);
    }

    /// For a program.
    pub(super) fn json_line(&self) -> Value {
        let of = |held: Held| json!({ "in_range": held.held, "of": held.all });
        let names = |misses: &[Miss<'_>]| -> Vec<Value> {
            let name = |(_, figure): &Miss<'_>| json!([figure.own.expected.experiment, figure.own.expected.quantity]);
            misses.iter().map(name).collect()
        };
        let (inside, outside) = (names(&self.inside), names(&self.outside));
        json!({
            "published_in_range": { "strong": of(self.strong), "weak": of(self.weak) },
            "misses_in_range": inside, "misses_out_of_range": outside, "fit_repeated": false,
        })
    }
}

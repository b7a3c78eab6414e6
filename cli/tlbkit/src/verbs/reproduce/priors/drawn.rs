//! The figures of one experiment on machines drawn from its machine file: how far each lies apart, and whether what was
//! published lies among them.

use serde_json::{Value, json};
use tlbkit_machine::Prior;

use crate::lab::draws::Draws;
use crate::lab::rank::{Candidates, Followed};
use crate::lab::spread::Spread;
use crate::published::claim::Claim;
use crate::published::expected::{Expected, FigureKind};
use crate::published::experiment::Experiment;
use crate::published::figure::{Figure, Role, Verdict};
use crate::published::tally::Held;

/// An experiment on the machines of `draws`.
pub(super) struct DrawnExperiment {
    pub(super) experiment: Experiment,
    pub(super) draws: Draws,
    /// What was predicted or fitted: neither rules nor what was set.
    pub(super) figures: Vec<DrawnFigure>,
    /// The largest rank correlation that a prior has with a figure by chance.
    pub(super) chance: f64,
}

/// One figure on all of these machines.
pub(super) struct DrawnFigure {
    /// On the file's own machine.
    pub(super) own: Figure,
    /// On that of each draw.
    drawn: Vec<Figure>,
    /// The prior, by its number, that explains most of it; none if no prior does so more than by chance.
    follows: Option<Followed>,
}

impl DrawnExperiment {
    /// Of `own` figures, on the file's own machine, and those of each draw in `drawn`, in the same order.
    pub(super) fn new(experiment: Experiment, draws: Draws, own: Vec<Figure>, drawn: &[Vec<Figure>]) -> Self {
        let candidates = Candidates::new(&draws.values());
        let figure = |(place, own): (usize, Figure)| {
            let drawn = drawn.iter().map(|figures| figures[place].clone()).collect();
            DrawnFigure::new(own, drawn, &candidates)
        };
        let wanted = |figure: &DrawnFigure| {
            let is_of_interest = matches!(figure.own.expected.kind, FigureKind::Prediction | FigureKind::Calibrated);
            is_of_interest && figure.own.role == Role::Measured
        };
        let figures = own.into_iter().enumerate().map(figure).filter(wanted).collect();
        Self { experiment, draws, figures, chance: candidates.chance }
    }

    /// Predictions that are judged: those with a band.
    pub(super) fn predictions(&self) -> impl Iterator<Item = &DrawnFigure> {
        self.figures.iter().filter(|figure| figure.own.claim().is_some())
    }

    /// What was fitted, on the file's own machine alone.
    pub(super) fn fitted(&self) -> impl Iterator<Item = &DrawnFigure> {
        self.figures.iter().filter(|figure| figure.own.expected.kind == FigureKind::Calibrated)
    }

    /// The prior that explains most of `figure`, and how much.
    pub(super) fn followed(&self, figure: &DrawnFigure) -> Option<(&Prior, Followed)> {
        figure.follows.map(|found| (&self.draws.priors()[found.number], found))
    }

    /// For a program: a line for each draw with its priors, then one for each figure.
    pub(super) fn json_lines(&self) -> Vec<Value> {
        let with_name = |mut line: Value| {
            line["experiment"] = self.experiment.id.clone().into();
            line["machine"] = self.experiment.setup.machine.clone().into();
            line
        };
        let draws = self.draws.json_lines().into_iter().map(with_name);
        draws.chain(self.figures.iter().map(|figure| self.json_line(figure))).collect()
    }

    fn json_line(&self, figure: &DrawnFigure) -> Value {
        let own = &figure.own;
        let Expected { experiment, quantity, unit, kind, published, band, .. } = &own.expected;
        let follows = self.followed(figure).map(|(prior, found)| {
            json!({
                "prior": prior.name, "rank_correlation": found.whole, "value": prior.value, "band": prior.band,
                "to_meet": figure.way_to_meet(found).map(Way::word),
            })
        });
        json!({
            "experiment": experiment, "quantity": quantity, "unit": unit, "kind": kind,
            "claim": own.claim(), "verdict": own.verdict().words(), "published": published, "ours": own.ours,
            "null": own.null(), "band": band, "draws": figure.values(), "spread": figure.spread(),
            "published_in_range": figure.holds_published(), "draws_in_band": figure.in_band(),
            "follows": follows, "chance": self.chance,
        })
    }
}

/// What a number would have to be for ours to come nearer to what was published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Higher,
    Lower,
}

impl Way {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

impl DrawnFigure {
    fn new(own: Figure, drawn: Vec<Figure>, candidates: &Candidates) -> Self {
        let values: Option<Vec<f64>> = drawn.iter().map(|figure| figure.ours).collect();
        // Where a draw has no value, the others are not a fair choice.
        let follows = values.and_then(|values| candidates.followed(&values, 1).first().copied());
        Self { own, drawn, follows }
    }

    /// Ours in each draw; none where that has no finite value.
    pub(super) fn values(&self) -> Vec<Option<f64>> {
        self.drawn.iter().map(|figure| figure.ours).collect()
    }

    /// The spread over the draws that have a value; none if no draw has one.
    pub(super) fn spread(&self) -> Option<Spread> {
        Spread::of(&self.values().into_iter().flatten().collect::<Vec<_>>())
    }

    /// Whether the published value lies in the range of the draws; none if nothing was published.
    pub(super) fn holds_published(&self) -> Option<bool> {
        let (spread, published) = (self.spread()?, self.own.expected.published?);
        Some((spread.low..=spread.high).contains(&published))
    }

    /// In how many draws it lies in its band; none if it has no band.
    pub(super) fn in_band(&self) -> Option<usize> {
        self.own.expected.band.map(|_| self.drawn.iter().filter(|figure| figure.is_ok()).count())
    }

    /// How many draws there are.
    pub(super) fn draws(&self) -> usize {
        self.drawn.len()
    }

    /// Whether it misses its band on the file's own machine.
    pub(super) fn is_miss(&self) -> bool {
        self.own.claim().is_some() && matches!(self.own.verdict(), Verdict::KnownMiss | Verdict::NowMisses)
    }

    /// The value of the draw that comes nearest to what was published.
    pub(super) fn nearest(&self) -> Option<f64> {
        let published = self.own.expected.published?;
        let distance = |value: &f64| (value - published).abs();
        self.values().into_iter().flatten().min_by(|one, other| distance(one).total_cmp(&distance(other)))
    }

    /// How many draws reach what was published, or go beyond it, as seen from the file's own machine.
    pub(super) fn reach(&self) -> usize {
        let (Some(ours), Some(published)) = (self.own.ours, self.own.expected.published) else { return 0 };
        let is_there = |value: &f64| if published > ours { *value >= published } else { *value <= published };
        self.values().into_iter().flatten().filter(is_there).count()
    }

    /// Where the prior that was `found` would have to be.
    pub(super) fn way_to_meet(&self, found: Followed) -> Option<Way> {
        let missing = self.own.expected.published? - self.own.ours?;
        let way = if missing * found.whole > 0.0 { Way::Higher } else { Way::Lower };
        (missing != 0.0).then_some(way)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::published::read::builtin;

    /// The walks left by PCID, a strong prediction that misses: 5.3 % in the document, in a band from 2 to 10. It is
    /// `ours` on the file's own machine, and `values` in draws in which the first of two numbers stays as it is and the
    /// second one grows.
    pub(in super::super) fn walks_left(ours: f64, values: &[f64]) -> DrawnFigure {
        let pcid = builtin("pcid");
        let of = |ours: f64| pcid.figure("walks left by pcid, pages 512", ours).unwrap();
        let numbers = [vec![1.0; values.len()], (0..values.len()).map(|draw| draw as f64).collect()];
        DrawnFigure::new(of(ours), values.iter().map(|&value| of(value)).collect(), &Candidates::new(&numbers))
    }

    #[test]
    fn the_published_value_lies_in_the_range_or_not() {
        let holds = |values: &[f64]| walks_left(1.0, values).holds_published();
        assert_eq!([holds(&[1.0, 5.3]), holds(&[5.3, 9.0]), holds(&[1.0, 9.0])], [Some(true); 3]);
        assert_eq!([holds(&[1.0, 5.2]), holds(&[5.4, 9.0])], [Some(false); 2]);
        // One of twenty reaches it: the middle nine tenths end below.
        let mut twenty = [1.0; 20];
        twenty[7] = 6.0;
        let figure = walks_left(1.0, &twenty);
        assert_eq!((figure.holds_published(), figure.reach(), figure.nearest()), (Some(false), 1, Some(6.0)));
        assert_eq!(holds(&[f64::NAN]), None);
    }

    #[test]
    fn the_draws_in_the_band_are_counted_with_its_ends_and_without_those_that_have_no_value() {
        let figure = walks_left(1.0, &[1.9, 2.0, 5.0, 7.0, 10.0, 10.1, f64::NAN]);
        assert_eq!((figure.in_band(), figure.draws()), (Some(4), 7));
        assert_eq!(figure.spread(), Some(Spread { median: 6.0, low: 1.9, high: 10.1 }));
        assert_eq!(figure.values()[5..], [Some(10.1), None]);
        assert!(figure.is_miss() && !walks_left(5.0, &[1.0]).is_miss());
    }

    #[test]
    fn who_lies_above_reaches_what_was_published_from_above() {
        let reached = |ours| walks_left(ours, &[4.0, 5.3, 6.0, 7.0]).reach();
        assert_eq!([reached(1.0), reached(20.0)], [3, 2]);
    }

    #[test]
    fn the_prior_that_explains_most_is_named_with_the_way_it_would_have_to_go() {
        let growing: Vec<_> = (0..20).map(f64::from).collect();
        let falling: Vec<_> = growing.iter().map(|value| -value).collect();
        let way = |ours, values: &[f64]| {
            let figure = walks_left(ours, values);
            let found = figure.follows.unwrap();
            assert_eq!((found.number, found.whole.abs() > 0.99), (1, true));
            figure.way_to_meet(found)
        };
        assert_eq!([way(1.0, &growing), way(1.0, &falling)], [Some(Way::Higher), Some(Way::Lower)]);
        assert_eq!([way(9.0, &growing), way(9.0, &falling)], [Some(Way::Lower), Some(Way::Higher)]);
        assert_eq!(way(5.3, &growing), None);
        assert_eq!(walks_left(1.0, &[5.0; 20]).follows, None, "what does not change follows nothing");
        let mut lacking = growing.clone();
        lacking[3] = f64::NAN;
        assert_eq!(walks_left(1.0, &lacking).follows, None, "a draw has no value");
    }
}

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

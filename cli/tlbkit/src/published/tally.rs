//! How a set of figures came out: verdicts by what they claim, and how far off they are beside their null models.

use tlbkit_sim::statistics::mean;

use super::claim::Claim;
use super::figure::{Figure, Role, Verdict};

/// How many there are, and how many hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// How many lie in their band.
    pub(crate) held: usize,
    /// How many there are.
    pub(crate) all: usize,
}

impl Held {
    fn count(&mut self, figure: &Figure) {
        self.all += 1;
        self.held += usize::from(figure.is_ok());
    }
}

/// Absolute errors in percent of the published values, ours and the null models', over the same figures: those
/// predictions that are not tautological, whose published value is not zero and that have a null model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Errors {
    /// Ours.
    pub(crate) ours: Average,
    /// The null models'.
    pub(crate) null: Average,
    /// Over how many figures.
    pub(crate) figures: usize,
}

/// A change that is published as next to nothing can be missed by thousands of percent. A few such figures make the
/// mean, and do not move the median.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Average {
    /// The mean.
    pub(crate) mean_pct: f64,
    /// The median.
    pub(crate) median_pct: f64,
}

impl Average {
    fn of(mut errors_pct: Vec<f64>) -> Self {
        errors_pct.sort_by(f64::total_cmp);
        let count = errors_pct.len();
        if count == 0 {
            return Self::default();
        }
        let mean_pct = mean(&errors_pct);
        let median_pct = f64::midpoint(errors_pct[(count - 1) / 2], errors_pct[count / 2]);
        Self { mean_pct, median_pct }
    }
}

impl Errors {
    fn of(figures: &[Figure]) -> Errors {
        let counts = |figure: &&Figure| figure.claim().is_some_and(|claim| claim != Claim::Tautological);
        let pairs: Vec<_> = figures
            .iter()
            .filter(counts)
            .filter_map(|figure| Some((figure.error_pct()?.abs(), figure.null_error_pct()?.abs())))
            .collect();
        let figures = pairs.len();
        let (ours, null) = pairs.into_iter().unzip();
        Errors { ours: Average::of(ours), null: Average::of(null), figures }
    }
}

/// How a set of figures came out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Predictions with a band, by [`Claim::ALL`].
    pub(crate) claims: [Held; 3],
    /// Predictions outside their band, as the experiments' files say.
    pub(crate) known_misses: usize,
    /// Rules.
    pub(crate) rules: Held,
    /// Verdicts of any figure or rule that are not as recorded.
    pub(crate) changed: usize,
    /// How far off the predictions are.
    pub(crate) errors: Errors,
}

impl Tally {
    /// Counts `figures`.
    pub(crate) fn of(figures: &[Figure]) -> Tally {
        let mut tally = Tally { errors: Errors::of(figures), ..Tally::default() };
        for figure in figures {
            tally.known_misses += usize::from(figure.verdict() == Verdict::KnownMiss && figure.claim().is_some());
            tally.changed += usize::from(figure.verdict().has_changed());
            match figure.claim() {
                _ if figure.role == Role::Rule => tally.rules.count(figure),
                Some(claim) => tally.claims[claim as usize].count(figure),
                // Without a band, or no prediction.
                None => {}
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::super::claim::{NullModel, Sceptic};
    use super::super::expected::{Expected, FigureKind};
    use super::*;

    /// A figure of value 2 in the band 1 to 3 where there is one, and what we give for it.
    fn figure(kind: FigureKind, band: Option<[f64; 2]>, sceptic: Sceptic, ours: f64) -> Figure {
        let expected = Expected {
            experiment: "e".into(),
            quantity: "q".into(),
            unit: String::new(),
            published: Some(2.0),
            kind,
            band,
            source: String::new(),
            note: None,
            known_miss: None,
            sceptic,
        };
        Figure::new(&expected, ours)
    }

    fn null(value: f64) -> Sceptic {
        Sceptic { null: Some(NullModel { value, says: "one constant".into() }), ..Sceptic::default() }
    }

    #[test]
    fn a_tally_keeps_claims_apart_and_evidence_from_the_rest() {
        let band = Some([1.0, 3.0]);
        let sure = Sceptic { tautology: Some("by construction".into()), ..null(2.0) };
        let mut rule = figure(FigureKind::Prediction, band, Sceptic::default(), 9.0);
        rule.role = Role::Rule;
        let figures = [
            figure(FigureKind::Prediction, band, null(4.0), 2.0),
            figure(FigureKind::Prediction, band, null(4.0), 9.0),
            figure(FigureKind::Prediction, band, null(2.5), 3.0),
            figure(FigureKind::Prediction, band, sure, 2.0),
            figure(FigureKind::Prediction, None, null(2.0), 9.0),
            figure(FigureKind::Calibrated, None, Sceptic::default(), 9.0),
            rule,
        ];
        let tally = Tally::of(&figures);
        let held = |held, all| Held { held, all };
        assert_eq!(tally.claims, [held(1, 2), held(1, 1), held(1, 1)]);
        assert_eq!(tally.rules, held(0, 1));
        assert_eq!((tally.changed, tally.known_misses), (2, 0));
        // 0, 350 and 50 % of ours; 100, 100 and 25 % of the null models.
        let ours = Average { mean_pct: 400.0 / 3.0, median_pct: 50.0 };
        let null = Average { mean_pct: 75.0, median_pct: 100.0 };
        assert_eq!(tally.errors, Errors { ours, null, figures: 3 });
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let average = Average::of(vec![900.0, 10.0, 30.0, 20.0]);
        assert_eq!(average, Average { mean_pct: 240.0, median_pct: 25.0 });
    }

    #[test]
    fn of_no_figures_there_is_no_error() {
        assert_eq!(Tally::of(&[]), Tally::default());
    }
}

//! One figure: what a document published, what this implementation gives, and the verdict on it.
//!
//! Whether a figure is acceptable is decided here and nowhere else. A prediction with a band must lie in it; every
//! other figure must only have a finite value, because nothing is claimed about it. Which predictions miss, and why, is
//! recorded in the file of the experiment: the verdict says whether that is still so.

use serde::Serialize;
use tlbkit_sim::statistics::half_width_95;

use super::claim::Claim;
use super::expected::{Expected, FigureKind};

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A run gave it.
    Measured,
    /// A rule counted it over other figures.
    Rule,
}

/// What a reader is told about a figure: the same words in the terminal, the report and the JSON lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Inside its band, as recorded.
    InBand,
    /// Outside its band, as recorded, with the reason in the experiment's file.
    KnownMiss,
    /// Outside its band, and no miss is recorded.
    NowMisses,
    /// Inside its band, and a miss is recorded.
    NowInBand,
    /// There is no value.
    Absent,
    /// It is shown beside what was published, or there is no band.
    Shown,
    /// Something was fitted to it, so it is no evidence.
    Fitted,
    /// Set from a source or assumed, so it is no evidence.
    Set,
}

impl Verdict {
    /// The words in the verdict column.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Verdict::InBand => "in band",
            Verdict::KnownMiss => "known miss",
            Verdict::NowMisses => "changed: misses",
            Verdict::NowInBand => "changed: in band",
            Verdict::Absent => "changed: no value",
            Verdict::Shown => "shown",
            Verdict::Fitted => "fitted",
            Verdict::Set => "set",
        }
    }

    /// Whether the experiment's file says otherwise.
    pub(crate) fn has_changed(self) -> bool {
        matches!(self, Verdict::NowMisses | Verdict::NowInBand | Verdict::Absent)
    }
}

/// One row of a reproduced result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// What is expected of it.
    pub(crate) expected: Expected,
    /// What this implementation gives, in the unit of the quantity; none if it gave nothing finite.
    pub(crate) ours: Option<f64>,
    /// Where the mean over all seeds lies with a confidence of 95 %; none where one run gave the value.
    pub(crate) interval: Option<[f64; 2]>,
    /// Where it comes from.
    pub(crate) role: Role,
}

/// A figure in the `--json` output: what is promised to programs, in this order.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
    quantity: &'a str,
    unit: &'a str,
    published: Option<f64>,
    ours: Option<f64>,
    error_pct: Option<f64>,
    kind: FigureKind,
    band: Option<[f64; 2]>,
    ok: bool,
    null: Option<f64>,
    strong: bool,
    interval: Option<[f64; 2]>,
    verdict: &'static str,
    claim: Option<Claim>,
}

impl Figure {
    /// What a run gave, beside what was expected of it.
    pub(crate) fn new(expected: &Expected, ours: f64) -> Figure {
        let ours = ours.is_finite().then_some(ours);
        Figure { expected: expected.clone(), ours, interval: None, role: Role::Measured }
    }

    /// This figure as a mean over seeds that gave `samples`. The interval lies around the figure's own value. If that
    /// is a ratio of sums, it is not exactly the mean of the samples, which are ratios.
    pub(crate) fn over(self, samples: &[f64]) -> Figure {
        let around = |(value, half): (f64, f64)| [value - half, value + half];
        let half = half_width_95(samples).filter(|half| half.is_finite());
        Figure { interval: self.ours.zip(half).map(around), ..self }
    }

    /// The row for an expected figure that the run did not produce: never acceptable, so that it cannot go unseen.
    pub(crate) fn absent(expected: &Expected) -> Figure {
        Figure::new(expected, f64::NAN)
    }

    /// By how many percent of the published value ours exceeds it.
    pub(crate) fn error_pct(&self) -> Option<f64> {
        error_pct(self.expected.published, self.ours)
    }

    /// What the null model gives, in the unit of the quantity.
    pub(crate) fn null(&self) -> Option<f64> {
        self.expected.sceptic.null.as_ref().map(|null| null.value)
    }

    /// The null model's error, in percent of the published value.
    pub(crate) fn null_error_pct(&self) -> Option<f64> {
        error_pct(self.expected.published, self.null())
    }

    /// What a prediction with a band claims; none of every other figure, and none of a rule.
    pub(crate) fn claim(&self) -> Option<Claim> {
        let band = self.expected.judging_band().filter(|_| self.role == Role::Measured)?;
        Some(self.expected.sceptic.claim(band))
    }

    /// Whether this figure is acceptable taken by itself: the rule at the head of this file.
    pub(crate) fn is_ok(&self) -> bool {
        let Some(value) = self.ours else { return false };
        self.expected.judging_band().is_none_or(|[low, high]| low <= value && value <= high)
    }

    /// What a reader is told about it.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.expected.kind {
            _ if self.ours.is_none() => Verdict::Absent,
            FigureKind::Calibrated => Verdict::Fitted,
            FigureKind::Input | FigureKind::Prior => Verdict::Set,
            FigureKind::Shown => Verdict::Shown,
            FigureKind::Prediction if self.expected.band.is_none() => Verdict::Shown,
            FigureKind::Prediction => match (self.is_ok(), &self.expected.known_miss) {
                (true, None) => Verdict::InBand,
                (false, Some(_)) => Verdict::KnownMiss,
                (false, None) => Verdict::NowMisses,
                (true, Some(_)) => Verdict::NowInBand,
            },
        }
    }

    /// One line of the `--json` output.
    pub(crate) fn json_line(&self) -> String {
        let Expected { experiment, quantity, unit, published, kind, band, .. } = &self.expected;
        let line = Line {
            experiment,
            quantity,
            unit,
            published: *published,
            ours: self.ours,
            error_pct: self.error_pct(),
            kind: *kind,
            band: *band,
            ok: self.is_ok(),
            null: self.null(),
            strong: self.claim() == Some(Claim::Strong),
            interval: self.interval,
            verdict: self.verdict().words(),
            claim: self.claim(),
        };
        serde_json::to_string(&line).expect("a figure has string keys and finite numbers only")
    }
}

/// Percent by which ours exceeds published; none where the document has no number, or zero.
fn error_pct(published: Option<f64>, ours: Option<f64>) -> Option<f64> {
    let published = published.filter(|value| *value != 0.0)?;
    Some((ours? - published) / published.abs() * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::claim::{NullModel, Sceptic};
    use super::*;

    fn expected(kind: FigureKind, published: Option<f64>, band: Option<[f64; 2]>) -> Expected {
        Expected {
            experiment: "pcid".into(),
            quantity: "time".into(),
            unit: "us".into(),
            published,
            kind,
            band,
            source: "list".into(),
            note: Some("why".into()),
            known_miss: None,
            sceptic: Sceptic::default(),
        }
    }

    #[test]
    fn a_prediction_must_lie_in_its_band() {
        let want = expected(FigureKind::Prediction, Some(2.0), Some([1.0, 3.0]));
        for (ours, ok) in [(1.0, true), (3.0, true), (0.99, false), (3.01, false), (f64::NAN, false)] {
            assert_eq!(Figure::new(&want, ours).is_ok(), ok, "{ours}");
        }
    }

    #[test]
    fn what_is_no_prediction_must_only_be_finite() {
        let fitted = expected(FigureKind::Calibrated, Some(2.0), Some([1.0, 3.0]));
        assert!(Figure::new(&fitted, 99.0).is_ok());
        assert!(!Figure::new(&fitted, f64::INFINITY).is_ok());
        assert!(Figure::new(&expected(FigureKind::Prediction, None, None), 99.0).is_ok());
    }

    #[test]
    fn the_error_is_signed_and_absent_where_it_means_nothing() {
        let error = |published, ours| Figure::new(&expected(FigureKind::Prediction, published, None), ours).error_pct();
        assert_eq!(error(Some(2.0), 3.0), Some(50.0));
        assert_eq!(error(Some(-50.0), -40.0), Some(20.0));
        assert_eq!(error(Some(0.0), 3.0), None);
        assert_eq!(error(None, 3.0), None);
    }

    #[test]
    fn json_has_exactly_the_promised_keys() {
        let null = Some(NullModel { value: 4.0, says: "twice as much".into() });
        let want = expected(FigureKind::Prediction, Some(2.0), Some([1.0, 3.0]));
        let want = Expected { sceptic: Sceptic { null, ..Sceptic::default() }, ..want };
        let line = Figure::new(&want, 2.5).json_line();
        assert_eq!(
            line,
            r#"{"experiment":"pcid","quantity":"time","unit":"us","published":2.0,"ours":2.5,"error_pct":25.0,"#
                .to_owned()
                + r#""kind":"prediction","band":[1.0,3.0],"ok":true,"null":4.0,"strong":true,"interval":null,"#
                + r#""verdict":"in band","claim":"strong"}"#
        );
        let absent = Figure::absent(&expected(FigureKind::Prior, None, None)).json_line();
        assert!(
            absent.contains(
                r#""error_pct":null,"kind":"prior","band":null,"ok":false,"null":null,"strong":false,"interval":null,"#
            ),
            "{absent}"
        );
    }

    #[test]
    fn a_mean_over_seeds_has_an_interval_around_it() {
        let want = expected(FigureKind::Prediction, Some(2.0), Some([1.0, 3.0]));
        let figure = |ours| Figure::new(&want, ours);
        let [low, high] = figure(2.5).over(&[2.0, 3.0]).interval.unwrap();
        assert!((low - (2.5 - 6.353)).abs() < 1e-9 && (high - (2.5 + 6.353)).abs() < 1e-9, "{low} {high}");
        assert_eq!(figure(2.5).over(&[2.0]).interval, None);
        assert_eq!(figure(f64::NAN).over(&[2.0, 3.0]).interval, None);
        assert_eq!(figure(2.5).over(&[2.0, f64::INFINITY]).interval, None);
    }

    #[test]
    fn a_verdict_that_is_not_as_recorded_has_changed_in_either_direction() {
        let recorded = |known_miss: Option<&str>| Expected {
            known_miss: known_miss.map(String::from),
            ..expected(FigureKind::Prediction, Some(2.0), Some([1.0, 3.0]))
        };
        for (known_miss, ours, verdict, has_changed) in [
            (None, 2.0, Verdict::InBand, false),
            (Some("why"), 9.0, Verdict::KnownMiss, false),
            (None, 9.0, Verdict::NowMisses, true),
            (Some("why"), 2.0, Verdict::NowInBand, true),
            (Some("why"), f64::NAN, Verdict::Absent, true),
        ] {
            let figure = Figure::new(&recorded(known_miss), ours);
            assert_eq!((figure.verdict(), figure.verdict().has_changed()), (verdict, has_changed));
        }
    }
}

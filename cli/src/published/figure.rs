//! One figure: what a document published, what this implementation gives, and the verdict on it.
//!
//! `ok` is decided here and nowhere else. A prediction with a band must lie in it; every other figure must only have
//! a finite value, because nothing is claimed about it. Which predictions miss, and why, is recorded in the file of the
//! experiment: the verdict says whether that is still so.

use serde::{Deserialize, Serialize, Serializer};
use tlbkit_sim::statistics::half_width_95;

use super::claim::{Claim, Sceptic};

/// What a figure may be used for: only a prediction is evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FigureKind {
    /// Set from a source.
    Input,
    /// Fitted to the published value.
    Calibrated,
    /// Has no source; carries a band.
    Prior,
    /// Nothing was fitted to it.
    Prediction,
}

impl FigureKind {
    /// The word used in tables, TOML and JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            FigureKind::Input => "input",
            FigureKind::Calibrated => "calibrated",
            FigureKind::Prior => "prior",
            FigureKind::Prediction => "prediction",
        }
    }
}

/// A figure that a reproduction must give.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expected {
    /// Id of the experiment.
    pub(crate) experiment: String,
    /// What is measured; unique within the experiment.
    pub(crate) quantity: String,
    /// Its unit.
    pub(crate) unit: String,
    /// What the document gives, where it gives a number.
    pub(crate) published: Option<f64>,
    /// What it may be used for.
    pub(crate) kind: FigureKind,
    /// Lowest and highest acceptable value, in the unit of the quantity.
    pub(crate) band: Option<[f64; 2]>,
    /// Where in the document the number stands.
    pub(crate) source: String,
    /// Why it is not judged, or anything else a reader should know.
    pub(crate) note: Option<String>,
    /// Why our value is known to lie outside the band.
    pub(crate) known_miss: Option<String>,
    /// What a sceptic says of it.
    pub(crate) sceptic: Sceptic,
}

impl Expected {
    /// Whether it is a prediction with a band.
    pub(crate) fn is_judged(&self) -> bool {
        self.kind == FigureKind::Prediction && self.band.is_some()
    }
}

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
    /// A prediction without a band.
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// Id of the experiment.
    pub(crate) experiment: String,
    /// What was measured; unique within the experiment.
    pub(crate) quantity: String,
    /// Its unit.
    pub(crate) unit: String,
    /// What the document gives, where it gives a number.
    pub(crate) published: Option<f64>,
    /// What this implementation gives; none if it gave nothing finite.
    pub(crate) ours: Option<f64>,
    /// Ours over published, in percent of published.
    pub(crate) error_pct: Option<f64>,
    /// What it may be used for.
    pub(crate) kind: FigureKind,
    /// Lowest and highest acceptable value, in the unit of the quantity.
    pub(crate) band: Option<[f64; 2]>,
    /// Whether this figure is acceptable taken by itself.
    pub(crate) ok: bool,
    /// What the null model gives, in the unit of the quantity.
    pub(crate) null: Option<f64>,
    /// What a prediction with a band claims; none of every other figure.
    #[serde(rename = "strong", serialize_with = "is_strong")]
    pub(crate) claim: Option<Claim>,
    /// Where the mean over all seeds lies with a confidence of 95 %; none where one run gave the value.
    pub(crate) interval: Option<[f64; 2]>,
    /// What a sceptic says of it, in words.
    #[serde(skip)]
    pub(crate) sceptic: Sceptic,
    /// Why the number is what it is; for readers, not for programs.
    #[serde(skip)]
    pub(crate) note: Option<String>,
    /// Why it is known to lie outside the band.
    #[serde(skip)]
    pub(crate) known_miss: Option<String>,
    /// Where in the document the number stands.
    #[serde(skip)]
    pub(crate) source: String,
    /// Where it comes from.
    #[serde(skip)]
    pub(crate) role: Role,
}

impl Figure {
    /// Sets what was obtained beside what was expected.
    pub(crate) fn new(expected: &Expected, ours: f64) -> Figure {
        let value = ours.is_finite().then_some(ours);
        Figure {
            experiment: expected.experiment.clone(),
            quantity: expected.quantity.clone(),
            unit: expected.unit.clone(),
            published: expected.published,
            ours: value,
            error_pct: error_pct(expected.published, value),
            kind: expected.kind,
            band: expected.band,
            ok: acceptable(expected.kind, expected.band, value),
            null: expected.sceptic.null.as_ref().map(|null| null.value),
            claim: expected.band.filter(|_| expected.is_judged()).map(|band| expected.sceptic.claim(band)),
            interval: None,
            sceptic: expected.sceptic.clone(),
            note: expected.note.clone(),
            known_miss: expected.known_miss.clone(),
            source: expected.source.clone(),
            role: Role::Measured,
        }
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

    /// The null model's error, in percent of the published value.
    pub(crate) fn null_error_pct(&self) -> Option<f64> {
        error_pct(self.published, self.null)
    }

    /// What a reader is told about it.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.kind {
            _ if self.ours.is_none() => Verdict::Absent,
            FigureKind::Calibrated => Verdict::Fitted,
            FigureKind::Input | FigureKind::Prior => Verdict::Set,
            FigureKind::Prediction if self.band.is_none() => Verdict::Shown,
            FigureKind::Prediction => match (self.ok, &self.known_miss) {
                (true, None) => Verdict::InBand,
                (false, Some(_)) => Verdict::KnownMiss,
                (false, None) => Verdict::NowMisses,
                (true, Some(_)) => Verdict::NowInBand,
            },
        }
    }

    /// One line of the `--json` output.
    pub(crate) fn json_line(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            #[serde(flatten)]
            figure: &'a Figure,
            verdict: &'static str,
            claim: Option<Claim>,
        }
        let line = Line { figure: self, verdict: self.verdict().words(), claim: self.claim };
        serde_json::to_string(&line).expect("a figure has string keys and finite numbers only")
    }
}

/// In the JSON lines a claim is strong or not.
#[expect(clippy::trivially_copy_pass_by_ref, clippy::ref_option, reason = "serde hands over a reference to the field")]
fn is_strong<S: Serializer>(claim: &Option<Claim>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(*claim == Some(Claim::Strong))
}

/// Percent by which ours exceeds published; none where the document has no number, or zero.
fn error_pct(published: Option<f64>, ours: Option<f64>) -> Option<f64> {
    let published = published.filter(|value| *value != 0.0)?;
    Some((ours? - published) / published.abs() * 100.0)
}

/// The rule at the head of this file.
fn acceptable(kind: FigureKind, band: Option<[f64; 2]>, ours: Option<f64>) -> bool {
    let Some(value) = ours else { return false };
    match (kind, band) {
        (FigureKind::Prediction, Some([low, high])) => low <= value && value <= high,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::claim::NullModel;
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
            assert_eq!(Figure::new(&want, ours).ok, ok, "{ours}");
        }
    }

    #[test]
    fn what_is_no_prediction_must_only_be_finite() {
        let fitted = expected(FigureKind::Calibrated, Some(2.0), Some([1.0, 3.0]));
        assert!(Figure::new(&fitted, 99.0).ok);
        assert!(!Figure::new(&fitted, f64::INFINITY).ok);
        assert!(Figure::new(&expected(FigureKind::Prediction, None, None), 99.0).ok);
    }

    #[test]
    fn the_error_is_signed_and_absent_where_it_means_nothing() {
        let error = |published, ours| Figure::new(&expected(FigureKind::Prediction, published, None), ours).error_pct;
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

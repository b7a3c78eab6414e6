//! What a document leads one to expect of one figure: the published value, and how far from it ours may lie.

use serde::{Deserialize, Serialize};

use super::claim::Sceptic;

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
        self.judging_band().is_some()
    }

    /// The band in which our value must lie: that of a prediction alone, since nothing is claimed of other figures.
    pub(super) fn judging_band(&self) -> Option<[f64; 2]> {
        self.band.filter(|_| self.kind == FigureKind::Prediction)
    }
}

//! What a document leads one to expect of one figure: the published value, and how far from it ours may lie.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::claim::Sceptic;
use super::place::FilePosition;

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
    /// Shown beside what was published; the model claims nothing about it.
    Shown,
}

impl FigureKind {
    /// The word used in tables, TOML and JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            FigureKind::Input => "input",
            FigureKind::Calibrated => "calibrated",
            FigureKind::Prior => "prior",
            FigureKind::Prediction => "prediction",
            FigureKind::Shown => "shown",
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

/// The three ways of writing a band; at most one is used.
#[derive(Clone, Default, Deserialize)]
pub(super) struct RawBand {
    pub(super) band: Option<[f64; 2]>,
    pub(super) within_pct: Option<f64>,
    pub(super) within_factor: Option<f64>,
}

impl RawBand {
    /// The band in the unit of the quantity.
    pub(super) fn around(&self, place: &FilePosition<'_>, published: Option<f64>) -> Result<Option<[f64; 2]>> {
        let around = |key: &str, value: f64| {
            published.ok_or_else(|| place.of_key(key).error(key, value, "needs a published value to lie around"))
        };
        match (self.band, self.within_pct, self.within_factor) {
            (None, None, None) => Ok(None),
            (Some([low, high]), None, None) if low.is_finite() && high.is_finite() && low <= high => Ok(self.band),
            (Some(band), None, None) => {
                Err(place.of_key("band").error("band", format!("{band:?}"), "must be [low, high], finite, low <= high"))
            }
            (None, Some(pct), None) if pct > 0.0 && pct < 100.0 => {
                let value = around("within_pct", pct)?;
                let reach = value.abs() * pct / 100.0;
                Ok(Some([value - reach, value + reach]))
            }
            (None, Some(pct), None) => {
                Err(place.of_key("within_pct").error("within_pct", pct, "must be above 0 and below 100"))
            }
            (None, None, Some(factor)) if factor > 1.0 && factor.is_finite() => {
                let value = around("within_factor", factor)?;
                let (near, far) = (value / factor, value * factor);
                Ok(Some([near.min(far), near.max(far)]))
            }
            (None, None, Some(factor)) => {
                Err(place.of_key("within_factor").error("within_factor", factor, "must be above 1"))
            }
            _ => Err(place.error("band", "given more than once", "use one of band, within_pct, within_factor")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_around_a_negative_value_is_the_right_way_up() {
        let raw = RawBand { within_factor: Some(2.0), ..RawBand::default() };
        let place = FilePosition { file: "", text: "", byte: 0 };
        assert_eq!(raw.around(&place, Some(-1.0)).unwrap(), Some([-2.0, -0.5]));
    }
}

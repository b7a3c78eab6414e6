//! A band as it is written: its two ends, or so far around the published value.

use anyhow::Result;
use serde::Deserialize;

use super::place::FilePosition;

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

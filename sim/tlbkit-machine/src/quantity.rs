//! One number of a machine file: its value, what kind of knowledge it is, and where it came from.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use toml::Spanned;

/// What a number rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NumberKind {
    /// Set from a source.
    Input,
    /// Fitted to a published figure: that figure is then no prediction.
    Calibrated,
    /// Not measured, or not for this CPU: the band says how far it may be off.
    Prior,
}

/// A number with its origin.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(from = "Written")]
pub struct Quantity {
    /// The number.
    pub value: f64,
    /// What it rests on.
    pub kind: NumberKind,
    /// Where it came from.
    pub source: String,
    /// Lowest and highest value that the source allows; always there for a prior.
    pub band: Option<[f64; 2]>,
    /// Bytes of the file at which the value stands.
    pub(super) span: Range<usize>,
}

/// A quantity as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "{ value = NUMBER, kind = \"KIND\", source = \"WHERE FROM\" }")]
struct Written {
    value: Spanned<f64>,
    kind: NumberKind,
    source: String,
    #[serde(default, deserialize_with = "band")]
    band: Option<[f64; 2]>,
}

fn band<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[f64; 2]>, D::Error> {
    from.deserialize_seq(Band).map(Some)
}

/// A list that is no longer than a band: without this, what stands behind the second number would be passed over.
struct Band;

impl<'de> Visitor<'de> for Band {
    type Value = [f64; 2];

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("two numbers, the lowest and the highest")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<[f64; 2], A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = list.next_element()? {
            numbers.push(number);
        }
        <[f64; 2]>::try_from(numbers).map_err(|numbers| A::Error::invalid_length(numbers.len(), &self))
    }
}

impl From<Written> for Quantity {
    fn from(written: Written) -> Self {
        let Written { value, kind, source, band } = written;
        Self { span: value.span(), value: value.into_inner(), kind, source, band }
    }
}

impl Quantity {
    /// The value in whole cycles.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.value.round() as u64
    }

    /// The band, if it is none in which a number could lie.
    pub(super) fn wrong_band(&self) -> Option<[f64; 2]> {
        self.band.filter(|&[low, high]| !(0.0 <= low && low <= high && high.is_finite()))
    }

    /// The value as a count; limits were checked when the file was read.
    #[must_use]
    pub fn count(&self) -> usize {
        self.value as usize
    }
}

/// What a value must satisfy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    low: f64,
    high: f64,
    grain: Grain,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Grain {
    Whole,
    Any,
}

/// A number of things, or an amount in whole units, from `low` to `high`.
pub(super) const fn whole(low: u32, high: u32) -> Limit {
    Limit { low: low as f64, high: high as f64, grain: Grain::Whole }
}

/// Cycles: nothing on a CPU takes a tenth of a second.
pub(super) const fn cycles() -> Limit {
    Limit { low: 0.0, high: 1e8, grain: Grain::Any }
}

/// Cycles of one step of a translation: small enough for 32 bits of fixed point.
pub(super) const fn translation_cycles() -> Limit {
    Limit { low: 0.0, high: 1e5, grain: Grain::Any }
}

/// Numbers from `low` to `high`.
pub(super) const fn amount(low: f64, high: f64) -> Limit {
    Limit { low, high, grain: Grain::Any }
}

impl Limit {
    /// What is wrong with the quantity, if anything is.
    pub(super) fn complaint(self, quantity: &Quantity) -> Option<String> {
        let Self { low, high, grain } = self;
        let value = quantity.value;
        if !(low..=high).contains(&value) {
            return Some(format!("must be {low} to {high}"));
        }
        if grain != Grain::Any && value.fract() != 0.0 {
            return Some("must be a whole number".into());
        }
        if quantity.source.trim().is_empty() {
            return Some("needs a source".into());
        }
        match quantity.band {
            None if quantity.kind == NumberKind::Prior => Some("is a prior and needs a band".into()),
            Some([from, to]) if !(from..=to).contains(&value) => Some(format!("must be in its band {from} to {to}")),
            _ => None,
        }
    }
}

/// Declares a struct of quantities with the limit of each, and how to visit all of them by name.
macro_rules! quantities {
    ($(#[$about:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $limit:expr,)*
    } $(optional {
        $($(#[$odoc:meta])* $ofield:ident: $olimit:expr,)*
    })?) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$doc])* pub $field: Quantity,)*
            $($($(#[$odoc])* pub $ofield: Option<Quantity>,)*)?
        }

        impl $name {
            fn visit<'a>(&'a self, path: &str, each: &mut dyn FnMut(String, &'a Quantity, Limit)) {
                $(each(format!("{path}{}", stringify!($field)), &self.$field, $limit);)*
                $($(if let Some(quantity) = &self.$ofield {
                    each(format!("{path}{}", stringify!($ofield)), quantity, $olimit);
                })*)?
            }
        }
    };
}

pub(super) use quantities;

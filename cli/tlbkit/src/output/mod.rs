//! What a person sees: tables on a terminal, and one HTML file with its plots.
//!
//! [`report`] holds the plain data that a verb fills in; [`table`] and [`html`] turn figures into text, [`sheet`] makes
//! any other page, [`svg`] turns plots into drawings, [`number`] decides how many digits anybody sees, [`listing`]
//! prints the flush-size table, [`fitting`] cuts tables for a terminal, [`text`] makes text of others plain, [`file`]
//! puts what was made in its place, [`kind`] knows what stands there already, [`usage`] says what was typed wrongly.

pub(crate) mod file;
pub(crate) mod fitting;
pub(crate) mod html;
pub(crate) mod kind;
pub(crate) mod listing;
pub(crate) mod number;
mod page;
pub(crate) mod report;
pub(crate) mod sheet;
pub(crate) mod svg;
pub(crate) mod table;
pub(crate) mod usage;

//! What a person sees of a published result: a table on a terminal, and one HTML file with its plots.
//!
//! [`report`] holds the plain data that a verb fills in; [`table`] and [`html`] turn figures into text, [`number`] says
//! how many digits of them anybody sees, [`svg`] draws.

pub(crate) mod html;
pub(crate) mod number;
pub(crate) mod report;
pub(crate) mod svg;
pub(crate) mod table;

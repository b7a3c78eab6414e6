//! One verb, one file.

pub(crate) mod list;
pub(crate) mod reproduce;
pub(crate) mod run;

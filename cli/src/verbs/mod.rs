//! One verb, one file.

pub(crate) mod boot;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod list;
pub(crate) mod observe;
pub(crate) mod record;
pub(crate) mod replay;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod sweep;
pub(crate) mod tune;

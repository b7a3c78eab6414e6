//! What verbs share: what they name on the command line, and what they make of it.

pub(crate) mod compare;
pub(crate) mod difference;
pub(crate) mod draws;
pub(crate) mod mean;
pub(crate) mod named_run;
pub(crate) mod preset_kernel;
pub(crate) mod rank;
pub(crate) mod rests;
pub(crate) mod seeds;
pub(crate) mod spread;

//! What verbs share: how they speak, what they name on the command line, and what they make of it.

pub(crate) mod chosen;
pub(crate) mod compare;
pub(crate) mod difference;
pub(crate) mod draws;
pub(crate) mod jobs;
pub(crate) mod machine_file;
pub(crate) mod mean;
pub(crate) mod named_run;
pub(crate) mod nearest;
pub(crate) mod policy;
pub(crate) mod preset_kernel;
pub(crate) mod rank;
pub(crate) mod recording;
pub(crate) mod rests;
pub(crate) mod seeds;
pub(crate) mod spread;
pub(crate) mod stopping;
pub(crate) mod summary;
pub(crate) mod terminal;
pub(crate) mod trace;
pub(crate) mod trial;
pub(crate) mod watching;

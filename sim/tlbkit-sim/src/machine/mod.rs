//! Machines as data: what one CPU model has and costs, and where each number came from.
//!
//! The files in `sim/machines/` are part of the program, so it works wherever it is put; other files are read
//! the same way.
//! Wrong input gives one line that names the file, the line, the field, what it says and what it may say.

mod check;
mod code;
mod cold;
mod convert;
mod draw;
mod error;
mod files;
mod model;
mod noise;
mod paths;
mod quantity;

#[cfg(test)]
mod tests;

pub(crate) use code::{
    CallLines, CallQueueReads, CountedLruLists, Destinations, LinesOf, LooksAt, LruWork, ReadsGeneration,
};
pub use code::{Code, Sweep};
pub use cold::ColdModel;
pub use draw::{DrawnMachine, Prior, Priors};
pub use error::MachineError;
pub use model::{
    Apic, CacheLine, Caches, Cycles, Features, Guest, Index, MOST_CPUS, Machine, Psc, ReplacementPolicy, Size,
    Software, Switch, System, Tlb, TlbArray, Walk,
};
pub use noise::{Noise, NoiseModel};
pub(crate) use paths::Paths;
pub use quantity::{NumberKind, Quantity};

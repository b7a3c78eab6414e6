//! Machines as data: what one CPU model has and costs, and where each number came from.
//!
//! The files in `sim/machines/` are part of the program, so it works wherever it is put. Other files are read in the
//! same way. Wrong input gives one line that names the file, the line, the field, its value and what it may be.
//!
//! | file | what |
//! |---|---|
//! | `model`, `quantity` | the fields of a machine file; one number, with its kind, source and band |
//! | `files` | the built-in files, and files from the disk |
//! | `check`, `error` | what numbers may be; why there is no machine, in the words of a machine file |
//! | `shared` | numbers that hold for every machine |
#![forbid(unsafe_code)]

mod check;
mod error;
mod files;
mod model;
mod quantity;
mod shared;

#[cfg(test)]
mod tests;

pub use error::MachineError;
pub use model::{
    Apic, CacheLine, Caches, Cycles, Features, Guest, Index, MOST_CPUS, Machine, Psc, ReplacementPolicy, Size,
    Software, Switch, System, Tlb, TlbArray, Walk,
};
pub use quantity::{NumberKind, Quantity};
pub use shared::{ColdModel, Noise, NoiseModel};

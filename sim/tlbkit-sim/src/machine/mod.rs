//! Machines as data: what one CPU model has and costs, and where each number came from.
//!
//! The files in `sim/machines/` are part of the program, so it works wherever it is put; other files are read
//! the same way.
//! Wrong input gives one line that names the file, the line, the field, what it says and what it may say.

mod builtin;
mod check;
mod convert;
mod model;
mod paths;
mod quantity;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use model::{
    CacheLine, Cycles, Features, Guest, Index, MOST_CPUS, Machine, Psc, ReplacementPolicy, Size, Software, Switch,
    System, Tlb, TlbArray, Walk,
};
pub(crate) use paths::Paths;
pub use quantity::{Kind, Quantity};

/// Why a machine could not be had.
#[derive(Debug, Error)]
pub enum MachineError {
    /// No machine has this name.
    #[error("no machine is called {name}; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file says something that it may not say.
    #[error("{file}:{line}: {field} = {value}: {limit}")]
    Invalid {
        /// The file.
        file: String,
        /// Its line, from one.
        line: usize,
        /// The field.
        field: String,
        /// What it says.
        value: String,
        /// What it may say.
        limit: String,
    },
}

impl Machine {
    /// Names of the machines that are part of the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        builtin::FILES.iter().map(|&(name, _)| name)
    }

    /// A machine that is part of the program.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn builtin(name: &str) -> Result<Self, MachineError> {
        let file = builtin::FILES.iter().find(|&&(known, _)| known == name);
        let &(_, text) = file.ok_or_else(|| MachineError::Unknown {
            name: name.into(),
            known: Self::names().collect::<Vec<_>>().join(", "),
        })?;
        Self::parse(&format!("sim/machines/{name}.toml"), text)
    }

    /// A machine from a file.
    ///
    /// # Errors
    /// If the file cannot be read or says something wrong.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, MachineError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|source| MachineError::Read { path: path.into(), source })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Every number with its dotted name, in the order of the file: for reports that say what a figure rests on.
    #[must_use]
    pub fn quantities(&self) -> Vec<(String, &Quantity)> {
        let mut all = Vec::new();
        self.visit(&mut |name, quantity, _| all.push((name, quantity)));
        all
    }
}

//! Why a machine could not be had.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

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
        /// The answer of the operating system.
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
    /// The bands of a file exclude each other.
    #[error("{file}: a draw inside the bands hardly ever has {less} at most {more}, as the file has it")]
    Bands {
        /// The file.
        file: String,
        /// The number that is to be the lower one.
        less: &'static str,
        /// The other one.
        more: &'static str,
    },
}

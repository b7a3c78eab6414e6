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
    #[error("{file}:{line}: {}: {limit}", written(field, value.as_ref()))]
    Invalid {
        /// The file.
        file: String,
        /// Its line, from one.
        line: usize,
        /// The field.
        field: String,
        /// What it says, if it is there and says something.
        value: Option<String>,
        /// What it may say.
        limit: String,
    },
    /// The bands of a file exclude each other.
    #[error(
        "{file}:{line}: {} = {}: a draw inside the bands hardly ever has it at most {} = {}, as the file has it",
        less.0, less.1, more.0, more.1
    )]
    Bands {
        /// The file.
        file: String,
        /// The line of one of the two numbers, one that is drawn.
        line: usize,
        /// The number that is to be the lower one, and what the file says of it.
        less: (&'static str, f64),
        /// The other one.
        more: (&'static str, f64),
    },
}

fn written(field: &str, value: Option<&String>) -> String {
    value.map_or_else(|| field.to_owned(), |value| format!("{field} = {value}"))
}

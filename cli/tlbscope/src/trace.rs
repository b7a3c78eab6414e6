//! What every verb that reads a trace says of one that is missing, cut short, or without flushes.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Result, ensure};

/// The message for a trace without any flush: a replay could be judged by nothing, and there is nothing to explain.
pub(crate) const NO_FLUSH: &str =
    "No flush was recorded: the trace has no event tlb:tlb_flush, which `tlbscope record` asks for";

/// What is said with every answer about a trace whose reading `error` has ended early.
pub(crate) fn read_in_part(error: &impl Display) -> String {
    format!("READ IN PART ({error}): all figures are about the events before")
}

/// Refuses a trace that is not there, and says how one is made.
pub(crate) fn check_there(trace: &Path) -> Result<()> {
    let is_missing = fs::metadata(trace).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let name = trace.display();
    ensure!(!is_missing, "{name}: no such file; tlbscope record -o {name} -- COMMAND makes one");
    Ok(())
}

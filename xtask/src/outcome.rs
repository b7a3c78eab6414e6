//! How a step of `cargo xtask test` ended, and how a step that is one line of cargo's is run.

use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// How a step ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// It passed; the text says what was done, where that is not plain from the name.
    Ok(String),
    /// It could not be done here, for this reason.
    Skipped(String),
    /// It did not pass.
    Failed(String),
}

impl StepOutcome {
    /// The same, with `note` if it passed.
    pub(crate) fn noting(self, note: String) -> Self {
        match self {
            Self::Ok(_) => Self::Ok(note),
            other => other,
        }
    }
}

/// Runs one cargo command line in the root.
pub(crate) fn cargo(root: &Path, line: &str) -> Result<StepOutcome> {
    run(&mut cargo_command(root, line))
}

pub(crate) fn cargo_command(root: &Path, line: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args(line.split_whitespace()).current_dir(root);
    command
}

/// Runs a command to its end, its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<StepOutcome> {
    let status = command.status()?;
    Ok(if status.success() { StepOutcome::Ok(String::new()) } else { StepOutcome::Failed(status.to_string()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_a_failed_step() -> Result<()> {
        assert_eq!(run(&mut Command::new("true"))?, StepOutcome::Ok(String::new()));
        assert!(matches!(run(&mut Command::new("false"))?, StepOutcome::Failed(_)));
        Ok(())
    }
}

//! How a step of `cargo xtask test` ended, and how a step that is one line of cargo's is run.

use anyhow::Result;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// How many lines from a complaint on belong to it: they say where it is, and what was expected.
const LINES_OF_A_COMPLAINT: usize = 4;
/// How many lines of one step are repeated at most. Its whole output stands above the table.
const LINES_REPEATED_MAX: usize = 40;

/// How a step ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// The step passed. The text says what was done, if the name does not.
    Ok(String),
    /// The step could not be done here, for this reason.
    Skipped(String),
    /// The step did not pass.
    Failed(String),
}

impl StepOutcome {
    /// This outcome, with `note` if the step passed.
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

/// Runs a command to its end. Its output goes where ours goes; of a command that fails, the lines that say why are
/// kept as well, since a long run's log is often seen from its end only.
pub(crate) fn run(command: &mut Command) -> Result<StepOutcome> {
    run_into(command, io::stdout(), io::stderr())
}

/// Runs a command to its end, as [`run`] does. Its output goes to `out` and `err`.
fn run_into(command: &mut Command, out: impl Write + Send, err: impl Write + Send) -> Result<StepOutcome> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let [of_stdout, of_stderr] = thread::scope(|scope| {
        let stdout = scope.spawn(|| passed_on(stdout, out));
        let stderr = scope.spawn(|| passed_on(stderr, err));
        [stdout.join(), stderr.join()].map(|kept| kept.unwrap_or_default())
    });
    let status = child.wait()?;
    if status.success() {
        return Ok(StepOutcome::Ok(String::new()));
    }
    let why = [vec![status.to_string()], of_stderr, of_stdout].concat();
    Ok(StepOutcome::Failed(why.into_iter().take(LINES_REPEATED_MAX).collect::<Vec<_>>().join("\n    ")))
}

/// Passes each line on as it comes, and returns the complaints. If our own output is closed, nothing is passed on any
/// more, and the command is still read to its end.
fn passed_on(from: Option<impl Read>, mut to: impl Write) -> Vec<String> {
    let (mut complaints, mut belonging) = (Vec::new(), 0);
    let Some(from) = from else { return complaints };
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let _ = writeln!(to, "{line}");
        if line.starts_with("error") || line.contains(" panicked at ") {
            belonging = LINES_OF_A_COMPLAINT;
        }
        if belonging > 0 {
            belonging -= 1;
            complaints.push(line.into_owned());
        }
    }
    complaints
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

    #[test]
    fn a_failed_step_repeats_what_was_complained_of() -> Result<()> {
        let script = "echo one; echo 'error: no crate' >&2; echo ' --> a.rs:1' >&2; \
                      for i in 1 2 3; do echo $i >&2; done; echo \"thread 'a' panicked at b.rs:2\"; exit 3";
        // Into memory: in the log of a run such lines would be taken for its own.
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let ended = run_into(Command::new("sh").args(["-c", script]), &mut out, &mut err)?;
        let StepOutcome::Failed(why) = ended else { panic!("it failed") };
        let lines: Vec<&str> = why.lines().map(str::trim).collect();
        let complaints = ["error: no crate", "--> a.rs:1", "1", "2", "thread 'a' panicked at b.rs:2"];
        assert_eq!(lines, [&["exit status: 3"][..], &complaints].concat());
        assert_eq!(String::from_utf8(out)?, "one\nthread 'a' panicked at b.rs:2\n");
        assert_eq!(String::from_utf8(err)?, "error: no crate\n --> a.rs:1\n1\n2\n3\n");
        Ok(())
    }
}

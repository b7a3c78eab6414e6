//! `tlbscope try`: a command with and without a change, in turn, and whether the change is worth it.

mod trial;

use std::ffi::OsString;
use std::io::{self, Read};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use serde_json::json;
use tlbkit_host::trial::{Change, ENVIRONMENT, Journal, Outcome, Restored, Verdict};
use tlbkit_output::nearest::nearest;
use tlbkit_output::say;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format};

use trial::{TrialArguments, restored_text, table};

/// What to try, and on what.
#[derive(Args)]
#[command(after_help = "\
Changes:
  NAME=VALUE           an environment variable; GLIBC_TUNABLES, GODEBUG,
                       MALLOC_CONF and JDK_JAVA_OPTIONS keep what they say
  env:name=VALUE       the same, for a name with small letters
  no-huge-pages        prctl(PR_SET_THP_DISABLE) for the command
  wrapper=COMMAND      the command is started by another one
  thp=WORD             /sys/kernel/mm/transparent_hugepage/enabled
  thp-defrag=WORD      defrag beside it
  ceiling=PAGES        /sys/kernel/debug/x86/tlb_single_page_flush_ceiling
  numa-balancing=0|1   /proc/sys/kernel/numa_balancing

thp, thp-defrag, ceiling and numa-balancing are of the whole machine and need
root. They are put back after each run, whatever ends the trial.

Exit status: 0 yes, 1 no or cannot tell, 2 it could not be tried, 128 and the
number of a signal that stopped it.

Example: tlbscope try GLIBC_TUNABLES=glibc.malloc.hugetlb=1 -- ./service --once")]
pub(crate) struct TryArguments {
    /// What to change, all at once
    #[arg(value_name = "CHANGE", required_unless_present = "restore")]
    changes: Vec<String>,
    #[command(flatten)]
    trial: TrialArguments,
    /// Put back what a trial has left behind, and try nothing
    #[arg(long, conflicts_with_all = ["changes", "command"])]
    restore: bool,
    /// Wait for the end of standard input before that
    #[arg(long, hide = true, requires = "restore")]
    after_input: bool,
    /// The command; what it writes is thrown away, and it has nothing to read
    #[arg(last = true, required_unless_present = "restore")]
    command: Vec<OsString>,
}

/// How long a guardian waits until the one that it guards, whose end it has seen, has let go of the machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tries it.
pub(crate) fn execute(arguments: &TryArguments, format: Format) -> Result<Ending> {
    // From here on no signal ends this program before it has put the machine back.
    let stopping = Stopping::listen()?;
    arguments.trial.check()?;
    if arguments.restore {
        return restore(arguments, format);
    }
    let changes = arguments.changes.iter().map(|text| change(text)).collect::<Result<Vec<_>>>()?;
    for (at, change) in changes.iter().enumerate() {
        let again = changes[..at].iter().find(|before| before.is_of_same(change));
        ensure!(
            again.is_none(),
            "{change}: {} is named before; want each setting once",
            again.map_or("", Change::name)
        );
    }
    let tried = arguments.trial.attempt(&changes, &arguments.command, &stopping)?;
    match (format, &tried.outcome) {
        (Format::Json, _) => arguments.trial.json(&tried).iter().for_each(|row| say!("{row}")),
        (Format::Text, Outcome::Tried(trial)) => {
            say!("{}\n{}", arguments.trial.sentence(&tried), table(trial));
            for change in arguments.trial.kept(&tried) {
                say!("to keep it:  {}", change.to_keep());
            }
            say!("to undo it:  nothing to do, the machine is as it was");
        }
        (Format::Text, _) => say!("{}", arguments.trial.sentence(&tried)),
    }
    Ok(match arguments.trial.verdict(&tried) {
        None => stopping.ending(),
        // What a signal ended may have been meddled with as well.
        Some(_) if stopping.is_wanted() && matches!(tried.outcome, Outcome::Meddled(_)) => stopping.ending(),
        Some(Verdict::Yes) => Ending::AsExpected,
        Some(Verdict::No | Verdict::CannotTell) => Ending::NotAsExpected,
    })
}

/// The change that `text` names, or else the one that was meant.
fn change(text: &str) -> Result<Change> {
    ensure!(!text.is_empty(), "a change is empty; see tlbscope try --help");
    text.parse().map_err(|error: tlbkit_host::Error| {
        let name = text.split('=').next().unwrap_or_default();
        let value = &text[name.len()..];
        // Names of environment variables may be short, and part of another.
        let meant = nearest(name, Change::names()).filter(|meant| *meant != name && name.len() > 2);
        let variable =
            if value.is_empty() { String::new() } else { format!(" or, for a variable, {ENVIRONMENT}{text}?") };
        let meant = meant.map(|meant| anyhow!("{text}: no change {name}; did you mean {meant}{value}?{variable}"));
        meant.unwrap_or_else(|| error.into())
    })
}

/// Puts back what was left behind.
fn restore(arguments: &TryArguments, format: Format) -> Result<Ending> {
    if arguments.after_input {
        io::stdin().read_to_end(&mut Vec::new()).context("waiting")?;
    }
    let root = &arguments.trial.root;
    let patience = if arguments.after_input { PATIENCE } else { Duration::ZERO };
    let is_left = Journal::is_left(root);
    let restored = if is_left { Journal::open_within(root, patience)?.restore()? } else { Vec::new() };
    if restored.is_empty() && format == Format::Text {
        say!("nothing to put back");
    }
    for one in &restored {
        match format {
            Format::Text => say!("{}", restored_text(one)),
            Format::Json => {
                let (entry, is_before) = match one {
                    Restored::PutBack(entry) | Restored::AlreadyBack(entry) => (entry, true),
                    Restored::LeftAlone { entry, .. } => (entry, false),
                };
                say!("{}", json!({"file": entry.path, "before": entry.before, "is_as_before": is_before}));
            }
        }
    }
    Ok(Ending::AsExpected)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is aligned by hand, which a second wrapping would undo.
    #[test]
    fn the_list_of_changes_fits_where_help_is_wrapped() {
        let help = TryArguments::augment_args(clap::Command::new("try")).get_after_help().unwrap().to_string();
        assert!(help.starts_with("Changes:\n") && help.lines().all(|line| line.len() <= 80), "{help}");
    }
}

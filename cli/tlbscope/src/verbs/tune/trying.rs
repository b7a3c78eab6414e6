//! `tune --try`: the parts of the way from a command to the settings that held on it.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;
use tlbkit_host::recorder::available;
use tlbkit_host::trial::{Change, Outcome, Verdict};
use tlbkit_output::say;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_trace::EVENTS;

use super::advice::Tuned;
use crate::recording::{Gaps, MEGABYTES_MAX, Recording};
use crate::trial::{TrialArguments, Tried, names, table};
use crate::watching::WatchArguments;

/// Settings that are tried.
const BEST: usize = 3;

/// How to get more of a recording.
const MORE: &str = "tlbscope record --megabytes-max makes a longer recording, which tune --try takes before --";

/// Records the command into `output`; its process. Says what the recording lacks: the ranking is made of it.
pub(super) fn record(command: &[OsString], output: &Path, format: Format) -> Result<Option<i32>> {
    let available = available(EVENTS)?;
    let subject = WatchArguments::of_command(command);
    let recording = Recording {
        subject: &subject,
        output,
        megabytes_max: MEGABYTES_MAX,
        available: &available,
        // What the command writes goes to standard error, also for a person: it comes once, and is no answer.
        format: Format::Json,
    };
    let recorded = recording.make()?;
    let gaps = Gaps::of(&recorded);
    match format {
        Format::Json => say!("{}", gaps.json()),
        Format::Text => gaps.lines(MORE).iter().for_each(|line| say!("{line} (the trials run the command whole)")),
    }
    let run = recorded.run;
    let status = run.status;
    ensure!(
        status.is_none_or(|status| status == 0),
        "the command ended with status {}, so no setting is tried on it: it must end with 0",
        status.unwrap_or(0)
    );
    Ok(run.pid)
}

/// Tries the best settings, and tells which held.
pub(super) fn try_best(
    tuned: &Tuned,
    command: &[OsString],
    trial: &TrialArguments,
    stopping: &Stopping,
    format: Format,
) -> Result<Ending> {
    let candidates: Vec<_> = tuned.candidates().into_iter().take(BEST).collect();
    if candidates.is_empty() && format == Format::Text {
        say!("\nNothing to try: no setting that can be tried may gain.");
    }
    let mut held = Vec::new();
    for advice in candidates {
        let changes = advice.setting.change.as_slice();
        let tried = match trial.attempt(changes, command, stopping) {
            Ok(tried) => tried,
            Err(error) => {
                tell_untried(changes, &format!("{error:#}"), format);
                continue;
            }
        };
        print_tried(trial, &tried, format);
        match trial.verdict(&tried) {
            None => return Ok(stopping.ending()),
            Some(Verdict::Yes) => held.push(tried),
            Some(Verdict::No | Verdict::CannotTell) => {}
        }
    }
    if format == Format::Text {
        say!("{}", if held.is_empty() { "Nothing held." } else { "What held, and how to keep it:" });
        for change in held.iter().flat_map(|tried| &tried.changes) {
            say!("    {}", change.to_keep());
        }
    }
    Ok(if held.is_empty() { Ending::NotAsExpected } else { Ending::AsExpected })
}

fn tell_untried(changes: &[Change], error: &str, format: Format) {
    let changes = names(changes);
    match format {
        Format::Json => say!("{}", json!({"kind": "untried", "changes": [changes], "error": error})),
        Format::Text => say!("\nNot tried: {changes}: {error}"),
    }
}

fn print_tried(trial: &TrialArguments, tried: &Tried, format: Format) {
    match (format, &tried.outcome) {
        (Format::Json, _) => trial.json(tried).iter().for_each(|row| say!("{row}")),
        (Format::Text, Outcome::Tried(all)) => say!("\n{}\n{}", trial.sentence(tried), table(all)),
        (Format::Text, _) => say!("\n{}", trial.sentence(tried)),
    }
}

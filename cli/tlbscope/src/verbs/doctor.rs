//! `tlbscope doctor`: what this machine allows, and the command for each lack.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use tlbkit_host::examination::{Finding, State, examine};
use tlbkit_output::say;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_trace::EVENTS;

use crate::machine::check_root;

/// Which machine to look at.
#[derive(Args)]
#[command(after_help = "Exit status: 0 nothing is lacking, 1 something is, 2 wrong usage.\n\nExample: tlbscope doctor")]
pub(crate) struct DoctorArguments {
    /// The folder with this machine's sys, proc and run, for containers that have them elsewhere
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    root: PathBuf,
}

/// Looks, and tells.
pub(crate) fn execute(arguments: &DoctorArguments, format: Format) -> Result<Ending> {
    check_root(&arguments.root)?;
    let findings = examine(&arguments.root, EVENTS);
    for finding in &findings {
        match format {
            Format::Json => say!("{}", json!(finding)),
            Format::Text => say!("{}", text(finding)),
        }
    }
    let is_well = findings.iter().all(|finding| finding.state != State::Lacking);
    Ok(if is_well { Ending::AsExpected } else { Ending::NotAsExpected })
}

fn text(finding: &Finding) -> String {
    let Finding { what, state, found, run, needed_for } = finding;
    let (mark, purpose) = match state {
        State::Fine => ("ok     ", String::new()),
        State::Lacking => ("LACKING", format!(" (needed for {needed_for})")),
        State::Note => ("note   ", String::new()),
    };
    let run = run.as_ref().map(|run| format!("\n             run: {run}")).unwrap_or_default();
    format!("{mark}  {what}: {found}{purpose}{run}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_says_what_needs_it_and_what_to_run() {
        let lacking = Finding {
            what: "tracefs",
            state: State::Lacking,
            found: "not mounted".into(),
            run: Some("mount it".into()),
            needed_for: "record",
        };
        assert_eq!(text(&lacking), "LACKING  tracefs: not mounted (needed for record)\n             run: mount it");
        let fine = Finding { state: State::Fine, run: None, ..lacking };
        assert_eq!(text(&fine), "ok       tracefs: not mounted");
    }
}

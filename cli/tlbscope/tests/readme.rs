//! README.md is true: every command of `tlbscope` in its `sh` blocks is run.

#[path = "command/not_here.rs"]
mod not_here;
#[path = "../../tlbkit/tests/command/readme.rs"]
mod readme;

use not_here::is_not_here;
use readme::{commands_of_readme, faults, own};

/// What a reader types to run the command from a clone.
const FROM_CLONE: &str = "cargo run --release -p tlbscope -- ";
/// What needs tracepoints.
const LIVE: &[&str] = &["tlbscope top ", "tlbscope record "];
/// The recording that is made with them, and what is said of it where it could not be made.
const RECORDING: (&str, &str) = ("load.tlbtrace", "tlbscope: load.tlbtrace: no such file");

/// Whether what `line` says means that this host lets nobody trace.
fn is_excused(line: &str, text: &str) -> bool {
    let (recording, no_recording) = RECORDING;
    (LIVE.iter().any(|live| line.starts_with(live)) && is_not_here(text))
        || (line.contains(recording) && text.starts_with(no_recording))
}

#[test]
fn every_command_of_the_readme_works() {
    let lines: Vec<_> =
        commands_of_readme().iter().filter_map(|command| own(command, "tlbscope", FROM_CLONE)).collect();
    let faults = faults(&lines, env!("CARGO_BIN_EXE_tlbscope"), is_excused);
    assert!(!lines.is_empty() && faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn only_what_this_host_does_not_allow_is_excused() {
    assert!(is_excused("tlbscope record -o load.tlbtrace -- ls", "tlbscope: no program perf; run: this"));
    assert!(!is_excused("tlbscope record --stack", "error: unexpected argument '--stack' found"));
    assert!(is_excused("tlbscope explain load.tlbtrace", "tlbscope: load.tlbtrace: no such file or directory"));
    assert!(!is_excused("tlbscope explain load.tlbtrace", "tlbscope: load.tlbtrace: no trace"));
}

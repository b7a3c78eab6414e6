//! `check` as somebody types it.

mod command;

use std::fs;
use std::path::{Path, PathBuf};

use command::{run, text};
use serde_json::Value;

/// Where a test may put a file that is not there yet.
fn scratch(name: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    _ = fs::remove_file(&file);
    file
}

#[test]
fn a_clean_seed_that_is_run_again_is_traced_step_by_step() {
    let trace = scratch("clean.json");
    let said = text(&["check", "--replay", "2398", "--trace", trace.to_str().unwrap()]);
    assert!(said.starts_with("seed 2398: nothing found in ") && said.contains("\nits trace: "), "{said}");
    let events: Value = serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
    let events = events.as_array().or(events["traceEvents"].as_array()).unwrap();
    let steps: usize = said.split(' ').find_map(|word| word.parse().ok()).unwrap();
    assert!(events.len() > 100 && steps > 100, "{} events: {said}", events.len());
}

#[test]
fn seeds_in_which_nothing_is_found_leave_no_trace_and_say_so() {
    let trace = scratch("none.json");
    let output = run(&["check", "--seeds", "8", "--trace", trace.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = "tlbkit: no trace is written, as nothing was found; --replay SEED writes one of any seed\n";
    assert_eq!((said.as_ref(), output.status.code(), trace.exists()), (expected, Some(0), false));
}

#[test]
fn portions_have_together_the_seeds_of_all_families() {
    assert!(text(&["check", "--seeds", "2050"]).starts_with("nothing found in 5644 seeds, "));
    let named = text(&["check", "--seeds", "2050", "--program", "unmap-1-page"]);
    assert!(named.starts_with("nothing found in 2050 seeds, "), "{named}");
}

#[test]
fn what_would_be_ignored_is_refused() {
    for (line, part) in [
        ("check --bound 3", "were not provided:\n  --program <NAME>\n  --exhaustive"),
        ("check --seeds 8 --replay 3", "'--seeds <SEEDS>' cannot be used with '--replay <SEED>'"),
        ("check --seeds 8 --exhaustive --program unmap-1-page", "'--seeds <SEEDS>' cannot be used with '--exhaustive'"),
        ("check --replay 3 --exhaustive --program unmap-1-page", "'--replay <SEED>' cannot be used with"),
    ] {
        let output = run(&line.split(' ').collect::<Vec<_>>());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(part), "{line}: {said}");
        assert_eq!(output.status.code(), Some(2), "{line}");
    }
}

//! `reproduce` as somebody types it, and stops it.

mod command;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use command::{run, text};
use serde_json::Value;

/// Reproduces two experiments with a report in `folder`, presses Ctrl-C when the first one is done and the second is
/// not, and gives what it says and its exit status.
fn interrupted(folder: &str) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tlbkit"));
    command.args(["--json", "reproduce", "pcid", "range", "--report", folder]);
    let mut reproducing = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    // Kept open: a pipe that nobody reads would end it as well.
    let mut printed = BufReader::new(reproducing.stdout.take().unwrap());
    printed.read_line(&mut line).unwrap();
    Command::new("kill").args(["-INT", &reproducing.id().to_string()]).status().unwrap();
    let output = reproducing.wait_with_output().unwrap();
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

/// What [`interrupted`] is to give.
fn said(folder: &str) -> (String, Option<i32>) {
    let far = "1 of 2 experiments are done, and no report is written";
    let rest = format!("for the others: tlbkit reproduce range --report {folder}");
    (format!("tlbkit: interrupted: {far}; {rest}\n"), Some(130))
}

#[test]
fn an_interrupted_run_leaves_no_folder_without_a_report() {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reproduce-interrupted");
    fs::remove_dir_all(&made).unwrap_or_default();
    let folder = made.join("report");
    let folder = folder.to_str().unwrap();
    assert_eq!(interrupted(folder), said(folder));
    assert!(!made.exists());
}

#[test]
fn a_report_that_is_there_is_replaced_by_a_whole_one_only() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reproduce");
    fs::create_dir_all(&folder).unwrap();
    let (report, all) = (folder.join("pcid-range.html"), folder.join("index.html"));
    let before = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>whole";
    fs::write(&report, before).unwrap();
    fs::write(&all, "all of them").unwrap();
    let folder = folder.to_str().unwrap();
    assert_eq!(interrupted(folder), said(folder));
    assert_eq!(fs::read_to_string(&report).unwrap(), before);

    // Known misses are no failure.
    let rows = text(&["--json", "reproduce", "pcid", "pcid", "--report", folder]);
    let verdicts: Vec<_> =
        rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap()["verdict"].clone()).collect();
    assert!(verdicts.contains(&"in band".into()) && verdicts.contains(&"known miss".into()), "{verdicts:?}");
    let page = fs::read_to_string(Path::new(folder).join("pcid.html")).unwrap();
    assert!(page.contains("<code>tlbkit reproduce pcid</code>") && page.ends_with("</html>"), "{page}");
    assert_eq!(fs::read_to_string(&all).unwrap(), "all of them", "less does not replace more");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.contains("part")).count(), 0);
}

#[test]
fn an_unknown_experiment_is_answered_with_the_nearest_one() {
    for (name, answer) in [
        ("pcdi", "no experiment pcdi; did you mean pcid? see tlbkit list experiments"),
        ("vms", "no experiment vms; see tlbkit list experiments"),
        ("", "the experiment name is empty (a comma too many?); see tlbkit list experiments"),
    ] {
        let output = run(&["reproduce", name]);
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("tlbkit: {answer}\n"));
        assert_eq!(output.status.code(), Some(2));
    }
}

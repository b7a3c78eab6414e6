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

/// A cheap experiment on three machines drawn from its file.
const DRAWN: [&str; 4] = ["reproduce", "concurrent", "--priors", "3"];

fn rows(arguments: &[&str]) -> Vec<Value> {
    let lines = text(&[arguments, &["--json"]].concat());
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_figure_has_a_value_for_each_draw_and_a_draw_is_the_machine_that_run_draws() {
    let all = rows(&DRAWN);
    let draws: Vec<_> = all.iter().filter(|row| row["priors"].is_object()).collect();
    let run = ["run", "madvise1", "--cpus", "1", "--milliseconds", "1", "--policy", "tlbkit", "--priors", "3"];
    let of_run = rows(&[&run[..], &["--machine", "haswell-2019"]].concat());
    let of_run = of_run.iter().filter(|row| row["priors"].is_object());
    assert!(draws.len() == 3 && of_run.map(|row| &row["priors"]).eq(draws.iter().map(|row| &row["priors"])));

    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reproduce-priors");
    let own = rows(&["reproduce", "concurrent", "--report", folder.to_str().unwrap()]);
    let figures: Vec<_> = all.iter().filter(|row| row["quantity"].is_string()).collect();
    assert_eq!(figures.len(), own.len());
    for (figure, own) in figures.iter().zip(&own) {
        assert!(["quantity", "ours", "verdict"].iter().all(|key| figure[key] == own[key]), "{figure} {own}");
        let values: Vec<_> = figure["draws"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        assert!(values.len() == 3 && values.iter().all(|&value| Some(value) != own["ours"].as_f64()), "{figure}");
        let inside = |low, high, value| low <= value && value <= high;
        let [low, high] = ["low", "high"].map(|end| figure["spread"][end].as_f64().unwrap());
        let is_held = inside(low, high, own["published"].as_f64().unwrap());
        assert_eq!(figure["published_in_range"], is_held, "{figure}");
        let [least, most] = [0, 1].map(|end| own["band"][end].as_f64().unwrap());
        let in_band = values.iter().filter(|&&value| inside(least, most, value)).count();
        assert_eq!(figure["draws_in_band"], in_band, "{figure}");
    }
    assert_eq!(all.last().unwrap()["fit_repeated"], false);
}

#[test]
fn a_table_of_draws_is_the_same_each_time_and_says_what_was_not_drawn() {
    let table = text(&DRAWN);
    assert_eq!(table, text(&DRAWN));
    let heading = "on haswell-2019 and 3 machines drawn from its file, each with seeds of its own";
    assert_eq!(table.lines().nth(1), Some(heading), "{table}");
    let row = table.lines().find(|line| line.starts_with("| time, threads 2, concurrent over serial [%] ")).unwrap();
    assert!(row.contains("|    -14.70 | -4.54 ") && row.contains(" no |  0 of 3 |         weak |"), "{row}");
    let summary = table.lines().find(|line| line.starts_with("| concurrent  ")).unwrap();
    assert!(summary.contains(" of 6 | ") && summary.contains(" of 3 | "), "tautological ones do not count: {summary}");
    assert!(table.contains("\n| concurrent: time, threads 2, concurrent over serial [%] "), "{table}");
    assert!(table.contains("the fit is not repeated for each draw"), "{table}");
    assert!(table.contains("| range of the draws | ") && table.contains("| the range of all draws | "), "{table}");
}

/// Ctrl-C when the first experiment is done and the second, which takes many times as long, is not.
#[test]
fn draws_that_are_done_are_summed_up_when_it_is_interrupted() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tlbkit"));
    command.args(["--json", "reproduce", "concurrent", "milan", "--priors", "2"]);
    let mut reproducing = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(reproducing.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = printed.next().unwrap();
    Command::new("kill").args(["-INT", &reproducing.id().to_string()]).status().unwrap();
    let rows: Vec<Value> = printed.map(|line| serde_json::from_str(&line).unwrap()).collect();
    let output = reproducing.wait_with_output().unwrap();
    assert!(first.starts_with("{\"draw\":1,\"experiment\":\"concurrent\""), "{first}");
    let [.., summary, last] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(
        (&summary["published_in_range"]["strong"]["of"], &last["missing"]),
        (&6.into(), &"without milan".into())
    );
    let said = "tlbkit: interrupted: without milan; for the rest: tlbkit reproduce milan --priors 2\n";
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), (said, Some(130)));
}

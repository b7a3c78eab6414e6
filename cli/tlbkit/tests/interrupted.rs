//! `run` and `check` when somebody presses Ctrl-C in the middle: what is done is not lost.

#[path = "command/signalled.rs"]
mod signalled;
#[path = "command/terminal.rs"]
mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use pty_process::blocking::Command as OnTerminal;
use serde_json::Value;
use signalled::end;
use terminal::Terminal;

const TLBKIT: &str = env!("CARGO_BIN_EXE_tlbkit");

/// A separate empty folder for a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupted").join(name);
    fs::remove_dir_all(&folder).unwrap_or_default();
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// How many steps the bar on a terminal has behind it, at the end of what was drawn.
fn steps(drawn: &str) -> Option<u32> {
    let before = drawn.rsplit_once("/2000")?.0;
    before.rsplit(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Runs 2000 runs on a terminal, one at a time, presses Ctrl-C as soon as some are done, and gives what then stands in
/// `file`, to which standard output goes, and on the terminal. The status must be that of a command ended by Ctrl-C.
fn run_and_interrupt(file: &Path, options: &str) -> [String; 2] {
    let (terminal, pts) = Terminal::open(pty_process::Size::new(24, 120));
    let run = "run madvise1 --machine recent-bare --policy linux-6.18,tlbkit --cpus 2 --milliseconds 5";
    let line = format!("exec '{}' {run} {options} > '{}'", env!("CARGO_BIN_EXE_tlbkit"), file.display());
    let command = OnTerminal::new("sh").args(["-c", &line]).env("TERM", "xterm").env("RAYON_NUM_THREADS", "1");
    let mut running = command.spawn(pts).unwrap();
    let (mut seen, mut is_pressed) = (String::new(), false);
    let status = thread::scope(|scope| {
        scope.spawn(|| {
            terminal.look(|bytes| {
                seen += &String::from_utf8_lossy(bytes);
                if !is_pressed && steps(&seen) > Some(2) {
                    terminal.press_ctrl_c();
                    is_pressed = true;
                }
            });
        });
        let status = running.wait().unwrap();
        terminal.mark_end();
        status
    });
    assert_eq!(status.code(), Some(130), "{seen}");
    [fs::read_to_string(file).unwrap(), seen]
}

#[test]
fn a_table_has_the_seeds_that_are_done() {
    let [table, seen] = run_and_interrupt(&folder("table").join("out"), "--seeds 1000");
    assert!(seen.contains("tlbkit: interrupted: ") && seen.contains(" of 2000 runs are done"), "{seen}");
    let score = table.lines().find(|line| line.contains("score a second")).unwrap();
    assert_eq!(score.matches("+-").count(), 2, "{score}");
    let said = table.lines().last().unwrap();
    assert!(said.starts_with("INTERRUPTED: of 1000 seeds linux-6.18 has "), "{said}");
}

#[test]
fn rows_are_those_of_the_runs_that_are_done_and_the_last_says_that_some_lack() {
    let [lines, _] = run_and_interrupt(&folder("rows").join("out"), "--seeds 1000 --json");
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let done = rows.iter().filter(|row| row["outcome"].is_object()).count();
    let last = rows.last().unwrap();
    assert_eq!((&last["interrupted"], &last["of"]), (&true.into(), &2000.into()), "{last}");
    assert_eq!(last["runs"].as_u64(), Some(done as u64));
    let means: Vec<_> = rows.iter().filter(|row| row["means_of"].is_string()).collect();
    let seeds: Vec<_> = means.iter().map(|row| row["seeds"].as_u64().unwrap()).collect();
    assert_eq!((seeds.len(), seeds.iter().sum::<u64>()), (2, done as u64));
    assert!(seeds[0].abs_diff(seeds[1]) <= 1, "policies are done side by side: {seeds:?}");
}

/// With a row in it the folder is as if the command had been ended by a signal after that one.
#[test]
fn what_is_kept_is_not_run_again() {
    let folder = folder("kept");
    let runs = |seeds| {
        let line = format!("run madvise1 --policy tlbkit --cpus 2 --milliseconds 1 --seeds {seeds} --keep rows");
        let output = Command::new(TLBKIT).args(line.split(' ')).args(["--shard", "1/1"]).current_dir(&folder).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert_eq!(runs(1), "rows: 1 runs, 1 of them run now\n");
    assert_eq!(runs(3), "rows: 3 runs, 2 of them run now\n");
    assert_eq!(runs(3), "rows: 3 runs, 0 of them run now\n");
}

#[test]
fn an_interrupted_run_that_keeps_rows_says_that_it_goes_on() {
    let folder = folder("goes-on");
    let keep = format!("--seeds 1000 --keep '{}'", folder.join("rows").display());
    let [_, seen] = run_and_interrupt(&folder.join("out"), &keep);
    let told = seen.split("tlbkit: interrupted: ").nth(1).unwrap();
    assert!(told.contains("; the same command goes on from there"), "{seen}");
    let done: usize = told.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(fs::read_dir(folder.join("rows")).unwrap().count(), done);
}

#[test]
fn a_check_says_how_many_seeds_are_done() {
    let here = folder("check");
    let [table, said] = end(TLBKIT, "check --seeds 1000000000", &here, "-TERM", 143);
    let done = said.strip_prefix("tlbkit: interrupted: ").unwrap().split(' ').next().unwrap();
    let rest = format!("{done} of --seeds 1000000000 are done, and nothing was found in them\n");
    assert_eq!(said, format!("tlbkit: interrupted: {rest}"));
    let done: u64 = done.parse().unwrap();
    assert!(
        table.starts_with(&format!("nothing found in {} seeds, ", done + 4 * (done / 4) + 6 * (done / 8))),
        "{table}"
    );
    let [row, _] = end(TLBKIT, "--json check --seeds 1000000000", &here, "-HUP", 129);
    let row: Value = serde_json::from_str(&row).unwrap();
    assert_eq!((&row["interrupted"], &row["seed"]), (&true.into(), &Value::Null), "{row}");
}

#[test]
fn an_exploration_says_how_many_runs_are_done() {
    let all = "check --exhaustive --program dontneed-1-page --bound 255";
    let [table, said] = end(TLBKIT, all, &folder("exhaustive"), "-INT", 130);
    assert!(table.ends_with(" s: not all explored, nothing found\n"), "{table}");
    let told = " runs are done, and nothing was found in them\n";
    assert!(said.starts_with("tlbkit: interrupted: ") && said.ends_with(told), "{said}");
}

//! `run`, `sweep run` and `check` when somebody presses Ctrl-C in the middle: what is done is not lost.

#[path = "command/signalled.rs"]
mod signalled;
#[path = "command/terminal.rs"]
mod terminal;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use pty_process::blocking::Command as OnTerminal;
use serde_json::Value;
use signalled::end;
use terminal::Terminal;

const TLBKIT: &str = env!("CARGO_BIN_EXE_tlbkit");

/// An empty folder of its own for a test.
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

#[test]
fn a_sweep_says_how_far_it_came_and_goes_on_from_there() {
    let folder = folder("sweep");
    let tlbkit = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tlbkit"));
        command.args(line.split(' ')).current_dir(&folder).env("RAYON_NUM_THREADS", "1");
        command
    };
    let seeds: Vec<_> = (1..=40).map(|seed: u32| seed.to_string()).collect();
    let plan = format!("sweep plan madvise1 --policy tlbkit --cpus 2 --milliseconds 20 --seed {}", seeds.join(","));
    let status = tlbkit(&plan).stdout(File::create(folder.join("plan")).unwrap()).status().unwrap();
    assert!(status.success());

    let running = tlbkit("sweep run plan").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let rows = || fs::read_to_string(folder.join("plan.1-of-1")).unwrap_or_default().lines().count();
    while rows() == 0 {
        thread::sleep(Duration::from_millis(2));
    }
    Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap();
    let output = running.wait_with_output().unwrap();
    let said =
        format!("tlbkit: interrupted: plan.1-of-1 has {} of 40 points; the same command goes on from there\n", rows());
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), (said.as_str(), Some(130)));
    assert_eq!((output.stdout.len(), rows() < 40), (0, true));
    let left = 40 - rows();
    let output = tlbkit("sweep run plan").output().unwrap();
    let said = format!("plan.1-of-1: 40 points, {left} of them run now\n");
    assert_eq!((String::from_utf8_lossy(&output.stdout).as_ref(), rows()), (said.as_str(), 40));
}

#[test]
fn a_check_says_how_many_seeds_are_done() {
    let here = folder("check");
    let [table, said] = end(TLBKIT, "check --seeds 1000000000", &here, "-TERM", 143);
    let done = said.strip_prefix("tlbkit: interrupted: ").unwrap().split(' ').next().unwrap();
    let rest = format!("{done} of --seeds 1000000000 are done, and nothing was found in them\n");
    assert_eq!(said, format!("tlbkit: interrupted: {rest}"));
    let done: u64 = done.parse().unwrap();
    assert!(table.starts_with(&format!("nothing found in {} seeds, ", done + done / 4)), "{table}");
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

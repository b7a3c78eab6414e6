//! `run`, `sweep run`, `check`, `calibrate` and `record --light` when somebody presses Ctrl-C in the middle: what is
//! done is not lost.

#[path = "command/terminal.rs"]
mod terminal;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pty_process::blocking::Command as OnTerminal;
use serde_json::Value;
use terminal::Terminal;

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
fn draws_are_the_first_ones_that_are_done_under_every_policy() {
    let [table, _] = run_and_interrupt(&folder("draws").join("out"), "--priors 500");
    let said = table.lines().last().unwrap();
    assert!(said.starts_with("INTERRUPTED: only the first ") && said.ends_with(" of 500 draws"), "{said}");
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

/// How long a command may take until it listens, however busy the machine: it only ends a hang.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether a process has a handler for SIGINT: it listens from then on.
fn is_listening(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    u64::from_str_radix(caught.trim(), 16).unwrap() >> 1 & 1 == 1
}

/// Ends a command by a signal as soon as it listens, and gives what it wrote to standard output and error.
fn end(line: &str, folder: &Path, signal: &str, status: i32) -> [String; 2] {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tlbkit"));
    let command = command.args(line.split(' ')).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let started = Instant::now();
    while !is_listening(running.id()) {
        if started.elapsed() > PATIENCE {
            running.kill().unwrap();
        }
        assert!(running.try_wait().unwrap().is_none(), "{line} ended without a look at signals");
        thread::sleep(Duration::from_millis(2));
    }
    Command::new("kill").args([signal, &running.id().to_string()]).status().unwrap();
    let output = running.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(status), "{line}: {said:?}");
    said
}

#[test]
fn a_check_says_how_many_seeds_are_done() {
    let here = folder("check");
    let [table, said] = end("check --seeds 1000000000", &here, "-TERM", 143);
    let done = said.strip_prefix("tlbkit: interrupted: ").unwrap().split(' ').next().unwrap();
    let rest = format!("{done} of --seeds 1000000000 are done, and nothing was found in them\n");
    assert_eq!(said, format!("tlbkit: interrupted: {rest}"));
    let done: u64 = done.parse().unwrap();
    assert!(table.starts_with(&format!("nothing found in {} seeds, ", done + done / 4)), "{table}");
    let [row, _] = end("--json check --seeds 1000000000", &here, "-HUP", 129);
    let row: Value = serde_json::from_str(&row).unwrap();
    assert_eq!((&row["interrupted"], &row["seed"]), (&true.into(), &Value::Null), "{row}");
}

#[test]
fn a_count_says_that_it_is_of_a_part() {
    let here = folder("light");
    let [table, _] = end("record --light -- sleep 3600", &here, "-INT", 130);
    assert!(
        table.contains("CUT SHORT by a signal, which ended the command as well: all figures are of its"),
        "{table}"
    );
    let [rows, _] = end("--json record --light -- sleep 3600", &here, "-TERM", 143);
    let last: Value = serde_json::from_str(rows.lines().last().unwrap()).unwrap();
    assert_eq!(last["is_cut_short"], true, "{last}");
    let [table, said] = end("record --light --compare 9 -- sleep 3600", &here, "-INT", 130);
    assert_eq!((table.as_str(), said.as_str()), ("", "tlbkit: stopped before a run was counted to its end\n"));
}

#[test]
fn an_exploration_says_how_many_runs_are_done() {
    let all = "check --exhaustive --program dontneed-1-page --bound 255";
    let [table, said] = end(all, &folder("exhaustive"), "-INT", 130);
    assert!(table.ends_with(" s: not all explored, nothing found\n"), "{table}");
    let told = " runs are done, and nothing was found in them\n";
    assert!(said.starts_with("tlbkit: interrupted: ") && said.ends_with(told), "{said}");
}

#[test]
fn a_calibration_says_what_is_measured_and_writes_no_file() {
    let here = folder("calibrate");
    let [table, said] = end("calibrate -o mine.toml", &here, "-INT", 130);
    let told = said.starts_with("tlbkit: interrupted: ") && said.contains(" of 5 parts are measured");
    assert!(told && said.ends_with(", and mine.toml is not written\n"), "{said}");
    assert_eq!((table.as_str(), said.lines().count(), here.join("mine.toml").exists()), ("", 1, false));
}

/// How long the first part takes is the host's affair.
#[test]
fn a_calibration_shows_the_figures_of_the_parts_that_are_done() {
    let here = folder("calibrate-later");
    let [rows, said] = (0..10)
        .map(|doubled| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tlbkit"));
            let command = command.args(["--json", "calibrate", "-o", "mine.toml"]).current_dir(&here);
            let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            thread::sleep(Duration::from_millis(500 << doubled));
            Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap();
            let output = running.wait_with_output().unwrap();
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
        })
        .find(|[_, said]| !said.contains(" 0 of 5 "))
        .expect("a part of five within minutes");
    assert!(said.contains("instructions and faults") && said.ends_with(", and mine.toml is not written\n"), "{said}");
    let names: Vec<_> = rows.lines().map(|row| serde_json::from_str::<Value>(row).unwrap()["figure"].clone()).collect();
    assert!(names.contains(&"system call".into()) && names.contains(&"full fence".into()), "{names:?}");
    assert!(!here.join("mine.toml").exists());
}

//! `record` and `top` on the kernel that runs the test, for real; where it shows no tracepoints they are skipped.

#[path = "command/not_here.rs"]
mod not_here;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use not_here::is_not_here;
use serde_json::Value;

/// How long anything may take, however busy the machine: it only ends a hang.
const PATIENCE: Duration = Duration::from_secs(300);

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tlbscope"));
    command.args(arguments).current_dir(folder("live"));
    command
}

/// The rows that it printed; none, and a line that says so, if nothing can be recorded here.
fn rows(output: &Output) -> Option<Vec<Value>> {
    rows_with_status(output, 0)
}

/// The same of a command that ends with this status.
fn rows_with_status(output: &Output, status: i32) -> Option<Vec<Value>> {
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.code() != Some(status) && is_not_here(&message) {
        println!("skipped: {message}");
        return None;
    }
    assert_eq!(output.status.code(), Some(status), "{message}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(text.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect())
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

const LOAD: [&str; 3] = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do ls / | cat; done; exit 3"];

#[test]
fn a_command_is_recorded_small_and_its_status_is_told() {
    let output = run(&[&["--json", "record", "-o", "load.tlbtrace", "--"][..], &LOAD].concat());
    let Some(rows) = rows_with_status(&output, 3) else { return };
    let row = &rows[0];
    assert_eq!(rows[1]["kind"], "verdict", "what the command writes is no row: {rows:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("usr"), "the command's own output is kept");
    assert_eq!(row["status"], 3);
    assert!(row["flushes"]["local mm shootdown"].as_u64() > Some(0), "every fork copies pages: {row}");
    assert!(row["bytes"].as_u64().unwrap() * 10 < row["perf_bytes"].as_u64().unwrap(), "{row}");
    let event_us: Vec<_> = row["event_us"].as_array().unwrap().iter().map(|us| us.as_f64().unwrap()).collect();
    assert!(0.0 <= event_us[0] && event_us[0] <= event_us[1], "{row}");
    assert!(rows[1]["recording_high_pct"].as_f64() >= rows[1]["recording_low_pct"].as_f64(), "{}", rows[1]);
    assert!(fs::read(folder("live").join("load.tlbtrace")).unwrap().starts_with(b"tlbtrace"));
}

#[test]
fn a_recording_that_is_there_is_set_aside() {
    let file = folder("live").join("again.tlbtrace");
    let old = file.with_extension("tlbtrace.old");
    for file in [&file, &old] {
        fs::remove_file(file).unwrap_or_default();
    }
    for (words, is_old) in [(["--duration", "9"], false), (["--duration", "8"], true)] {
        let before = fs::read(&file).ok();
        let output = run(&[&["--json", "record", "-o", "again.tlbtrace"], &words[..], &["--", "true"]].concat());
        if rows(&output).is_none() {
            return;
        }
        assert!(old.exists() == is_old && (!is_old || fs::read(&old).ok() == before), "{words:?}");
        let told =
            String::from_utf8_lossy(&output.stderr).contains("again.tlbtrace: what was there is again.tlbtrace.old");
        assert_eq!(told, is_old);
    }
}

#[test]
fn no_output_takes_the_place_of_something_else() {
    let here = folder("live");
    fs::write(here.join("v3.py"), "import sys").unwrap();
    let output = run(&["record", "-o", "v3.py", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("tlbscope: v3.py: is there already, and is no "), "{said}");
    assert!(said.ends_with("; choose another name, or remove it\n") && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(fs::read_to_string(here.join("v3.py")).unwrap(), "import sys");
}

#[test]
fn a_reader_that_goes_away_leaves_no_folder_behind() {
    // What a test that failed left there.
    fs::remove_dir_all(folder("reader")).unwrap();
    let here = folder("reader");
    let mut watching = command(&["top", "--interval", "0.1", "--duration", "600"]);
    watching.env("TMPDIR", &here).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watching = watching.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watching.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let output = watching.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if is_not_here(&said) {
        return println!("skipped: {said}");
    }
    assert_eq!((output.status.signal(), line.is_empty()), (Some(13), false), "{}: {said}", output.status);
    assert_eq!(fs::read_dir(&here).unwrap().count(), 0, "{}", here.display());
}

#[test]
fn all_cpus_are_recorded_for_a_while_in_perfs_own_form() {
    let output = run(&["--json", "record", "-o", "while.data", "--all-cpus", "--duration", "0.3"]);
    let Some(rows) = rows(&output) else { return };
    assert!((0.3..300.0).contains(&rows[0]["seconds"].as_f64().unwrap()), "{}", rows[0]);
    assert!(fs::read(folder("live").join("while.data")).unwrap().starts_with(b"PERFILE2"));
}

#[test]
fn watching_ends_with_the_sums_of_its_intervals() {
    let output = run(&["--json", "top", "--interval", "0.3", "--duration", "1"]);
    let Some(rows) = rows(&output) else { return };
    let flushes = |kind: &str| -> u64 {
        rows.iter().filter(|row| row["kind"] == kind).map(|row| row["flushes"].as_u64().unwrap()).sum()
    };
    assert_eq!(flushes("interval"), flushes("sum"), "{rows:?}");
}

/// Starts recording all CPUs into the file `name`, and waits until there is something to be lost.
fn recording(name: &str) -> Option<(Child, PathBuf)> {
    // What a test that failed left there.
    fs::remove_dir_all(folder(name)).unwrap();
    let folder = folder(name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tlbscope"));
    command.args(["record", "-o", "a.tlbtrace", "--all-cpus", "--duration", "600"]).current_dir(&folder);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if written(&folder).is_some_and(|file| fs::metadata(file).is_ok_and(|data| data.len() > 0)) {
            return Some((child, folder));
        }
        if child.try_wait().unwrap().is_some() {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    rows_with_status(&child.wait_with_output().unwrap(), 0);
    None
}

/// What perf writes.
fn written(folder: &Path) -> Option<PathBuf> {
    let parts = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    parts.map(|path| path.join("perf.data")).find(|file| file.exists())
}

/// Waits until nobody writes to `file`.
fn wait_for_writers(file: &Path) {
    let started = Instant::now();
    let is_open = || {
        let of = |process: PathBuf| fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let all = fs::read_dir("/proc").unwrap().flat_map(|process| of(process.unwrap().path()));
        all.into_iter().any(|open| fs::read_link(open.path()).is_ok_and(|to| to == file))
    };
    while is_open() {
        assert!(started.elapsed() < PATIENCE, "somebody still writes to {}", file.display());
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_lost_terminal_ends_a_recording_that_is_kept() {
    let Some((child, folder)) = recording("hangup") else { return };
    Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    assert!(fs::read(folder.join("a.tlbtrace")).unwrap().starts_with(b"tlbtrace"));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "only the trace is left");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn perf_ends_with_a_recorder_that_was_killed_and_leaves_what_can_be_read() {
    let Some((mut child, folder)) = recording("killed") else { return };
    let file = written(&folder).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for_writers(&file);
    let output = command(&["--json", "replay", file.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_recording_ends_at_its_limit_and_the_command_does_not() {
    let load = "i=0; while [ $i -lt 400 ]; do /bin/true; sleep 0.002; i=$((i+1)); done; exit 4";
    let output = run(&["--json", "record", "-o", "cut.tlbtrace", "--megabytes-max", "1", "--", "sh", "-c", load]);
    let Some(rows) = rows_with_status(&output, 4) else { return };
    assert_eq!((&rows[0]["is_cut_short"], &rows[0]["status"]), (&true.into(), &4.into()), "{}", rows[0]);
    assert!(rows[0]["events"].as_u64() > Some(0), "{}", rows[0]);
}

#[test]
fn a_live_account_of_a_part_says_so() {
    // It runs on when we have ended, however late that is, and holds nothing open that we read to its end.
    let part = ["explain", "--live", "--duration", "0.4", "--", "sh", "-c", "exec sleep 600 >/dev/null 2>&1"];
    let output = run(&[&["--json"], &part[..]].concat());
    let Some(rows) = rows(&output) else { return };
    let recording = rows.iter().find(|row| row["kind"] == "recording").expect("what the recording lacks");
    assert_eq!((&recording["is_cut_short"], &recording["is_disk_full"]), (&true.into(), &false.into()), "{recording}");
    let whole = run(&["--json", "explain", "--live", "--", "/bin/true"]);
    let whole = String::from_utf8_lossy(&whole.stdout).into_owned();
    assert!(whole.contains("\"is_cut_short\":false"), "{whole}");
    let said = run(&part);
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.starts_with("CUT SHORT by a signal or --duration, while the command ran on: "), "{said}");
}

/// A disk for a recording alone, which ends with it. What is recorded is one process. It goes on until some of that is
/// written, then leaves half of the tenth that must stay free, and is still. So neither other work of the machine nor
/// anybody's pace decides how much there is to be written at the end.
#[test]
fn a_disk_that_others_fill_ends_a_recording_that_is_kept() {
    let load = r#"until [ -n "$(find tlbkit-recording-* -size +200k 2>/dev/null)" ]; do :; done
        head -c $(($(stat -f -c '%a * %S' .) - 5000000)) /dev/zero > fill; read nothing < ../never"#;
    fs::write(folder("full").join("load"), load).unwrap();
    let script = "mkdir -p disk; rm -f never; mkfifo never; mount -t tmpfs -o size=100m none disk || exit 77; cd disk; \
                  sh ../load & $0 --json record -o a.tlbtrace --pid $!; \
                  status=$?; kill $!; [ -s a.tlbtrace ] && ls >&2; exit $status";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_tlbscope")]).current_dir(folder("full"));
    let output = match command.output() {
        Ok(output) if output.status.code() == Some(77) || output.stderr.starts_with(b"unshare:") => {
            return println!("skipped, no disk for it: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output) => output,
        Err(error) => return println!("skipped: {error}"),
    };
    let Some(rows) = rows_with_status(&output, 0) else { return };
    assert_eq!((&rows[0]["is_disk_full"], &rows[0]["is_cut_short"]), (&true.into(), &true.into()), "{}", rows[0]);
    assert!(rows[0]["events"].as_u64() > Some(0), "{}", rows[0]);
    let left = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(left.contains("; the command runs on\n") && left.ends_with("a.tlbtrace\nfill\n"), "only the trace: {left}");
}

/// A run of an hour is not made again because of a name that was typed wrong.
#[test]
fn a_live_recording_without_who_is_asked_about_is_kept_and_named() {
    let folder = folder("kept");
    let words = ["explain", "--live", "--process", "nosuch", "--", "sh", "-c", "ls / | cat >/dev/null"];
    let output = command(&words).env("TMPDIR", &folder).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    if is_not_here(&message) {
        return println!("skipped: {message}");
    }
    let said = message.lines().last().unwrap_or_default();
    assert!(said.contains("--process nosuch: no such process in the trace, which has "), "{message}");
    let (_, again) = said.split_once("; the recording is kept for another question: tlbscope ").expect(said);
    let again = run(&again.split(' ').collect::<Vec<_>>());
    fs::remove_dir_all(folder).unwrap();
    assert_eq!((output.status.code(), again.status.code()), (Some(2), Some(0)), "{message}");
    assert!(String::from_utf8_lossy(&again.stdout).contains("Recording made it "));
}

#[test]
fn a_full_disk_is_named_by_the_file_that_was_asked_for() {
    let output = run(&["record", "-o", "/dev/full", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr);
    if is_not_here(&said) {
        return println!("skipped: {said}");
    }
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(last, "tlbscope: cannot write /dev/full: No space left on device (os error 28)");
    assert_eq!(output.status.code(), Some(2));
}

/// The page that leads somebody through it is true: its program has this cause, and this fix.
#[test]
fn the_first_case_is_what_the_page_says() {
    let page = include_str!("../../../docs/linux/first-case.md");
    let (_, rest) = page.split_once("```python\n").unwrap();
    let (program, rest) = rest.split_once("```\n").unwrap();
    let line = |start: &str| rest.lines().find(|line| line.starts_with(start)).expect(start);
    let (_, cause) = line("1. ").split_once(" % ").unwrap();
    let (_, fix) = line("    fix ").split_once(": ").unwrap();
    fs::write(folder("live").join("files.py"), program).unwrap();
    if Command::new("python3").arg("--version").output().is_err() {
        return println!("skipped: no python3");
    }
    let output = run(&["--json", "record", "-o", "case.tlbtrace", "--", "python3", "files.py"]);
    let Some(rows) = rows(&output) else { return };
    let first = rows.iter().find(|row| row["kind"] == "cause").expect("a cause");
    assert_eq!((&first["cause"], &first["fix"]), (&cause.into(), &fix.into()), "{first}");
    let verdict = rows.iter().find(|row| row["kind"] == "verdict").expect("a verdict");
    assert!(verdict["samples"].as_u64() > Some(100) && verdict["own_pct"].is_number(), "{verdict}");
}

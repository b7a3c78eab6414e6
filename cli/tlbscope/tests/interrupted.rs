//! `calibrate` and `record` when a signal ends them: what is done is not lost, and nothing runs on.

#[path = "command/not_here.rs"]
mod not_here;
#[path = "../../tlbkit/tests/command/signalled.rs"]
mod signalled;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use signalled::end;

const TLBSCOPE: &str = env!("CARGO_BIN_EXE_tlbscope");

/// An empty folder for a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupted").join(name);
    fs::remove_dir_all(&folder).unwrap_or_default();
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Who ends a recording wants no command to go on: this one would for an hour, and says when it is told to end.
#[test]
fn a_signal_to_a_recording_ends_its_command_too() {
    let here = folder("record");
    let script = "trap 'echo told; exit 7' INT TERM HUP; echo ready; while :; do sleep 0.1; done";
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mut command = Command::new(TLBSCOPE);
        let command = command.args(["record", "-o", "a.tlbtrace", "--", "sh", "-c", script]).current_dir(&here);
        let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(running.stdout.take().unwrap());
        let mut said = String::new();
        printed.read_line(&mut said).unwrap();
        if said == "ready\n" {
            Command::new("kill").args([signal, &running.id().to_string()]).status().unwrap();
        }
        printed.read_to_string(&mut said).unwrap();
        let output = running.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        if not_here::is_not_here(&message) {
            return println!("skipped: {message}");
        }
        assert!(said.starts_with("ready\ntold\n"), "{signal}: {said}");
        assert_eq!(output.status.code(), Some(7), "{signal}: the status of the command: {message}");
    }
}

#[test]
fn a_calibration_says_what_is_measured_and_writes_no_file() {
    let here = folder("calibrate");
    let [table, said] = end(TLBSCOPE, "calibrate -o mine.toml", &here, "-INT", 130);
    let told = said.starts_with("tlbscope: interrupted: ") && said.contains(" of 5 parts are measured");
    assert!(told && said.ends_with(", and mine.toml is not written\n"), "{said}");
    assert_eq!((table.as_str(), said.lines().count(), here.join("mine.toml").exists()), ("", 1, false));
}

/// How long the first part takes is the host's affair.
#[test]
fn a_calibration_shows_the_figures_of_the_parts_that_are_done() {
    let here = folder("calibrate-later");
    let [rows, said] = (0..10)
        .map(|doubled| {
            let mut command = Command::new(TLBSCOPE);
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

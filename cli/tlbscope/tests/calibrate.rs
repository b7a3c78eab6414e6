//! A calibration of the host that runs the test, for real: its file is one that every command accepts.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tlbkit_machine::Machine;

fn tlbscope(arguments: &[&str], dir: &PathBuf) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tlbscope")).args(arguments).current_dir(dir).output().expect("it starts")
}

fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

#[test]
fn a_measured_machine_is_one() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("calibrate");
    std::fs::remove_dir_all(&dir).unwrap_or_default();
    std::fs::create_dir_all(&dir).unwrap();
    let measured = tlbscope(&["--json", "calibrate", "--quick", "-o", "mine.toml"], &dir);
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
    let rows_measured = rows(&measured);
    let syscall = rows_measured.iter().find(|row| row["figure"] == "system call").expect("it is measured");
    assert!(syscall["low"].as_f64() <= syscall["value"].as_f64(), "{syscall}");
    assert!(rows_measured.iter().any(|row| row["finding"] == "fracturing"));

    let text = std::fs::read_to_string(dir.join("mine.toml")).unwrap();
    assert!(text.contains(": getppid\""), "{text}");
    assert!(text.contains("source = \"not measured here; as "), "{text}");
    let machine = Machine::load(dir.join("mine.toml")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(machine.name, "mine");
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let output = tlbscope(&["calibrate", "--quick", "-o", "no/such/folder/mine.toml"], &dir);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.starts_with("tlbscope: cannot write no/such/folder/mine.toml: ") && message.lines().count() == 1,
        "{message}"
    );
}

#[test]
fn a_file_that_is_there_is_replaced_by_force_alone() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("calibrate-again");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("mine.toml");
    std::fs::write(&file, "by hand").unwrap();
    for force in [&[][..], &["--force"]] {
        let output = tlbscope(&[&["calibrate", "--quick", "-o", "mine.toml"], force].concat(), &dir);
        let said = "tlbscope: mine.toml: is there already, and is no machine file of tlbscope; choose another name, or \
                    remove it\n";
        assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), (said, Some(2)));
    }
    let measured = "# Written by tlbscope calibrate on a day";
    std::fs::write(&file, measured).unwrap();
    let output = tlbscope(&["calibrate", "--quick", "-o", "mine.toml"], &dir);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        (said.as_str(), output.status.code()),
        ("tlbscope: mine.toml: is there already; --force replaces it\n", Some(2))
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), measured);
    let output = tlbscope(&["calibrate", "--quick", "--force", "-o", "mine.toml"], &dir);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read_to_string(&file).unwrap().contains("name = \"mine\""));
}

#[test]
fn figures_are_told_even_if_the_disk_is_full() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let output = tlbscope(&["--json", "calibrate", "--quick", "-o", "/dev/full"], &dir);
    let message = String::from_utf8_lossy(&output.stderr);
    let is_said = message.starts_with("tlbscope: cannot write /dev/full: ") && message.lines().count() == 1;
    assert!(is_said && output.status.code() == Some(2), "{message}");
    let told = rows(&output);
    assert!(told.iter().any(|row| row["figure"] == "system call"), "{told:?}");
    assert!(!told.iter().any(|row| row["machine_file"].is_string()), "there is none");
}

//! The command, as somebody types it.

use std::process::{Command, Output};

/// Runs it.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tlbscope")).args(arguments).output().unwrap()
}

/// What it prints; it must succeed.
pub(crate) fn text(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

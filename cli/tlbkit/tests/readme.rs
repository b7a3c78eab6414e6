//! README.md is true: every command of `tlbkit` in its `sh` blocks is run, and every other one is run elsewhere.

#[path = "command/readme.rs"]
mod readme;

use readme::{commands, commands_of_readme, faults, own};

const TLBKIT: &str = env!("CARGO_BIN_EXE_tlbkit");
/// What a reader types to run the command from a clone.
const FROM_CLONE: &str = "cargo run --release -- ";
/// Lines for somebody with no clone yet, of the developer's tasks, which run this test themselves, and of `tlbscope`,
/// whose tests run them.
const NOT_RUN: &[&str] = &[
    "git clone ",
    "cd ",
    "cargo xtask ",
    "cargo bench",
    "cargo add ",
    "cargo install ",
    "cargo run --release -p tlbscope -- ",
    "tlbscope ",
];
/// The first command takes more than a minute. `cargo xtask report` types it, and looks
/// at what it makes.
const BY_ITS_OWN_STEP: &str = "cargo run --release -- reproduce";

#[test]
fn every_command_of_the_readme_works() {
    let mut lines = Vec::new();
    for command in commands_of_readme().into_iter().filter(|command| command != BY_ITS_OWN_STEP) {
        match own(&command, "tlbkit", FROM_CLONE) {
            Some(line) => lines.push(line),
            None => assert!(NOT_RUN.iter().any(|start| command.starts_with(start)), "`{command}` is run by no test"),
        }
    }
    let faults = faults(&lines, TLBKIT, |_, _| false);
    assert!(!lines.is_empty() && faults.is_empty(), "{}", faults.join("\n"));
}

/// What the guide for kernels shows in a line of its text.
#[test]
fn every_run_of_the_guide_works() {
    let guide = include_str!("../../../docs/kernel/recipes.md");
    let spans = guide.split('`').filter(|span| span.starts_with("tlbkit run "));
    let lines: Vec<String> = spans.map(|span| span.replace('\n', " ")).collect();
    let faults = faults(&lines, TLBKIT, |_, _| false);
    assert!(!lines.is_empty() && faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_two_commands_that_matter_stand_first() {
    let typed: Vec<String> = commands_of_readme();
    let mut first: Vec<&str> = typed.iter().map(String::as_str).collect();
    first.retain(|command| !command.starts_with("git ") && !command.starts_with("cd "));
    assert_eq!(first.get(..2), Some(&[BY_ITS_OWN_STEP, "cargo xtask test"][..]));
}

#[test]
fn only_sh_blocks_are_read_and_comments_dropped() {
    let text = "cargo no\n```rust\ncargo no\n```\n```sh\n# why\ncargo a  # what\n\ntlbkit b \\\n  c\n```\ntlbkit no\n";
    assert_eq!(commands(text), ["cargo a", "tlbkit b    c"]);
}

//! `cargo xtask test`: every check there is, one after the other, and a table at the end.
//!
//! A failing step does not stop the ones behind it, so that one run tells everything. What cannot be checked on this
//! machine is skipped aloud, with the command that would change that.

use crate::outcome::{Outcome, cargo, cargo_command, run};
use crate::setup::{self, Ready};
use crate::{browser, c_kernel, fences, mutants, nostd, oldest, qemu, tidy};
use anyhow::Result;
use std::path::Path;
use std::time::Instant;

struct Step {
    name: &'static str,
    run: fn(&Path) -> Result<Outcome>,
}

const STEPS: &[Step] = &[
    Step { name: "tidy", run: tidy_step },
    Step { name: "format", run: |root| cargo(root, "fmt --all --check") },
    Step { name: "clippy", run: |root| cargo(root, "clippy --workspace --all-targets --quiet -- -D warnings") },
    Step { name: "docs", run: docs_step },
    Step { name: "no_std", run: nostd::check },
    Step { name: "oldest Rust", run: oldest::check },
    Step { name: "test workspace", run: |root| cargo(root, "test --workspace --no-fail-fast --quiet") },
    // Alone, so that no other crate's wish for `observe` reaches it: this is what a kernel links.
    Step { name: "test tlbkit alone", run: |root| cargo(root, "test --package tlbkit --no-fail-fast --quiet") },
    Step {
        name: "test its history",
        run: |root| cargo(root, "test --package tlbkit --features history --no-fail-fast --quiet"),
    },
    Step {
        name: "test x86 for C",
        run: |root| cargo(root, "test --package tlbkit-c --features x86 --lib --test x86 --quiet"),
    },
    Step { name: "handshakes in loom", run: fences::handshakes },
    Step { name: "historical bugs", run: mutants::check },
    Step { name: "test kernel", run: qemu::check },
    Step { name: "kernel in C", run: c_kernel::check },
    Step { name: "report in browser", run: browser::check },
];

fn tidy_step(root: &Path) -> Result<Outcome> {
    Ok(match tidy::run(root)? {
        0 => Outcome::Ok(String::new()),
        count => Outcome::Failed(format!("{count} findings")),
    })
}

fn docs_step(root: &Path) -> Result<Outcome> {
    let mut command = cargo_command(root, "doc --workspace --no-deps --quiet");
    run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs every step and returns whether none failed.
pub(crate) fn test(root: &Path) -> Result<bool> {
    let mut rows = Vec::new();
    for step in STEPS {
        println!("== {}", step.name);
        let start = Instant::now();
        let outcome = (step.run)(root).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        rows.push((step.name, outcome, start.elapsed().as_secs_f64()));
    }
    println!("\n{}", table(&rows));
    Ok(!rows.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_))))
}

/// One line a step: name, outcome, seconds, and what there is to say.
fn table(rows: &[(&str, Outcome, f64)]) -> String {
    let lines = rows.iter().map(|(name, outcome, time_s)| {
        let (word, note) = match outcome {
            Outcome::Ok(note) => ("ok", note.clone()),
            Outcome::Skipped(note) => ("skipped", format!("skipped: {note}")),
            Outcome::Failed(note) => ("FAILED", note.clone()),
        };
        format!("{name:<18} {word:<8} {time_s:>7.1} s  {note}").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// `cargo bench` of the protocol; instruction counts want valgrind.
pub(crate) fn bench(root: &Path, more: &[String]) -> Result<bool> {
    if let Ready::No(how) = setup::program(&["valgrind"], "valgrind") {
        println!("skipped: no valgrind for instruction counts; {how}");
    }
    let mut command = cargo_command(root, "bench --package tlbkit");
    Ok(matches!(run(command.args(more))?, Outcome::Ok(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_each_outcome_and_its_reason() {
        let rows = [
            ("a", Outcome::Ok(String::new()), 1.25),
            ("b", Outcome::Skipped("no chromium".to_owned()), 0.0),
            ("c", Outcome::Failed("exit status: 1".to_owned()), 10.0),
        ];
        let lines = table(&rows);
        let lines: Vec<&str> = lines.lines().collect();
        assert!(lines[0].starts_with("a ") && lines[0].contains(" ok ") && lines[0].ends_with("1.2 s"), "{lines:?}");
        assert!(lines[1].ends_with("skipped: no chromium"), "{lines:?}");
        assert!(lines[2].contains("FAILED") && lines[2].ends_with("exit status: 1"), "{lines:?}");
    }
}

//! `cargo xtask test`: every check there is, two at a time where neither disturbs the other, and a table at the end.
//!
//! A failing step does not stop the ones behind it, so that one run tells everything. What cannot be checked on this
//! machine is skipped aloud, with the command that would change that.

use crate::outcome::{StepOutcome, cargo, cargo_command, run};
use crate::setup::{self, Ready};
use crate::workshop::Sets;
use crate::{api, browser, c_kernel, c_library, fences, libraries, linux, mutants, qemu, tidy};
use anyhow::{Result, bail};
use std::fs;
use std::iter;
use std::panic::{catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

struct TestStep {
    name: &'static str,
    run: fn(&Path) -> Result<StepOutcome>,
}

/// One after the other: most of these build in `target/debug`, where cargo lets one at a time in.
const IN_TURN: &[TestStep] = &[
    TestStep { name: "tidy", run: tidy_step },
    TestStep { name: "format", run: |root| cargo(root, "fmt --all --check") },
    TestStep { name: "clippy", run: |root| cargo(root, "clippy --workspace --all-targets --quiet -- -D warnings") },
    TestStep { name: "fuzz targets", run: fuzz_step },
    TestStep { name: "docs", run: docs_step },
    TestStep { name: "no_std", run: libraries::check_without_std },
    TestStep { name: "oldest Rust", run: libraries::check_oldest_rust },
    TestStep { name: "interface", run: api::check },
    TestStep { name: "packages", run: libraries::check_packages },
    TestStep { name: "library for C", run: c_library::check },
    // With it `tlbkit` has the features `history` and `observe`, as simulators link it. With `history` alone its tests
    // run in `test narrow sets`.
    TestStep { name: "test workspace", run: |root| cargo(root, "test --workspace --no-fail-fast --quiet") },
    // Alone, so that no other crate's wish for `observe` reaches it: this is what a kernel links.
    TestStep { name: "test tlbkit alone", run: |root| cargo(root, "test --package tlbkit --no-fail-fast --quiet") },
    TestStep {
        name: "test x86 for C",
        run: |root| cargo(root, "test --package tlbkit-c --features x86 --lib --test x86 --quiet"),
    },
    // Fails if a path through the C interface takes more instructions than its committed count.
    TestStep { name: "cost of the C interface", run: c_interface_step },
];

/// Beside those, in this order: each builds in a folder of its own, and measures no time.
const BESIDE: &[TestStep] = &[
    TestStep { name: "test narrow sets", run: narrow_sets_step },
    TestStep { name: "report in browser", run: browser::check },
    TestStep { name: "handshakes in loom", run: fences::handshakes },
    TestStep { name: "historical bugs", run: mutants::check },
];

/// One after the other when those are over: an emulator that runs CPUs in parallel wants the machine for itself.
const ALONE: &[TestStep] = &[
    TestStep { name: "test kernel", run: qemu::check },
    TestStep { name: "kernel in C", run: c_kernel::check },
    TestStep { name: "port to Linux", run: linux::step },
];

fn steps() -> impl Iterator<Item = &'static TestStep> {
    [IN_TURN, BESIDE, ALONE].into_iter().flatten()
}

fn tidy_step(root: &Path) -> Result<StepOutcome> {
    Ok(match tidy::run(root, tidy::Lengths::Counted)? {
        0 => StepOutcome::Ok(String::new()),
        count => StepOutcome::Failed(format!("{count} findings")),
    })
}

/// Whether the fuzz targets compile, which are a workspace of their own: to run them needs nightly Rust and cargo-fuzz,
/// to check them neither. With the profiles of this workspace most of what they stand on is there after clippy, so that
/// the first time takes a quarter of the work, and later times seconds.
fn fuzz_step(root: &Path) -> Result<StepOutcome> {
    let mut command = cargo_command(
        root,
        "check --config Cargo.toml --manifest-path verify/fuzz/Cargo.toml --all-targets --locked --quiet",
    );
    command.env("CARGO_TARGET_DIR", setup::target_dir(root));
    // Nothing is linked: any file stands for the library, which would be compiled from C++ otherwise.
    run(command.env("CUSTOM_LIBFUZZER_PATH", root.join("verify/fuzz/Cargo.toml")))
}

/// Two CPUs a word: what the tests say of inboxes with a top, and of sets of several words, on few CPUs. It has a
/// folder of its own, since the flags are others.
fn narrow_sets_step(root: &Path) -> Result<StepOutcome> {
    let mut command =
        cargo_command(root, "test --package tlbkit --features history --lib --tests --no-fail-fast --quiet");
    let target = setup::target_dir(root).join(Sets::Narrow.folder());
    run(command.env("RUSTFLAGS", Sets::Narrow.flags()).env("CARGO_TARGET_DIR", target))
}

/// Other compilers than those that the counts are of give other counts: then nothing is compared, and that is said.
fn c_interface_step(root: &Path) -> Result<StepOutcome> {
    let counts = fs::read_to_string(root.join("lib/tlbkit-c/benches/c_interface/counts.txt"))?;
    let counted_by = counts.lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
    let here = format!("rustc {}, gcc {}", version("rustc", "--version"), version("gcc", "-dumpfullversion"));
    // As a test, since `cargo bench` would optimise the harness across all of std, which takes longer than to count.
    // What is counted are programs of the archive, which the harness builds in the same way either way.
    let outcome = cargo(root, "test --package tlbkit-c --bench c_interface --quiet")?;
    Ok(match outcome {
        StepOutcome::Ok(_) if counted_by != here => {
            StepOutcome::Skipped(format!("counts.txt is of {counted_by}, and here is {here}: nothing was compared"))
        }
        other => other,
    })
}

/// The first word of what `program` says that begins with a digit.
fn version(program: &str, argument: &str) -> String {
    let said = Command::new(program).arg(argument).output().map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let is_version = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    said.split_whitespace().find(is_version).unwrap_or("?").to_owned()
}

fn docs_step(root: &Path) -> Result<StepOutcome> {
    let mut command = cargo_command(root, "doc --workspace --no-deps --quiet");
    run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// A step that has run.
struct Row {
    name: &'static str,
    outcome: StepOutcome,
    time_s: f64,
}

/// Runs every step, or those whose name holds one of `wanted`, and returns whether none failed.
pub(crate) fn test(root: &Path, wanted: &[String]) -> Result<bool> {
    check_words(wanted)?;
    let waiting = Mutex::new(BESIDE.iter());
    let take = || iter::from_fn(|| waiting.lock().unwrap_or_else(PoisonError::into_inner).next());
    let mut rows: Vec<Row> = thread::scope(|scope| {
        let beside = scope.spawn(|| run_each(root, take(), wanted));
        let mut rows = run_each(root, IN_TURN, wanted);
        // Whoever has nothing left of its own helps the other.
        rows.extend(run_each(root, take(), wanted));
        rows.extend(beside.join().unwrap_or_else(|panic| resume_unwind(panic)));
        rows
    });
    rows.extend(run_each(root, ALONE, wanted));
    rows.sort_by_key(|row| steps().position(|step| step.name == row.name));
    println!("\n{}", table(&rows));
    if let Some(time_s) = processor_s() {
        // What others do on the machine makes steps longer, and this hardly.
        println!("processors: {time_s:.0} s in all");
    }
    Ok(!rows.iter().any(|row| matches!(row.outcome, StepOutcome::Failed(_))))
}

/// User and system time of all that this program has started and waited for, and so on down; none where the kernel
/// does not tell.
fn processor_s() -> Option<f64> {
    // Of every x86-64 Linux.
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    // `cutime` and `cstime` are the 16th and 17th words, the name the second.
    let ticks = after_name.split_whitespace().skip(13).take(2).map(|word| word.parse::<f64>().ok());
    Some(ticks.sum::<Option<f64>>()? / TICKS_A_SECOND)
}

/// Runs those of `steps` that are wanted, one after the other.
fn run_each<'a>(root: &Path, steps: impl IntoIterator<Item = &'a TestStep>, wanted: &[String]) -> Vec<Row> {
    let mut rows = Vec::new();
    for step in steps.into_iter().filter(|step| is_wanted(step.name, wanted)) {
        println!("== {}", step.name);
        let start = Instant::now();
        // A panic too is a failed step: what other steps found must not be lost by it.
        let outcome = match catch_unwind(|| (step.run)(root)) {
            Ok(ended) => ended.unwrap_or_else(|error| StepOutcome::Failed(format!("{error:#}"))),
            Err(_) => StepOutcome::Failed("panicked, see above".to_owned()),
        };
        let row = Row { name: step.name, outcome, time_s: start.elapsed().as_secs_f64() };
        // At once too: a run that is ended from outside has told how far it came.
        println!("{}", line(&row));
        rows.push(row);
    }
    rows
}

/// An error that names a word which no step's name holds.
fn check_words(wanted: &[String]) -> Result<()> {
    if let Some(unknown) = wanted.iter().find(|word| !steps().any(|step| step.name.contains(word.as_str()))) {
        let names: Vec<&str> = steps().map(|step| step.name).collect();
        bail!("no step `{unknown}`; there are: {}", names.join(", "));
    }
    Ok(())
}

fn is_wanted(name: &str, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()))
}

/// One line a step.
fn table(rows: &[Row]) -> String {
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Name, outcome, seconds, and what there is to say.
fn line(row: &Row) -> String {
    let Row { name, outcome, time_s } = row;
    let (word, note) = match outcome {
        StepOutcome::Ok(note) => ("ok", note.clone()),
        StepOutcome::Skipped(note) => ("skipped", format!("skipped: {note}")),
        StepOutcome::Failed(note) => ("FAILED", note.clone()),
    };
    format!("{name:<18} {word:<8} {time_s:>7.1} s  {note}").trim_end().to_owned()
}

/// `cargo bench` of the protocol; instruction counts want valgrind.
pub(crate) fn bench(root: &Path, more: &[String]) -> Result<bool> {
    if let Ready::No(how) = setup::program(&["valgrind"], "valgrind") {
        println!("skipped: no valgrind for instruction counts; {how}");
    }
    let mut command = cargo_command(root, "bench --package tlbkit");
    Ok(matches!(run(command.args(more))?, StepOutcome::Ok(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_errs_or_panics_does_not_stop_those_behind_it() {
        let steps = [
            TestStep { name: "errs", run: |_| bail!("no disk") },
            TestStep { name: "panics", run: |_| panic!("on purpose") },
            TestStep { name: "passes", run: |_| Ok(StepOutcome::Ok(String::new())) },
        ];
        let rows = run_each(Path::new("."), &steps, &[]);
        let outcomes: Vec<&StepOutcome> = rows.iter().map(|row| &row.outcome).collect();
        let failed = |why: &str| StepOutcome::Failed(why.to_owned());
        assert_eq!(outcomes, [&failed("no disk"), &failed("panicked, see above"), &StepOutcome::Ok(String::new())]);
    }

    #[test]
    fn steps_are_chosen_by_a_part_of_their_name() -> Result<()> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let names = |wanted: &[String]| -> Vec<&str> {
            steps().map(|step| step.name).filter(|name| is_wanted(name, wanted)).collect()
        };
        assert_eq!(names(&words(&["loom", "format", "kernel in"])), ["format", "handshakes in loom", "kernel in C"]);
        assert_eq!(names(&[]).len(), steps().count());
        check_words(&words(&["clippy"]))?;
        let unknown = check_words(&words(&["clippy", "none"]));
        assert!(unknown.is_err_and(|error| error.to_string().contains("`none`")));
        Ok(())
    }

    /// What `c_interface_step` compares is written by the benchmark itself.
    #[test]
    fn the_counts_of_the_c_interface_begin_with_their_compilers() {
        let counts = include_str!("../../lib/tlbkit-c/benches/c_interface/counts.txt");
        let words: Vec<_> = counts.lines().next().unwrap_or_default().split_whitespace().collect();
        let is_version = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        assert!(matches!(words[..], ["#", "rustc", rustc, "gcc", gcc] if is_version(rustc) && is_version(gcc)));
        assert!(is_version(&version("rustc", "--version")));
        assert_eq!(version("no-such-program", "--version"), "?");
    }

    #[test]
    fn the_processor_time_is_that_of_children() -> Result<()> {
        let Some(before_s) = processor_s() else { return Ok(()) };
        let line = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; true";
        assert!(Command::new("sh").args(["-c", line]).status()?.success());
        assert!(processor_s() > Some(before_s), "{before_s}");
        Ok(())
    }

    #[test]
    fn the_table_tells_each_outcome_and_its_reason() {
        let rows = [
            Row { name: "a", outcome: StepOutcome::Ok(String::new()), time_s: 1.25 },
            Row { name: "b", outcome: StepOutcome::Skipped("no chromium".to_owned()), time_s: 0.0 },
            Row { name: "c", outcome: StepOutcome::Failed("exit status: 1".to_owned()), time_s: 10.0 },
        ];
        let lines = table(&rows);
        let lines: Vec<&str> = lines.lines().collect();
        assert!(lines[0].starts_with("a ") && lines[0].contains(" ok ") && lines[0].ends_with("1.2 s"), "{lines:?}");
        assert!(lines[1].ends_with("skipped: no chromium"), "{lines:?}");
        assert!(lines[2].contains("FAILED") && lines[2].ends_with("exit status: 1"), "{lines:?}");
    }
}

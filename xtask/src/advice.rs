//! `cargo xtask advice`: what `tlbscope record` advises for small programs, beside what `tlbscope try` measures.
//!
//! Each program stands for one remedy of `remedies.toml`, or for slowness that is not the TLB's. It is recorded, and
//! the fix of the first cause is tried by CPU time of interleaved pairs, so that other load adds noise and no bias:
//! the setting that the answer names, or `FIXED=1`, with which the program changes as its source would. It is a
//! benchmark and no test: its figures are the host's. Nothing is fitted.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::setup::{self, Need, lack, tool};

/// A program that ends by itself, after half a second to two of CPU time: shorter ones are noise.
struct Program {
    name: &'static str,
    /// How the first cause is named; none if the TLB is not why it is slow.
    cause: Option<&'static str>,
    needs: &'static [Need],
    /// Builds it, a line for `sh` in the folder of results; `$FROM` has the sources.
    build: &'static str,
    /// A command there.
    run: &'static str,
    /// What its user had set before: what is tried comes after it.
    environment: &'static [(&'static str, &'static str)],
}

const GCC: Need = Need::Program("gcc", "gcc libc6-dev");
const CAUSES: &str = "gcc -O2 -fno-omit-frame-pointer -pthread -o causes $FROM/causes.c";
const ARENAS: &str = "gcc -O2 -pthread -o arenas $FROM/arenas.c";

const fn of_causes(name: &'static str, run: &'static str, cause: Option<&'static str>) -> Program {
    Program { name, cause, needs: &[GCC], build: CAUSES, run, environment: &[] }
}

/// jemalloc, tcmalloc and mimalloc give memory back at once here, as those set them who count their memory: by default
/// jemalloc waits for ten seconds, longer than this program runs, tcmalloc gives back little, and mimalloc waits for
/// 25 ms.
const PROGRAMS: &[Program] = &[
    Program {
        name: "glibc arenas",
        cause: Some("madvise DONTNEED, arena of malloc"),
        needs: &[GCC],
        build: ARENAS,
        run: "./arenas 20000",
        environment: &[],
    },
    Program {
        name: "jemalloc",
        cause: Some("madvise DONTNEED"),
        needs: &[GCC, Need::File("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "libjemalloc2")],
        build: ARENAS,
        run: "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 ./arenas 10000",
        environment: &[("MALLOC_CONF", "dirty_decay_ms:0")],
    },
    Program {
        name: "tcmalloc",
        cause: Some("madvise DONTNEED"),
        needs: &[GCC, Need::File("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")],
        build: ARENAS,
        run: "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4 ./arenas 150000",
        environment: &[("TCMALLOC_AGGRESSIVE_DECOMMIT", "1")],
    },
    Program {
        name: "mimalloc",
        cause: Some("madvise DONTNEED"),
        needs: &[GCC, Need::File("/usr/lib/x86_64-linux-gnu/libmimalloc.so.2", "libmimalloc2.0")],
        build: ARENAS,
        run: "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libmimalloc.so.2 ./arenas 15000",
        environment: &[("MIMALLOC_DECOMMIT_DELAY", "0"), ("MIMALLOC_PURGE_DELAY", "0")],
    },
    Program {
        name: "go",
        cause: Some("madvise DONTNEED"),
        needs: &[Need::Program("go", "golang-go")],
        build: "GOCACHE=$PWD/go-cache go build -o giving $FROM/giving.go",
        run: "./giving",
        environment: &[],
    },
    Program {
        name: "jvm",
        cause: Some("mmap, anonymous"),
        needs: &[Need::Program("javac", "default-jdk-headless")],
        build: "javac -d . $FROM/Heap.java",
        run: "java -XX:+UseSerialGC -Xms8m -Xmx400m -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=10 -cp . Heap",
        environment: &[],
    },
    of_causes("pairs", "./causes pairs", Some("munmap, anonymous")),
    of_causes("files", "./causes files", Some("munmap")),
    of_causes("stacks", "./causes stacks", Some("munmap, stack of a thread")),
    of_causes("few", "./causes few", Some("madvise DONTNEED, anonymous")),
    of_causes("many", "./causes many", Some("madvise DONTNEED, anonymous")),
    of_causes("lazily", "./causes lazily", Some("madvise FREE, anonymous")),
    of_causes("punch", "./causes punch", Some("fallocate")),
    of_causes("barrier", "./causes barrier", Some("mprotect, anonymous")),
    of_causes("flip", "./causes flip", Some("mprotect, anonymous")),
    of_causes("twice", "./causes twice", Some("mprotect")),
    of_causes("tracking", "./causes tracking", Some("userfaultfd write protection")),
    of_causes("snapshot", "./causes snapshot", Some("copy on write after fork")),
    of_causes("zeroes", "./causes zeroes", Some("copy of the page of zeroes")),
    of_causes("starts", "./causes starts", Some("fork")),
    of_causes("anew", "./causes anew", Some("new pages of anonymous memory")),
    of_causes("shared", "./causes shared", Some("new pages of")),
    of_causes("synced", "./causes synced", Some("msync")),
    of_causes("computes", "./causes computes", None),
    of_causes("reads", "./causes reads", None),
    of_causes("locks", "./causes locks", None),
];

/// Runs those whose names are among `words`, or all.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<bool> {
    let is_meant = |program: &&Program| words.is_empty() || words.iter().any(|word| program.name == word);
    let chosen: Vec<&Program> = PROGRAMS.iter().filter(is_meant).collect();
    let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
    ensure!(!chosen.is_empty(), "no program `{}`; there are {}", words.join(" "), names.join(", "));
    let folder = setup::target_dir(root).join("advice");
    fs::create_dir_all(&folder)?;
    tool(Command::new("cargo").args(["build", "--release", "--package", "tlbscope"]), root)?;
    let tlbscope = setup::target_dir(root).join("release/tlbscope").canonicalize()?;
    println!("\n| program | first cause | tried | predicted, % | measured, % | verdict |");
    println!("|---|---|---|---|---|---|");
    let mut rows = Vec::new();
    for program in chosen {
        let name = program.name;
        match attempt(root, &tlbscope, program, &folder) {
            Ok(row) => {
                println!("| {name} | {} |", row.line());
                rows.push(row);
            }
            Err(error) => println!("| {name} | not here: {error:#} | | | | |"),
        }
    }
    let count = |is_so: fn(&Row) -> bool| rows.iter().filter(|row| is_so(row)).count();
    println!(
        "\nof {}: cause right in {}, fix helps in {}, harms in {}, size in the interval in {}, above it in {}",
        rows.len(),
        count(|row| row.is_cause_right),
        count(|row| row.tried.as_ref().is_some_and(|tried| tried.measured[0] > 0.0)),
        count(|row| row.tried.as_ref().is_some_and(|tried| tried.measured[2] < 0.0)),
        count(|row| row.tried.as_ref().is_some_and(Tried::is_inside)),
        count(|row| row.tried.as_ref().is_some_and(Tried::is_above)),
    );
    Ok(true)
}

/// What the recording says first, and what came of its fix.
struct Row {
    cause: String,
    is_cause_right: bool,
    tried: Option<Tried>,
}

/// A fix that was tried.
#[derive(Clone, PartialEq, Debug)]
struct Tried {
    what: String,
    /// Least and most, in percent of CPU time.
    predicted: [f64; 2],
    /// The interval of the pairs around their median, in percent of CPU time.
    measured: [f64; 3],
}

impl Tried {
    /// Whether the median lies in what was predicted.
    fn is_inside(&self) -> bool {
        let [least, most] = self.predicted;
        // Printed to a whole percent.
        (least - 0.5..=most + 0.5).contains(&self.measured[1])
    }

    fn is_above(&self) -> bool {
        !self.is_inside() && self.measured[1] > self.predicted[1]
    }
}

impl Row {
    fn line(&self) -> String {
        let cause = if self.is_cause_right { self.cause.clone() } else { format!("**{}**", self.cause) };
        let Some(Tried { what, predicted: [least, most], measured: [low, median, high] }) = &self.tried else {
            return format!("{cause} | | | | {}", if self.is_cause_right { "right" } else { "**wrong**" });
        };
        let verdict = match self.tried.as_ref().map(Tried::is_inside) {
            _ if *high < 0.0 => "**harms**",
            _ if *low <= 0.0 => "helps not for certain",
            Some(true) => "helps, as predicted",
            _ if self.tried.as_ref().is_some_and(Tried::is_above) => "helps, by more",
            _ => "helps, by less",
        };
        format!("{cause} | `{what}` | {least:.0} to {most:.0} | {median:.0} ({low:.0} to {high:.0}) | {verdict}")
    }
}

fn attempt(root: &Path, tlbscope: &Path, program: &Program, folder: &Path) -> Result<Row> {
    if let Some(how) = lack(program.needs) {
        anyhow::bail!("{how}");
    }
    let from = root.join("xtask/advice");
    tool(Command::new("sh").args(["-c", program.build]).env("FROM", from), folder)?;
    let run = |words: &[&str]| -> Result<Output> {
        let mut command = Command::new(tlbscope);
        command.arg("--json").args(words).arg("--").args(program.run.split(' '));
        command.envs(program.environment.iter().copied()).current_dir(folder).stdin(Stdio::null());
        command.output().context("running tlbscope")
    };
    let trace = format!("{}.tlbtrace", program.name.replace(' ', "-"));
    let recorded = rows(&run(&["record", "-o", &trace])?)?;
    let of_kind = |kind: &str| recorded.iter().find(|row| row["kind"] == kind);
    let is_the_tlb = of_kind("verdict").is_some_and(|verdict| verdict["is_the_tlb"] == true);
    let Some(first) = of_kind("cause").filter(|_| is_the_tlb) else {
        return Ok(Row { cause: "not the TLB".into(), is_cause_right: program.cause.is_none(), tried: None });
    };
    let cause = first["cause"].as_str().unwrap_or_default().to_owned();
    let is_cause_right = program.cause.is_some_and(|wanted| cause.starts_with(wanted));
    let advised: Vec<&str> = first["try"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let is_source = program.build == CAUSES && first["where"] == "in the source";
    let changes = if is_source { vec!["FIXED=1"] } else { advised };
    let tried = if changes.is_empty() { None } else { Some(measure(first, &changes, &run)?) };
    Ok(Row { cause, is_cause_right, tried })
}

fn measure(first: &Value, changes: &[&str], run: &dyn Fn(&[&str]) -> Result<Output>) -> Result<Tried> {
    let measured = rows(&run(&[&["try"], changes].concat())?)?;
    let is_cpu_time = |row: &&Value| row["quantity"].as_str().is_some_and(|name| name.starts_with("CPU time"));
    let ratio = measured.iter().find(is_cpu_time).map(|row| &row["ratio"]).context("nothing was measured")?;
    let saved = |key: &str| ratio[key].as_f64().map(|ratio| 100.0 * (1.0 - ratio)).context("a ratio");
    let predicted = [&first["gain_low_pct"], &first["gain_high_pct"]].map(|pct| pct.as_f64().unwrap_or_default());
    let measured = [saved("high")?, saved("ratio")?, saved("low")?];
    Ok(Tried { what: changes.join(" "), predicted, measured })
}

/// What the command printed.
fn rows(output: &Output) -> Result<Vec<Value>> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() != Some(2), "{}", said.lines().last().unwrap_or_default());
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_right_in_its_interval_and_a_loss_is_a_harm() {
        let row = |predicted, measured| {
            let tried = Some(Tried { what: "A=1".into(), predicted, measured });
            Row { cause: "munmap".into(), is_cause_right: true, tried }.line()
        };
        assert_eq!(
            row([5.0, 60.0], [10.0, 20.0, 30.0]),
            "munmap | `A=1` | 5 to 60 | 20 (10 to 30) | helps, as predicted"
        );
        assert!(row([5.0, 60.0], [70.0, 80.0, 90.0]).ends_with("| helps, by more"));
        assert!(row([50.0, 60.0], [20.0, 30.0, 40.0]).ends_with("| helps, by less"));
        assert!(row([5.0, 60.0], [-5.0, 3.0, 6.0]).ends_with("| helps not for certain"));
        assert!(row([5.0, 60.0], [-9.0, -5.0, -1.0]).ends_with("| **harms**"));
    }

    /// The remedies say on which program they were tried, and each of those programs is here.
    #[test]
    fn each_program_that_a_remedy_names_is_there() {
        let remedies = include_str!("../../cli/tlbscope/src/verdict/remedies.toml");
        let named = remedies.lines().filter_map(|line| line.strip_prefix("program = \"")?.strip_suffix('"'));
        let named: Vec<_> = named.collect();
        assert!(named.len() > 15, "{named:?}");
        let is_there = |name: &&str| PROGRAMS.iter().any(|program| program.name == *name);
        assert!(named.iter().all(is_there), "{named:?}");
    }
}

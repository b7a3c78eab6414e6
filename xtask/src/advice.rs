//! `cargo xtask advice`: what `tune` predicts, beside what `try` measures, on nine programs with different allocators.
//!
//! For each program the host is calibrated, the program recorded and tuned, and the best three changes are tried: `tune
//! --try` as anyone runs it, by CPU time of interleaved pairs, so that other load adds noise and no bias. A row stands
//! for a change that was tried, right or wrong. It is a benchmark and no test: its figures are the host's, and only a
//! quiet host's mean much. Nothing is fitted: prices come from the calibration.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::setup::{self, Need, lack, tool};

/// A program that ends by itself, after half a second to two of CPU time: shorter ones are noise.
struct Program {
    name: &'static str,
    needs: &'static [Need],
    /// Builds it, a line for `sh` in the folder of results; `$FROM` has the sources.
    build: &'static str,
    /// A command there.
    run: &'static str,
    /// What its user had set before, outside of the command: what is tried comes after it.
    environment: &'static [(&'static str, &'static str)],
}

const GCC: Need = Need::Program("gcc", "gcc libc6-dev");
const ARENAS: &str = "gcc -O2 -pthread -o arenas $FROM/arenas.c";

const fn program(name: &'static str, needs: &'static [Need], build: &'static str, run: &'static str) -> Program {
    Program { name, needs, build, run, environment: &[] }
}

/// jemalloc, tcmalloc and mimalloc give memory back at once here, as those set them who count their memory: by default
/// jemalloc waits for ten seconds, longer than this program runs, tcmalloc gives back little, and mimalloc waits for
/// 25 ms.
const PROGRAMS: &[Program] = &[
    program("glibc arenas", &[GCC], ARENAS, "./arenas 20000"),
    Program {
        environment: &[("MALLOC_CONF", "dirty_decay_ms:0")],
        ..program(
            "jemalloc",
            &[GCC, Need::File("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "libjemalloc2")],
            ARENAS,
            "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 ./arenas 10000",
        )
    },
    Program {
        environment: &[("TCMALLOC_AGGRESSIVE_DECOMMIT", "1")],
        ..program(
            "tcmalloc",
            &[GCC, Need::File("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")],
            ARENAS,
            "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4 ./arenas 150000",
        )
    },
    Program {
        environment: &[("MIMALLOC_DECOMMIT_DELAY", "0"), ("MIMALLOC_PURGE_DELAY", "0")],
        ..program(
            "mimalloc",
            &[GCC, Need::File("/usr/lib/x86_64-linux-gnu/libmimalloc.so.2", "libmimalloc2.0")],
            ARENAS,
            "env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libmimalloc.so.2 ./arenas 15000",
        )
    },
    program(
        "Go",
        &[Need::Program("go", "golang-go")],
        "GOCACHE=$PWD/go-cache go build -o giving $FROM/giving.go",
        "./giving",
    ),
    program(
        "JVM",
        &[Need::Program("javac", "default-jdk-headless")],
        "javac -d . $FROM/Heap.java",
        "java -XX:+UseSerialGC -Xms8m -Xmx400m -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=10 -cp . Heap",
    ),
    program(
        "redis",
        &[Need::Program("redis-server", "redis-server"), Need::Program("redis-benchmark", "redis-tools")],
        "cp $FROM/redis.sh .",
        "sh redis.sh",
    ),
    program(
        "LMDB",
        &[GCC, Need::File("/usr/include/lmdb.h", "liblmdb-dev")],
        "gcc -O2 -o reader $FROM/reader.c -llmdb && cp $FROM/reader.sh .",
        "sh reader.sh ./reader",
    ),
    program(
        "compile",
        &[GCC],
        "for n in $(seq 0 149); do echo \"int f$n(int x) { return x < $n ? f$n(x + 1) : x * $n; }\"; done > many.c",
        "gcc -O2 -pthread -c -o /dev/null many.c",
    ),
];

/// Runs those whose name holds one of `words`, or all.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<bool> {
    let is_meant = |program: &&Program| words.is_empty() || words.iter().any(|word| program.name.contains(word));
    let chosen: Vec<&Program> = PROGRAMS.iter().filter(is_meant).collect();
    let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
    ensure!(!chosen.is_empty(), "no program `{}`; there are {}", words.join(" "), names.join(", "));
    let folder = setup::target_dir(root).join("advice");
    fs::create_dir_all(&folder)?;
    tool(Command::new("cargo").args(["build", "--package", "tlbscope"]), root)?;
    let tlbscope = setup::target_dir(root).join("debug/tlbscope").canonicalize()?;
    println!("\n| program | change | predicted, ms | measured, ms | of the program | direction | size |");
    println!("|---|---|---|---|---|---|---|");
    let mut rows = Vec::new();
    for program in chosen {
        let name = program.name;
        match attempt(root, &tlbscope, program, &folder)? {
            Ok(found) if found.is_empty() => println!("| {name} | nothing to try | | | | | |"),
            Ok(found) => {
                found.iter().for_each(|row| println!("{}", row.line(name)));
                rows.extend(found);
            }
            Err(why) => println!("| {name} | {why} | | | | | |"),
        }
    }
    let count = |wanted: Size| rows.iter().filter(|row| row.size() == wanted).count();
    let (right, open, wrong) = (count(Size::Right), count(Size::NotToldApart), count(Size::Wrong));
    let directions = rows.iter().filter(|row| row.is_direction_right()).count();
    println!("\ndirection right in {directions} of {}", rows.len());
    println!("size right in {right}: the median in the stated range, or within 25 % of its middle");
    println!("size not told apart in {open}: the measured interval overlaps the range; wrong in {wrong}");
    Ok(true)
}

/// The rows of a program, or why there is none.
fn attempt(root: &Path, tlbscope: &Path, program: &Program, folder: &Path) -> Result<Result<Vec<Row>, String>> {
    if let Some(how) = lack(program.needs) {
        return Ok(Err(format!("not here: {how}")));
    }
    let from = root.join("xtask/advice");
    tool(Command::new("sh").args(["-c", program.build]).env("FROM", from), folder)?;
    // Prices of the same minutes: on a host with neighbours those of an hour ago are another machine's. What the file
    // says against itself goes to our errors.
    let machine = folder.join("this-host.toml");
    let mut calibrate = Command::new(tlbscope);
    tool(calibrate.args(["calibrate", "--quick", "--force", "-o"]).arg(&machine).stdout(Stdio::null()), folder)?;
    let mut tune = Command::new(tlbscope);
    tune.args(["--json", "tune", "--try", "--machine"]).arg(&machine).arg("--").args(program.run.split(' '));
    tune.envs(program.environment.iter().copied()).current_dir(folder).stdin(Stdio::null());
    let output = tune.output().context("running tlbscope tune")?;
    let text = String::from_utf8_lossy(&output.stdout);
    fs::write(folder.join(PathBuf::from(program.name.replace(' ', "-"))).with_extension("jsonl"), text.as_bytes())?;
    let values: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if output.status.code() == Some(2) || values.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Ok(Err(format!("failed: {}", why.lines().last().unwrap_or_default())));
    }
    for untried in values.iter().filter(|value| value["kind"] == "untried") {
        println!("| {} | not tried: {} | | | | | |", program.name, untried["error"]);
    }
    Ok(Ok(rows(&values)))
}

/// Milliseconds of CPU time that a run saves: low, middle, high.
type Range = [f64; 3];

/// A change that was tried: what `tune` said that it saves, and what was measured.
#[derive(Clone, PartialEq, Debug)]
struct Row {
    change: String,
    predicted: Range,
    measured: Range,
    /// CPU time of a run without the change.
    without_ms: f64,
}

/// Whether a size is as it was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Size {
    /// The measured median is in the stated range, or near its middle value.
    Right,
    /// It is not, but the measured interval and the stated range overlap: the noise is too large to say that it is
    /// wrong, and nothing says that it is right.
    NotToldApart,
    /// The two have nothing in common.
    Wrong,
}

impl Row {
    /// Whether it saves, costs, or does nothing, as was said. A measured interval that holds zero is nothing, and so is
    /// less than 2 % of a run.
    fn is_direction_right(&self) -> bool {
        let of = |value: f64| if value.abs() < 0.02 * self.without_ms { 0.0 } else { value.signum() };
        let [low, middle, high] = self.measured;
        of(self.predicted[1]) == if low <= 0.0 && high >= 0.0 { 0.0 } else { of(middle) }
    }

    /// How the measured median, and its interval, lie to the stated range and its middle value.
    fn size(&self) -> Size {
        let ([low, middle, high], [least, median, most]) = (self.predicted, self.measured);
        if (low..=high).contains(&median) || (median - middle).abs() <= 0.25 * median.abs() {
            Size::Right
        } else if least <= high && low <= most {
            Size::NotToldApart
        } else {
            Size::Wrong
        }
    }

    fn line(&self, program: &str) -> String {
        let range = |[low, middle, high]: Range| format!("{middle:.0} ({low:.0} to {high:.0})");
        let (predicted, measured) = (range(self.predicted), range(self.measured));
        let share = 100.0 * self.measured[1] / self.without_ms.max(1e-3);
        let direction = if self.is_direction_right() { "right" } else { "**wrong**" };
        let size = match self.size() {
            Size::Right => "right",
            Size::NotToldApart => "not told apart",
            Size::Wrong => "**wrong**",
        };
        let all = format!("{share:.0} % of {:.0} ms", self.without_ms);
        format!("| {program} | `{}` | {predicted} | {measured} | {all} | {direction} | {size} |", self.change)
    }
}

/// Rows of what `tune --try` printed, one for each change that it tried.
fn rows(values: &[Value]) -> Vec<Row> {
    let of_kind = |kind: &'static str| values.iter().filter(move |value| value["kind"] == kind);
    let row = |measured: &Value| {
        let setting = of_kind("setting").find(|setting| setting["changes"] == measured["changes"])?;
        let predicted = [&setting["low_ms"], &setting["value_ms"], &setting["high_ms"]].map(Value::as_f64);
        let without_ms = 1e3 * measured["without"]["median"].as_f64()?;
        let ratio = &measured["ratio"];
        let saved = |ratio: &Value| Some(without_ms * (1.0 - ratio.as_f64()?));
        let measured_ms = [saved(&ratio["high"])?, saved(&ratio["ratio"])?, saved(&ratio["low"])?];
        let change = measured["changes"].as_array()?.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        let predicted = [predicted[0]?, predicted[1]?, predicted[2]?];
        Some(Row { change, predicted, measured: measured_ms, without_ms })
    };
    let is_cpu_time = |value: &&Value| value["quantity"].as_str().is_some_and(|name| name.starts_with("CPU time"));
    of_kind("measured").filter(is_cpu_time).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(predicted: Range, measured: Range) -> Row {
        Row { change: "A=1".into(), predicted, measured, without_ms: 100.0 }
    }

    #[test]
    fn a_direction_is_right_if_both_save_or_neither_does() {
        assert!(row([5.0, 50.0, 60.0], [10.0, 20.0, 30.0]).is_direction_right());
        assert!(!row([5.0, 50.0, 60.0], [-1.0, 20.0, 30.0]).is_direction_right(), "noise is nothing");
        assert!(row([0.0, 1.0, 2.0], [-1.0, 20.0, 30.0]).is_direction_right());
        assert!(!row([0.0, 1.0, 2.0], [-9.0, -5.0, -4.0]).is_direction_right());
    }

    #[test]
    fn a_size_is_right_in_its_range_or_near_its_middle_and_noise_decides_nothing() {
        let size = |predicted, measured| row(predicted, measured).size();
        assert_eq!(size([5.0, 50.0, 60.0], [5.0, 6.0, 7.0]), Size::Right);
        assert_eq!(size([49.0, 50.0, 51.0], [55.0, 60.0, 66.0]), Size::Right);
        assert_eq!(size([49.0, 50.0, 51.0], [75.0, 80.0, 85.0]), Size::Wrong);
        assert_eq!(size([0.0, 0.0, 0.0], [-2.0, -1.0, -0.5]), Size::Wrong, "a loss that no noise hides");
        assert_eq!(size([0.0, 0.0, 0.0], [-98.0, 89.0, 158.0]), Size::NotToldApart);
    }

    #[test]
    fn a_setting_meets_its_own_measurement() {
        let values = [
            json!({"kind": "setting", "changes": ["A=1"], "low_ms": 1.0, "value_ms": 2.0, "high_ms": 3.0}),
            json!({"kind": "setting", "changes": ["B=1"], "low_ms": 7.0, "value_ms": 8.0, "high_ms": 9.0}),
            json!({
                "kind": "measured", "changes": ["B=1"], "quantity": "CPU time, s", "without": {"median": 0.1},
                "ratio": {"ratio": 0.5, "low": 0.4, "high": 0.6},
            }),
            json!({"kind": "measured", "changes": ["B=1"], "quantity": "wall time, s", "without": {"median": 9.0}}),
        ];
        assert_eq!(rows(&values), [Row { change: "B=1".into(), ..row([7.0, 8.0, 9.0], [40.0, 50.0, 60.0]) }]);
    }
}

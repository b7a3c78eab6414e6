//! Runs in shards: the same bytes come out for any number of them, in any order.

#[path = "command/readme.rs"]
#[allow(dead_code, reason = "the page on sweeps is no README")]
mod readme;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A separate empty folder for a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shards").join(name);
    fs::remove_dir_all(&folder).unwrap_or_default();
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Eight runs: two settings, two policies, two seeds.
const EIGHT: &str = "run ebizzy-m --machine recent-bare --policy linux-6.18,tlbkit --cpus 2 --set threads=1,2 \
                     --seeds 2 --milliseconds 1";

/// What it prints for the eight runs with `more` options; it must succeed.
fn printed(folder: &Path, more: &str) -> String {
    let line = format!("{EIGHT} {more}");
    let output = Command::new(env!("CARGO_BIN_EXE_tlbkit")).args(line.split_whitespace()).current_dir(folder).output();
    let Output { status, stdout, stderr } = output.unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn one_command_and_three_shards_give_the_same_bytes() {
    let folder = folder("bytes");
    let whole = ["--json", ""].map(|format| printed(&folder, format));
    for shard in ["2/3", "3/3", "1/3"] {
        assert!(printed(&folder, &format!("--keep rows --shard {shard}")).starts_with("rows: "));
    }
    assert_eq!(printed(&folder, "--keep rows --shard 1/1"), "rows: 8 runs, 0 of them run now\n");
    assert_eq!(["--json", ""].map(|format| printed(&folder, &format!("{format} --keep rows"))), whole);
    let rows: Vec<Value> = whole[0].lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() == 8 + 4 && rows[0]["set"][0] == "threads=1" && rows[7]["policy"] == "tlbkit", "{}", rows[7]);
    assert_ne!(rows[0]["outcome"], rows[4]["outcome"], "another number of threads is another run");
    assert_eq!(rows[11]["setting"]["set"][0], "threads=2");
    let tables = &whole[1];
    assert!(tables.contains("2 CPUs, 1 ms, threads=1") && tables.contains("2 CPUs, 1 ms, threads=2"), "{tables}");
}

#[test]
fn a_part_that_cannot_be_and_a_place_that_keeps_nothing_are_one_line_and_status_2() {
    for (more, said) in [
        ("--keep rows --shard 4/3", "must be K/N with K from 1 to N"),
        ("--shard 1/3", "--keep <FOLDER>"),
        ("--keep /dev/full", "tlbkit: cannot make /dev/full: "),
        ("--keep /proc/nowhere", "tlbkit: cannot make /proc/nowhere: "),
    ] {
        let line = format!("{EIGHT} {more}");
        let output = Command::new(env!("CARGO_BIN_EXE_tlbkit")).args(line.split_whitespace()).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(said), "{more}: {message}");
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{more}");
    }
}

/// The blocks of the page between lines of three backticks, those for `sh` alone.
fn blocks() -> Vec<String> {
    let page = include_str!("../../../docs/lab/sweeps.md");
    page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// Each ends with the rows of all runs in `results.jsonl`. Slurm must have been started, as `slurm.sh` beside this file
/// does for the step `sweeps` of `cargo xtask test --all`.
#[test]
fn what_the_page_on_sweeps_says_gives_the_same_bytes_with_each_tool() {
    let mut rows: Vec<String> = Vec::new();
    for (block, needs) in blocks().iter().zip(["xargs", "parallel", "sbatch"]) {
        let place = folder(needs);
        let is_there = match needs {
            "sbatch" => Command::new("sinfo").output().is_ok_and(|output| output.status.success()),
            _ => Command::new(needs).arg("--version").output().is_ok(),
        };
        if !is_there {
            println!("skipped: no {needs}");
            continue;
        }
        assert!(block.contains(needs), "{block}");
        let output = readme::run(&format!("set -e\n{block}"), env!("CARGO_BIN_EXE_tlbkit"), &place);
        assert!(output.status.success(), "{block}{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(fs::read_dir(place.join("rows")).unwrap().count() == 4, "the shards ran all of it: {said}");
        rows.push(fs::read_to_string(place.join("results.jsonl")).unwrap());
    }
    assert!(rows.iter().all(|other| *other == rows[0]) && rows[0].lines().count() == 4 + 2, "{rows:?}");
}

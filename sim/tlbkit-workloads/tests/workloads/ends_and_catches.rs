//! Every workload ends, scores what it should, finds nothing wrong on a good kernel, and finds a lost flush.

use crate::common::{Loses, run};
use tlbkit_workloads::{Workload, by_name, names};

fn workload(name: &str, settings: &[&str]) -> Workload {
    let mut workload = by_name(name).unwrap_or_else(|| panic!("no workload {name}"));
    for setting in settings {
        workload.set(setting).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    workload
}

/// Small enough for a host, with the score that each must reach.
const FIXED: [(&str, &[&str], u64); 22] = [
    ("pingpong", &["pages=5", "rounds=7"], 7),
    ("lat-ctx", &["processes=5", "kib=6", "rounds=4"], 20),
    ("netperf", &["pairs=3", "rounds=6"], 18),
    ("memcache", &["workers=3", "items=16", "rounds=6"], 18),
    ("context-switch1", &["threads=3", "rounds=6"], 36),
    ("buildsh", &["jobs=3", "rounds=2", "check_fresh=1"], 6),
    ("compile", &["jobs=3", "rounds=2", "flushes=60", "reads=4", "check_fresh=1"], 360),
    ("flushsizes", &["rounds=40", "check_fresh=1"], 40),
    ("ebizzy-m", &["threads=3", "rounds=4", "check_fresh=1"], 12),
    ("ebizzy-mapped", &["threads=3", "rounds=4", "check_fresh=1"], 12),
    ("ebizzy-arena-old", &["threads=3", "rounds=4", "check_fresh=1"], 12),
    ("ebizzy-modern", &["threads=3", "rounds=4", "check_fresh=1"], 12),
    ("tlb-flush1", &["threads=2", "pages=30", "rounds=2"], 120),
    ("tlb-flush2", &["threads=2", "rounds=2"], 1024),
    ("tlb-flush3", &["threads=2", "pages=30", "rounds=2"], 120),
    ("mapbench-local", &["threads=3", "pages=2", "rounds=5", "check_fresh=1"], 30),
    ("mapbench-pipeline", &["threads=3", "pages=2", "rounds=5", "check_fresh=1"], 30),
    ("mapbench-global", &["threads=3", "pages=2", "rounds=5", "check_fresh=1"], 90),
    ("madvise1", &["threads=3", "rounds=9", "check_fresh=1"], 9),
    ("munmap1", &["threads=3", "pages=2", "rounds=5", "check_fresh=1"], 5),
    ("reclaim", &["threads=3", "pages=20", "rounds=6"], 18),
    ("isolated", &["rounds=5", "calls=1"], 15),
];

#[test]
fn a_fixed_number_of_rounds_gives_a_fixed_score_and_no_wrong_value() {
    assert!(names().eq(FIXED.map(|row| row.0)), "each workload has a row");
    for (name, settings, score) in FIXED {
        let outcome = run(workload(name, settings), 4, 0, Loses::Nothing);
        assert!(!outcome.logs.is_empty(), "{name} did nothing");
        assert_eq!((outcome.score, outcome.wrong), (score, vec![]), "{name}");
    }
}

#[test]
fn an_endless_run_ends_when_it_is_over() {
    for (name, settings, _) in FIXED {
        let mut endless = workload(name, settings);
        endless.set("rounds=0").unwrap();
        for over_after in [0, 1, 2, 3, 9, 50] {
            let outcome = run(endless, 4, over_after, Loses::Nothing);
            assert_eq!(outcome.wrong, vec![], "{name} over after {over_after}");
        }
        assert!(run(endless, 4, 400, Loses::Nothing).score > 0, "{name}");
    }
}

#[test]
fn one_task_alone_is_a_run_too() {
    for (name, key) in [
        ("lat-ctx", "processes=1"),
        ("ebizzy-m", "threads=1"),
        ("tlb-flush2", "threads=1"),
        ("mapbench-pipeline", "threads=1"),
        ("mapbench-global", "threads=1"),
        ("madvise1", "threads=1"),
        ("munmap1", "threads=1"),
    ] {
        let outcome = run(workload(name, &[key, "rounds=2"]), 1, 0, Loses::Nothing);
        assert!(outcome.score > 0 && outcome.wrong.is_empty(), "{name}");
    }
}

#[test]
fn more_tasks_than_one_block_are_all_started_and_joined() {
    assert_eq!(run(workload("lat-ctx", &["processes=150", "rounds=2"]), 4, 0, Loses::Nothing).score, 300);
}

fn assert_catches(loses: Loses, names: &[&str]) {
    for name in names {
        let (_, settings, _) = FIXED.iter().find(|row| row.0 == *name).expect("a row");
        assert!(!run(workload(name, settings), 4, 0, loses).wrong.is_empty(), "{name} does not see {loses:?}");
    }
}

#[test]
fn pages_given_back_but_still_cached_are_seen() {
    let names =
        ["compile", "flushsizes", "ebizzy-arena-old", "tlb-flush1", "tlb-flush2", "mapbench-global", "madvise1"];
    assert_catches(Loses::Dontneed, &names);
}

#[test]
fn unmapped_pages_still_cached_are_seen() {
    let names = ["buildsh", "compile", "ebizzy-m", "ebizzy-mapped", "mapbench-local", "mapbench-pipeline", "munmap1"];
    assert_catches(Loses::Unmap, &names);
}

#[test]
fn pages_still_writable_after_fork_are_seen() {
    assert_catches(Loses::Fork, &["pingpong", "lat-ctx", "netperf", "memcache", "buildsh", "compile"]);
}

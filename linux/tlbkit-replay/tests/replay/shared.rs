//! The two shared traces, replayed under the policy of the kernel that recorded them, agree with what it counted.

use std::path::Path;
use tlbkit::{PRESETS, Policy};
use tlbkit_machine::Machine;
use tlbkit_replay::{Agreement, Recording, agreement, replay};

/// The trace without its first events: the threads that they told of are older then.
fn recording(name: &str, skipped: usize) -> Recording<'static> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tlbkit-trace/tests/data").join(name);
    let open = move || {
        let mut source = tlbkit_trace::open(&path)?;
        (0..skipped).try_for_each(|_| source.next_event().map(drop))?;
        Ok(source)
    };
    Recording::read(open, &|_, _, _| true).expect("the shared trace")
}

fn agreement_of(name: &str, skipped: usize) -> Vec<Agreement> {
    let recording = recording(name, skipped);
    let machine = Machine::builtin("recent-vm").expect("a machine");
    let policy = Policy::preset("linux-6.18").expect("a preset");
    let tallies = replay(&recording, &[policy], &machine).expect("the same trace");
    let rows = agreement(&recording.summary, &tallies[0], &recording.deduced);
    println!("{} own flushes not deduced", recording.deduced.told);
    for row in &rows {
        println!("{:34} {:>7} {:>7} {:?}", row.quantity.label(), row.recorded, row.replayed, row.percent());
    }
    rows
}

/// Every quantity reaches its percentage; what is not named is not promised.
fn assert_reached(rows: &[Agreement], reached: &[(&str, f64)]) {
    for (quantity, least) in reached {
        let row = rows.iter().find(|row| row.quantity.label() == *quantity).expect(quantity);
        let percent = row.percent().unwrap_or(100.0);
        assert!(percent >= *least, "{quantity}: recorded {}, replayed {}", row.recorded, row.replayed);
    }
}

const BUILD: &str = "build-zlib.script.txt.zst";
const STRESS: &str = "stress-ng-tlb-shootdown.script.txt.zst";

#[test]
fn the_build_agrees() {
    let reached = [
        ("task switch, kept", 93.0),
        ("task switch, flushed", 90.0),
        ("local mm shootdown", 99.0),
        ("local mm shootdown, 1 page", 99.0),
        ("local mm shootdown, 2-8 pages", 99.0),
        ("local mm shootdown, 9-33 pages", 99.0),
        ("local mm shootdown, all", 95.0),
        ("remote IPI send", 99.0),
        ("remote wrong CPU", 85.0),
        ("interrupts sent", 99.0),
    ];
    assert_reached(&agreement_of(BUILD, 0), &reached);
}

#[test]
fn the_stress_agrees() {
    let reached = [
        ("task switch, kept", 92.0),
        ("task switch, flushed", 94.0),
        ("local mm shootdown", 99.0),
        ("local mm shootdown, 1 page", 98.9),
        ("local mm shootdown, 2-8 pages", 99.0),
        ("local mm shootdown, 9-33 pages", 92.0),
        ("local mm shootdown, all", 99.0),
        ("remote IPI send", 99.0),
        ("remote wrong CPU", 96.0),
        ("interrupts sent", 99.0),
    ];
    assert_reached(&agreement_of(STRESS, 0), &reached);
}

#[test]
fn what_begins_in_the_middle_agrees_too() {
    let reached = [
        ("task switch, kept", 89.0),
        ("task switch, flushed", 86.0),
        ("local mm shootdown", 99.0),
        ("remote IPI send", 98.0),
        ("remote wrong CPU", 96.0),
        ("interrupts sent", 89.0),
    ];
    assert_reached(&agreement_of(BUILD, 100_000), &reached);
    assert_reached(&agreement_of(STRESS, 150_000), &reached);
}

#[test]
fn every_stored_trace_is_replayed_under_every_policy() {
    let machine = Machine::builtin("recent-vm").expect("a machine");
    for name in [BUILD, STRESS, "service.tlbtrace"] {
        let policies: Vec<Policy> = PRESETS.iter().map(|preset| preset.policy).collect();
        let tallies = replay(&recording(name, 0), &policies, &machine).expect("the same trace");
        for (preset, tally) in PRESETS.iter().zip(tallies) {
            assert!(tally.busy_ns > 0, "{name} under {}", preset.name);
        }
    }
}

//! The two shared traces, replayed under the policy of the kernel that recorded them, agree with what it counted.

use std::path::Path;
use tlbkit::Policy;
use tlbkit_replay::{Agreement, Paging, Recording, agreement, read, replay};
use tlbkit_sim::machine::Machine;

fn recording(name: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tlbkit-trace/tests/data").join(name);
    read(|| tlbkit_trace::open(&path), Paging::AsRecorded).expect("the shared trace")
}

fn agreement_of(name: &str) -> Vec<Agreement> {
    let recording = recording(name);
    let machine = Machine::builtin("recent-vm").expect("a machine");
    let tally = replay(&recording.deduced, Policy::preset("linux-6.18").expect("a preset"), &machine);
    println!("{:?} {:?} {:?} busy {}", tally.interrupts, tally.needed_interrupts, tally.entries_lost, tally.busy_ns);
    let rows = agreement(&recording.summary, &tally);
    for row in &rows {
        println!("{:34} {:>7} {:>7} {:?}", row.quantity, row.recorded, row.replayed, row.percent());
    }
    rows
}

/// Every quantity reaches its percentage; what is not named is not promised.
fn assert_reached(rows: &[Agreement], reached: &[(&str, f64)]) {
    for (quantity, least) in reached {
        let row = rows.iter().find(|row| row.quantity == *quantity).expect(quantity);
        let percent = row.percent().unwrap_or(100.0);
        assert!(percent >= *least, "{quantity}: recorded {}, replayed {}", row.recorded, row.replayed);
    }
}

#[test]
fn the_build_agrees() {
    let reached = [
        ("task switch, kept", 93.0),
        ("task switch, flushed", 93.0),
        ("local mm shootdown", 99.0),
        ("local mm shootdown, 1 page", 99.0),
        ("local mm shootdown, 2-8 pages", 86.0),
        ("local mm shootdown, 9-33 pages", 87.0),
        ("local mm shootdown, all", 95.0),
        ("remote IPI send", 99.0),
        ("remote wrong CPU", 91.0),
        ("interrupts sent", 98.0),
    ];
    assert_reached(&agreement_of("build-zlib.script.txt.zst"), &reached);
}

#[test]
fn the_stress_agrees() {
    let reached = [
        ("task switch, kept", 92.0),
        ("task switch, flushed", 95.0),
        ("local mm shootdown", 99.0),
        ("local mm shootdown, 1 page", 97.0),
        ("local mm shootdown, 2-8 pages", 99.0),
        ("local mm shootdown, 9-33 pages", 78.0),
        ("local mm shootdown, all", 99.0),
        ("remote IPI send", 82.0),
        ("interrupts sent", 96.0),
    ];
    assert_reached(&agreement_of("stress-ng-tlb-shootdown.script.txt.zst"), &reached);
}

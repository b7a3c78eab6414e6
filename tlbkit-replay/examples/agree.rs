//! Prints how a replay agrees with its trace: `agree TRACE [PRESET]`.
use tlbkit_replay::{agreement, deduce, replay};
fn main() {
    let path = std::env::args().nth(1).expect("a trace");
    let preset = std::env::args().nth(2).unwrap_or("linux-6.18".into());
    let deduced = deduce(|| tlbkit_trace::open(path.as_ref())).unwrap();
    let mut source = tlbkit_trace::open(path.as_ref()).unwrap();
    let mut summary = tlbkit_trace::Summary::default();
    while let Some(event) = source.next_event().unwrap() {
        summary.add(&event, source.names());
    }
    let machine = tlbkit_sim::machine::Machine::builtin("recent-vm").unwrap();
    let tally = replay(&deduced, tlbkit::Policy::preset(&preset).unwrap(), &machine);
    for row in agreement(&summary, &tally) {
        println!("{:32} {:>8} {:>8} {:>6.1}", row.quantity, row.recorded, row.replayed, row.percent().unwrap_or(100.0));
    }
    println!("{:?} {} {}", tally.cycles, tally.interrupts, tally.needed_interrupts);
    let mut by = std::collections::BTreeMap::new();
    for op in &deduced.ops {
        if let tlbkit_replay::Step::Revoke { cause, pages, .. } = op.step {
            let b = match pages {
                u64::MAX => "all",
                1 => "1",
                2..=33 => "2-33",
                _ => ">33",
            };
            *by.entry((cause.label(), b)).or_insert(0) += 1;
        }
    }
    println!("{by:?}");
}

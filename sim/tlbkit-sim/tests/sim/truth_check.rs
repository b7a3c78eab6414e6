//! The reference trace must give the miss rates that independent simulators agree on.

use tlbkit_sim::mmu::Mmu;
use tlbkit_sim::mmu::truth::{FlatTables, Trace, reference_config, replay};

/// Accesses of the comparison; with debug assertions a tenth: the cold start then still weighs less than the margin.
const ACCESSES: u64 = if cfg!(debug_assertions) { 5_000_000 } else { 50_000_000 };
const MARGIN_POINTS: f64 = 0.2;

#[test]
fn the_reference_trace_misses_as_often_as_elsewhere() {
    let tables = FlatTables::new();
    let mut mmu = Mmu::new(reference_config());
    mmu.write_cr3(tables.cr3());
    let mut trace = Trace::new(1);
    for _ in 0..ACCESSES / 100_000 {
        let piece: Vec<u64> = trace.by_ref().take(100_000).collect();
        replay(&mut mmu, &tables, &piece);
    }
    let counters = mmu.counters();
    assert_eq!(counters.accesses, ACCESSES);
    let percent = |part: u64| 100.0 * part as f64 / ACCESSES as f64;
    let (first, both) = (percent(counters.l1_misses), percent(counters.walks));
    assert!((first - 49.9).abs() <= MARGIN_POINTS, "{first:.2} % miss the first level");
    assert!((both - 44.0).abs() <= MARGIN_POINTS, "{both:.2} % miss both");
}

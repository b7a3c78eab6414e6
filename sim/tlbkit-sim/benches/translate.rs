//! Accesses per second through arrays and walker, on the trace of `tlbkit_sim::mmu::truth`.
//!
//! The trace is made in pieces outside the clock: replaying is what is measured. `ACCESSES` (environment) sets the
//! length, in millions; the default is the 50 million of the published comparison.

mod clock;

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use tlbkit_sim::mmu::Mmu;
use tlbkit_sim::mmu::truth::{FlatTables, Trace, reference_config, replay};

const MILLION: u64 = 1_000_000;
const PIECE: usize = 1 << 20;
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let millions = match std::env::var("ACCESSES") {
        Ok(text) => text.parse::<u64>().map_err(|e| format!("ACCESSES={text}: {e}"))?,
        Err(_) => 50,
    };
    let mut rates: Vec<f64> = (0..RUNS).map(|_| run(millions * MILLION)).collect();
    rates.sort_by(f64::total_cmp);
    println!("median {:.1} M accesses/s, best {:.1}", rates[RUNS / 2], rates[RUNS - 1]);
    Ok(())
}

/// Replays the trace on new hardware, prints one line and returns millions of accesses per second.
fn run(accesses: u64) -> f64 {
    let tables = FlatTables::new();
    let mut mmu = Mmu::new(reference_config());
    mmu.write_cr3(tables.cr3());
    let mut trace = Trace::new(1);
    let (mut spent, mut left, mut piece) = (Duration::ZERO, accesses, Vec::with_capacity(PIECE));
    while left > 0 {
        piece.clear();
        piece.extend(trace.by_ref().take(PIECE.min(left as usize)));
        left -= piece.len() as u64;
        let (sum, took) = clock::timed(|| replay(&mut mmu, &tables, &piece));
        black_box(sum);
        spent += took;
    }
    let rate = accesses as f64 / spent.as_secs_f64() / MILLION as f64;
    let counters = mmu.counters();
    let percent = |part: u64| 100.0 * part as f64 / accesses as f64;
    println!(
        "{rate:.1} M accesses/s, {:.2} % miss the first level, {:.2} % both",
        percent(counters.l1_misses),
        percent(counters.walks)
    );
    rate
}

//! What interrupts cost: to one CPU that runs or is halted, and to all others. Two times are taken, until sending is
//! done, and until the handler has counted the interrupt. The handler is the protocol's, with no request in its inbox.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use tlbkit_x86::{Destination, interrupts, now_cycles};

use super::sample::Sample;
use crate::arch::apic;
use crate::counters::{self, Counter};
use crate::report;

/// Looks at CPUs that do not answer before they are given up.
const MOST_LOOKS: u64 = 1_000_000_000;
/// So that a CPU is back in its halt, or in its loop, before the next interrupt comes.
const REST_CYCLES: u64 = 20_000;

/// What the other CPUs do meanwhile.
static ARE_HALTED: AtomicBool = AtomicBool::new(false);

/// What every CPU but the first does: it takes interrupts until the machine ends.
pub(crate) fn stand_by() -> ! {
    loop {
        // Relaxed: a hint; partner is the store in `time`, and the interrupt that follows it makes this look again.
        if ARE_HALTED.load(Ordering::Relaxed) {
            // SAFETY: ring 0, handlers are in place.
            unsafe { interrupts::enable_and_halt() }
        } else {
            // SAFETY: as above.
            unsafe { interrupts::enable() }
            core::hint::spin_loop();
        }
    }
}

/// Times interrupts, if there is another CPU to interrupt.
pub(super) fn time(cpus: u32) {
    if cpus < 2 {
        return;
    }
    let one = || there_and_back(Destination::One(apic::id_of(1)), 1..2);
    pair("ipi_send", "ipi_round_trip", one);
    if cpus > 2 {
        pair("ipi_send_shorthand", "ipi_round_trip_all", || there_and_back(Destination::AllButSelf, 1..cpus));
    }
    // Relaxed: as in `stand_by`.
    ARE_HALTED.store(true, Ordering::Relaxed);
    pair("ipi_send_to_halted", "ipi_round_trip_halted", one);
}

fn pair(send: &str, round_trip: &str, once: impl FnMut() -> (u64, u64)) {
    let (sent, answered) = Sample::measure_pair(once);
    sent.report(send);
    answered.report(round_trip);
}

/// Cycles until it was sent, and until all of `receivers` had counted it.
fn there_and_back(to: Destination, receivers: Range<u32>) -> (u64, u64) {
    let rested = now_cycles() + REST_CYCLES;
    while now_cycles() < rested {
        core::hint::spin_loop();
    }
    let goal = received(&receivers) + receivers.len() as u64;
    counters::add(Counter::IpisSent, receivers.len() as u64);
    let begun = now_cycles();
    // SAFETY: ring 0, enabled, and the vector has a handler.
    unsafe { apic::sender().send(to, apic::FLUSH_VECTOR) };
    let sent = now_cycles();
    wait(&receivers, goal);
    (sent - begun, now_cycles() - begun)
}

fn received(receivers: &Range<u32>) -> u64 {
    receivers.clone().map(|cpu| counters::get(cpu, Counter::IpisReceived)).sum()
}

fn wait(receivers: &Range<u32>, goal: u64) {
    let mut looks = 0;
    while received(receivers) < goal {
        core::hint::spin_loop();
        looks += 1;
        if looks > MOST_LOOKS {
            report::failure(&format_args!("one of the CPUs {receivers:?} does not take an interrupt"));
        }
    }
}

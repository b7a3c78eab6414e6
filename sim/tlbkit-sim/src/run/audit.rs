//! The audit at the end of each run: every cycle is in one account, and what two places count agrees.
//!
//! A cycle that is charged twice, or an interrupt that is counted twice, makes a figure wrong, and the run still ends
//! well. So each run compares sums that were made independently, for every CPU or for the whole machine: the clock with
//! the accounts, the observer's counts with the machine's own, the price of all accesses to cache lines with what was
//! charged for them. This takes so little time that every run does it.
//!
//! The audit cannot see a price that is charged twice while the clock moves on as well. Tests that raise each price in
//! turn do.

use crate::error::RunError;
use crate::kernel::Kernel;
use crate::multiprocessor::{InterruptTally, Multiprocessor, NEVER};
use crate::observer::{Cause, Ledger};

/// Two sums of one thing.
struct Pair {
    of: &'static str,
    sums: (u64, u64),
}

/// Compares all sums that are made in two places.
///
/// # Errors
/// The first pair that differs.
pub(super) fn audit(kernel: &Kernel) -> Result<(), RunError> {
    let machine = kernel.machine();
    let end = machine.processor(0).now();
    for cpu in 0..machine.cpus() {
        let processor = machine.processor(cpu);
        let (ledger, now) = (processor.ledger(), processor.now());
        check(Pair { of: "cycles of its clock and of its accounts", sums: (now, ledger.total()) }, Some(cpu))?;
        check(Pair { of: "cycles of its clock and of the first CPU's", sums: (now, end) }, Some(cpu))?;
    }
    let pairs = interrupts(machine).into_iter().chain(invalidations(machine)).chain(lines(machine)).chain(work(kernel));
    pairs.into_iter().try_for_each(|pair| check(pair, None))
}

fn check(pair: Pair, cpu: Option<usize>) -> Result<(), RunError> {
    let Pair { of, sums: (one, other) } = pair;
    if one == other { Ok(()) } else { Err(RunError::Unbalanced { of, cpu, one, other }) }
}

fn interrupts(machine: &Multiprocessor) -> [Pair; 6] {
    let (ipis, needed) = (machine.observer().ipis(), machine.observer().flushes().interrupts);
    let (tally, flushes, kicks) = (machine.tally(), machine.tally().flush_interrupts(), machine.tally().kicks());
    let due =
        |is_due: fn(&Multiprocessor, usize) -> bool| (0..machine.cpus()).filter(|&cpu| is_due(machine, cpu)).count();
    let accounted = |tally: InterruptTally, due: usize| tally.taken + tally.merged + due as u64;
    let flushes_due = due(|machine, cpu| machine.processor(cpu).flush_due_at() != NEVER);
    let kicks_due = due(|machine, cpu| machine.processor(cpu).kick_due_at() != NEVER);
    [
        Pair { of: "flush interrupts asked for, sent or lost", sums: (ipis.sent, flushes.sent + tally.lost()) },
        Pair { of: "flush interrupts asked for, judged", sums: (ipis.sent, needed.done) },
        Pair { of: "flush interrupts sent, accounted for", sums: (flushes.sent, accounted(flushes, flushes_due)) },
        Pair { of: "flush interrupts taken, handled", sums: (flushes.taken, ipis.received) },
        Pair { of: "wake-ups asked for, sent", sums: (ipis.wakes_sent, kicks.sent) },
        Pair { of: "wake-ups sent, accounted for", sums: (kicks.sent, accounted(kicks, kicks_due)) },
    ]
}

fn invalidations(machine: &Multiprocessor) -> [Pair; 4] {
    let flushes = machine.observer().flushes();
    let executed = |of: fn(&Multiprocessor, usize) -> u64| (0..machine.cpus()).map(|cpu| of(machine, cpu)).sum();
    let pages = executed(|machine, cpu| machine.processor(cpu).mmu().counters().executed.pages);
    let everything = executed(|machine, cpu| machine.processor(cpu).mmu().counters().executed.everything);
    let cr3_writes = executed(|machine, cpu| machine.processor(cpu).mmu().counters().executed.cr3_writes);
    let broadcasts = executed(|machine, cpu| machine.processor(cpu).mmu().counters().executed.broadcasts);
    let reached = flushes.broadcasts * machine.cpus() as u64;
    [
        Pair { of: "broadcast invalidations, executed and arrived", sums: (reached, broadcasts) },
        Pair { of: "invalidations of a page, asked for and executed", sums: (flushes.pages.done, pages) },
        Pair { of: "invalidations of more, asked for and executed", sums: (flushes.everything.done, everything) },
        Pair { of: "CR3 writes, asked for and executed", sums: (flushes.cr3.done, cr3_writes) },
    ]
}

fn lines(machine: &Multiprocessor) -> [Pair; 2] {
    let counters = machine.line_counters();
    let answered = counters.hits + counters.same_socket + counters.cross_socket;
    let charged = ledger_of(machine).line_cycles();
    [
        Pair { of: "accesses to cache lines, made and answered", sums: (machine.tally().accesses(), answered) },
        Pair { of: "cycles for cache lines, priced and charged", sums: (machine.line_cycles(), charged) },
    ]
}

fn work(kernel: &Kernel) -> [Pair; 4] {
    let (machine, observer) = (kernel.machine(), kernel.machine().observer());
    let (mut walk_cycles, mut faults) = (0, 0);
    for cpu in 0..machine.cpus() {
        let mmu = machine.processor(cpu).mmu();
        walk_cycles += mmu.counters().walk_cycles;
        faults += mmu.counters().faults;
    }
    let ledger = ledger_of(machine);
    let walks_charged = ledger.of(Cause::WalkUser) + ledger.of(Cause::WalkKernel);
    let (flushes, sizes) = (observer.flushes(), observer.sizes());
    let sized: u64 = sizes.iter().map(|size| size.flushes).sum();
    let local: u64 = sizes.iter().map(|size| size.cycles).sum();
    [
        Pair { of: "cycles of page walks, walked and charged", sums: (walk_cycles, walks_charged) },
        Pair { of: "page faults, raised and handled", sums: (faults, observer.kernel().faults) },
        Pair { of: "flushes, begun and sized", sums: (flushes.flushes, sized) },
        Pair { of: "cycles of local halves, by size and charged", sums: (local, ledger.of(Cause::FlushLocal)) },
    ]
}

fn ledger_of(machine: &Multiprocessor) -> Ledger {
    let mut sum = Ledger::default();
    (0..machine.cpus()).for_each(|cpu| sum.add(&machine.processor(cpu).ledger()));
    sum
}

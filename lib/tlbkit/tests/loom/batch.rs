//! One flush for many spaces: the handshake with its halves apart, and those who come between naming and flushing.

use tlbkit::sync::Ordering;
use tlbkit::{CpuSetUpkeep, Policy, Reason, TlbBatch, TlbGather, Translations};

use crate::cpu::Cpu;
use crate::explore::check;
use crate::machine::{POLICY, Setup};

fn two_spaces() -> Setup {
    Setup { spaces: 2, ..Setup::default() }
}

/// Whoever joins before a space is named is asked, whoever joins later finds its generation.
#[test]
fn inv_2_a_batch_meets_joins() {
    check(
        two_spaces(),
        |_| {},
        [
            |cpu| cpu.evict(&[1, 2]),
            |cpu| {
                cpu.switch(1);
                cpu.access(0);
                cpu.switch(2);
                cpu.access(0);
            },
        ],
    );
}

/// A CPU that has gone to a space that is not meant is not asked: what it did before is over.
#[test]
fn inv_6_a_switch_away_meets_a_batch() {
    check(
        two_spaces(),
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| cpu.evict(&[1]),
            |cpu| {
                cpu.access(0);
                cpu.switch(2);
                cpu.access(0);
            },
        ],
    );
}

/// The same where the set is exact: the CPU is not even looked at.
#[test]
fn inv_6_leaving_an_exact_set_meets_a_batch() {
    check(
        Setup { policy: Policy { cpu_set: CpuSetUpkeep::Exact, ..POLICY }, ..two_spaces() },
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| cpu.evict(&[1]),
            |cpu| {
                cpu.access(0);
                cpu.switch(2);
            },
        ],
    );
}

/// CPU 0 takes a page away and drops the lock; its program goes on with what its TLB holds, and the frame is CPU 1's.
fn evict_for_another(cpu: &Cpu) {
    let mut batch = TlbBatch::new(Vec::<usize>::new());
    cpu.machine.tables[1].pages[0].unhook();
    batch.revoke(&cpu.protocol(), cpu.machine.space(1));
    // Release: the lock of the page table is dropped.
    cpu.machine.unlocked.store(1, Ordering::Release);
    if cpu.runs_a_space() {
        cpu.access(0);
    }
    let _nothing = batch.flush(&cpu.protocol(), Reason::Migrate);
}

/// A CPU takes the lock, finds the entry gone, flushes all the same, and has the frame for itself.
pub(crate) fn find_it_gone(cpu: &Cpu) {
    // Acquire: the lock is taken.
    if cpu.machine.unlocked.load(Ordering::Acquire) != 0 {
        let gather = TlbGather::new(Translations::OfSpace(cpu.machine.space(1)), Vec::<usize>::new());
        assert!(gather.flush(&cpu.protocol()).into_frames().is_empty());
        cpu.machine.tables[1].pages[0].frame.free();
    }
}

/// The entry is found gone when the batch's flush is over, or before: a third CPU has used it.
#[test]
fn c_75_what_others_did_before_a_batch_is_over_for_who_finds_nothing_owed() {
    check(
        Setup { preemptions: 2, ..Setup::default() },
        |[_, _, cpu]| {
            cpu.switch(1);
            cpu.access(0);
        },
        [evict_for_another, find_it_gone, |cpu| cpu.access(0)],
    );
}

/// The entry is found gone before the batch's flush, or in its midst, or after it; a wait ends at once, or by a glance.
#[test]
fn c_75_an_entry_that_is_found_gone_is_flushed() {
    for glances in 0..2 {
        check(
            Setup { glances, ..Setup::default() },
            |[cpu, _]| {
                cpu.switch(1);
                cpu.access(0);
            },
            [evict_for_another, find_it_gone],
        );
    }
}

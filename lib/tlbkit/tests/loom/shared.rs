//! INV-2, INV-6 and INV-8 for spaces with a PCID that all CPUs share, and INVLPGB: the move beside a switch, beside a
//! flush and before one; the PCID of a dead space; what is flushed without an interrupt.

use std::num::NonZeroU32;

use tlbkit::{Broadcast, Directories, Isolation, LazyReferences, Policy};

use crate::cpu::Cpu;
use crate::explore::{all_run_one_space, check};
use crate::machine::{POLICY, Setup};
use crate::sharers::convert_and_unmap;

/// One that moves a space only if it is asked to.
const BROADCAST: Policy = Policy { broadcast: Broadcast::From { cpus: u32::MAX }, ..POLICY };

fn setup() -> Setup {
    Setup { policy: BROADCAST, broadcast_pages: NonZeroU32::new(2), ..Setup::default() }
}

/// Both CPUs run space 1, under the PCID that they share.
fn all_share_one_space<const N: usize>(cpus: &[Cpu; N]) {
    cpus[0].switch(1);
    cpus[0].share(1);
    all_run_one_space(cpus);
}

fn share_and_unmap(cpu: &Cpu) {
    cpu.share(1);
    cpu.unmap(1, &[0]);
}

fn switch_and_access(cpu: &Cpu) {
    cpu.switch(1);
    cpu.access(0);
}

/// Either the move finds the CPU switching and asks it, or the CPU finds the PCID.
#[test]
fn inv_2_join_meets_a_move() {
    check(setup(), |[mover, _]| mover.switch(1), [share_and_unmap, switch_and_access]);
}

/// A CPU that comes back from lazy mode under its own PCID is asked.
#[test]
fn inv_5_leaving_lazy_mode_meets_a_move() {
    check(
        setup(),
        |[mover, cpu]| {
            mover.switch(1);
            cpu.switch(1);
            cpu.lazy();
        },
        [share_and_unmap, switch_and_access],
    );
}

/// The flush executes no INVLPGB, or it comes after the PCID was named. Who then loads that finds the change.
#[test]
fn c_70_a_flush_meets_a_move() {
    check(
        Setup { preemptions: 2, ..setup() },
        all_run_one_space,
        [
            |cpu| cpu.unmap(1, &[0]),
            |cpu| {
                cpu.share(1);
                cpu.access(0);
            },
        ],
    );
}

/// A flush by a third CPU that asks nobody comes after what a CPU did under its own PCID, even if that CPU never loads
/// the one that is named, and the mover does not either: TLBSYNC waits for the CPUs that do.
#[test]
fn c_70_a_flush_after_a_move_comes_after_what_was_done_before_it() {
    check(
        Setup { preemptions: 1, ..setup() },
        |[cpu, _, _]| cpu.switch(1),
        [
            |cpu| {
                cpu.access(0);
                cpu.lazy();
            },
            |cpu| cpu.share(1),
            |cpu| cpu.unmap(1, &[0]),
        ],
    );
}

/// What the last space left under its PCID is gone when the next one gets it.
#[test]
fn inv_8_the_pcid_of_a_dead_space_meets_a_cpu_that_joins_the_next() {
    let policy = Policy { lazy_references: LazyReferences::Awaited, ..BROADCAST };
    check(
        Setup { spaces: 2, policy, preemptions: 2, ..setup() },
        |cpus| {
            all_share_one_space(cpus);
            cpus[1].lazy();
            cpus[0].switch(2);
        },
        [
            |cpu| {
                cpu.destroy(1);
                cpu.share(2);
                cpu.access(0);
            },
            |cpu| {
                cpu.switch(2);
                cpu.access(0);
            },
        ],
    );
}

/// Nobody is interrupted, and who runs the space has stopped using the page.
#[test]
fn inv_6_what_a_cpu_did_is_over_when_tlbsync_is() {
    check(setup(), all_share_one_space, [|cpu| cpu.unmap(1, &[0]), |cpu| (0..2).for_each(|_| cpu.access(0))]);
}

/// A CPU that holds the space lazily is not interrupted, and walks no table that is freed.
#[test]
fn inv_5_a_freed_table_is_out_of_reach_of_a_lazy_cpu_without_an_interrupt() {
    check(
        setup(),
        |cpus| {
            all_share_one_space(cpus);
            cpus[1].lazy();
        },
        [
            |cpu| cpu.unmap_with_tables(1),
            |cpu| {
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

#[test]
fn inv_10_the_user_half_goes_with_the_kernel_half() {
    check(
        Setup { policy: Policy { isolation: Isolation::On, ..BROADCAST }, ..setup() },
        |cpus| {
            all_share_one_space(cpus);
            cpus[1].access(0);
        },
        [|cpu| cpu.unmap(1, &[0]), |cpu| (0..2).for_each(|_| cpu.access(0))],
    );
}

/// A CPU may walk the shared tables until it answers, after the first INVLPGB, and then leave the space or come back.
#[test]
fn inv_6_a_conversion_meets_a_cpu_that_caches_under_the_pcid_that_all_share() {
    check(
        Setup { spaces: 2, directories: Directories::OfEachCpu, is_joined: true, preemptions: 2, ..setup() },
        all_share_one_space,
        [convert_and_unmap, |cpu| {
            cpu.access(0);
            cpu.switch(2);
            cpu.switch(1);
            cpu.access(0);
        }],
    );
}

/// A batch holds one space that moved and one that did not.
#[test]
fn c_75_a_batch_flushes_both_kinds_of_spaces() {
    check(
        Setup { spaces: 2, ..setup() },
        |cpus| {
            all_share_one_space(cpus);
            cpus[1].switch(2);
            cpus[1].switch(1);
        },
        [
            |cpu| cpu.evict(&[1, 2]),
            |cpu| {
                cpu.access(0);
                cpu.switch(2);
                cpu.access(0);
            },
        ],
    );
}

#[test]
fn c_08_kernel_pages_are_flushed_under_every_pcid() {
    check(
        Setup { spaces: 2, kernel_pages: 1, ..setup() },
        |cpus| {
            all_share_one_space(cpus);
            cpus[1].switch(2);
        },
        [
            |cpu| cpu.unmap(0, &[0]),
            |cpu| {
                cpu.access_kernel(0);
                cpu.switch(1);
                cpu.access_kernel(0);
            },
        ],
    );
}

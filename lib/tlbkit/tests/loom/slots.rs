//! INV-8 and INV-4: tags that are taken from one space for another, and sets that are trimmed.

use tlbkit::{CpuSetUpkeep, Policy, Tags};

use crate::explore::check;
use crate::machine::{POLICY, Setup};

/// One slot for two spaces: what the tag held of one must never serve the other.
#[test]
fn inv_8_a_recycled_slot_meets_revoke() {
    check(
        Setup { policy: Policy { tags: Tags::RoundRobin(1), ..POLICY }, spaces: 2, ..Setup::default() },
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| cpu.unmap(1, &[0]),
            |cpu| {
                cpu.switch(2);
                cpu.access(0);
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

/// The first flush takes the CPU out of the set, unless it has come back; the second must find it then.
#[test]
fn inv_2_trim_meets_return() {
    let policy = Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 2 }, ..POLICY };
    check(
        Setup { policy, spaces: 2, pages: 2, ..Setup::default() },
        |[_, cpu]| {
            cpu.switch(1);
            cpu.switch(2);
        },
        [
            |cpu| {
                cpu.unmap(1, &[0]);
                cpu.unmap(1, &[1]);
            },
            |cpu| {
                cpu.switch(1);
                cpu.access(0);
                cpu.access(1);
            },
        ],
    );
}

/// A CPU that another sender's flush has trimmed away is not asked by this one.
#[test]
fn inv_6_a_trimmed_cpu_meets_freed_tables() {
    let policy = Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 2 }, ..POLICY };
    check(
        Setup { policy, spaces: 2, pages: 2, preemptions: 2, ..Setup::default() },
        |[_, cpu, _]| cpu.switch(1),
        [|cpu| cpu.unmap(1, &[1]), |cpu| cpu.switch(2), |cpu| cpu.unmap_with_tables(1)],
    );
}

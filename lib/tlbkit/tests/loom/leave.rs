//! INV-6: a CPU that has left a space is not asked, and neither walks its tables nor uses its translations any more.

use tlbkit::{CpuSetUpkeep, Policy, Tags};

use crate::cpu::Cpu;
use crate::explore::{all_run_one_space, check};
use crate::machine::{POLICY, Setup};

const EXACT: Policy = Policy { cpu_set: CpuSetUpkeep::Exact, ..POLICY };
const UNTAGGED: Policy = Policy { tags: Tags::Off, ..POLICY };

/// CPU 1 runs space 1 and uses it, then does what `leave` says; meanwhile CPU 0 frees tables of that space.
fn freed_tables_meet(setup: Setup, leave: fn(&Cpu)) {
    check(setup, |[_, cpu]| cpu.switch(1), [|cpu| cpu.unmap_with_tables(1), leave]);
}

#[test]
fn inv_6_switch_away_meets_freed_tables() {
    freed_tables_meet(Setup { spaces: 2, ..Setup::default() }, |cpu| {
        cpu.access(0);
        cpu.switch(2);
        cpu.access(0);
    });
}

/// Without tags a switch is a path of its own, with a handshake of its own.
#[test]
fn inv_6_switch_away_without_tags_meets_freed_tables() {
    freed_tables_meet(Setup { policy: UNTAGGED, spaces: 2, ..Setup::default() }, |cpu| {
        cpu.access(0);
        cpu.switch(2);
        cpu.access(0);
    });
}

#[test]
fn inv_6_loading_the_kernels_tables_meets_freed_tables() {
    freed_tables_meet(Setup::default(), |cpu| {
        cpu.access(0);
        cpu.load_kernel();
    });
}

/// A lazy CPU still walks: when tables are freed it must stop.
#[test]
fn inv_6_freed_tables_meet_lazy_mode() {
    freed_tables_meet(Setup::default(), |cpu| {
        cpu.access(0);
        cpu.lazy();
        cpu.switch(1);
        cpu.access(0);
    });
}

/// The set is exact: who is not in it is not even looked at.
#[test]
fn inv_6_leaving_an_exact_set_meets_freed_tables() {
    freed_tables_meet(Setup { policy: EXACT, spaces: 2, ..Setup::default() }, |cpu| {
        cpu.access(0);
        cpu.switch(2);
    });
}

/// The same, seen by a CPU that runs the space and would be alone with it.
#[test]
fn inv_6_being_alone_in_an_exact_set_meets_freed_tables() {
    check(
        Setup { policy: EXACT, spaces: 2, ..Setup::default() },
        all_run_one_space,
        [
            |cpu| cpu.unmap_with_tables(1),
            |cpu| {
                cpu.access(0);
                cpu.switch(2);
            },
        ],
    );
}

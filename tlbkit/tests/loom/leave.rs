//! INV-6: a CPU that has left a space is not asked, and neither walks its tables nor uses its translations any more.

use tlbkit::CpuSetUpkeep;

use crate::machine::{POLICY, Setup, check};

#[test]
fn inv_6_switch_away_meets_freed_tables() {
    check(
        Setup { spaces: 2, ..Setup::default() },
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| cpu.unmap_with_tables(1),
            |cpu| {
                cpu.access(0);
                cpu.switch(2);
                cpu.access(0);
            },
        ],
    );
}

#[test]
fn inv_6_loading_the_kernels_tables_meets_freed_tables() {
    check(
        Setup::default(),
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| cpu.unmap_with_tables(1),
            |cpu| {
                cpu.access(0);
                cpu.load_kernel();
            },
        ],
    );
}

/// The set is exact: who is not in it is not even looked at.
#[test]
fn inv_6_leaving_an_exact_set_meets_freed_tables() {
    let policy = tlbkit::Policy { cpu_set: CpuSetUpkeep::Exact, ..POLICY };
    check(
        Setup { policy, spaces: 2, ..Setup::default() },
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| cpu.unmap_with_tables(1),
            |cpu| {
                cpu.access(0);
                cpu.switch(2);
            },
        ],
    );
}

/// The same, seen by a CPU that runs the space and would be alone with it.
#[test]
fn inv_6_being_alone_in_an_exact_set_meets_freed_tables() {
    let policy = tlbkit::Policy { cpu_set: CpuSetUpkeep::Exact, ..POLICY };
    check(
        Setup { policy, spaces: 2, ..Setup::default() },
        |cpus| cpus.iter().for_each(|cpu| cpu.switch(1)),
        [
            |cpu| cpu.unmap_with_tables(1),
            |cpu| {
                cpu.access(0);
                cpu.switch(2);
            },
        ],
    );
}

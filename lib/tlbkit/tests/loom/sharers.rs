//! Page tables of each CPU's own: who has not hooked a last-level table holds nothing of it, and is not interrupted.

use tlbkit::{Directories, Isolation};

use crate::cpu::Cpu;
use crate::explore::{check, check_end};
use crate::machine::{POLICY, Setup};

fn setup() -> Setup {
    Setup { directories: Directories::OfEachCpu, preemptions: 3, ..Setup::default() }
}

/// All run one space, and the first has hooked its table.
fn first_has_hooked<const N: usize>(cpus: &[Cpu; N]) {
    cpus.iter().for_each(|cpu| cpu.switch(1));
    cpus[0].hook(1);
}

fn all_have_hooked<const N: usize>(cpus: &[Cpu; N]) {
    cpus.iter().for_each(|cpu| cpu.switch(1));
    cpus.iter().for_each(|cpu| cpu.hook(1));
}

/// The only sharer takes a page away while another CPU hooks the table: that one is seen, or walks to nothing.
#[test]
fn inv_6_an_unmap_meets_a_cpu_that_hooks_the_table() {
    check(
        setup(),
        first_has_hooked,
        [
            |cpu| cpu.unmap_within(1, &[0]),
            |cpu| {
                cpu.hook(1);
                cpu.access(0);
            },
        ],
    );
}

/// Two hook a table that nobody had: neither hides the other.
#[test]
fn inv_6_an_unmap_meets_two_that_hook_the_table() {
    fn hook_and_use(cpu: &Cpu) {
        cpu.hook(1);
        cpu.access(0);
    }
    check(
        Setup { preemptions: 2, ..setup() },
        |cpus| cpus.iter().for_each(|cpu: &Cpu| cpu.switch(1)),
        [|cpu| cpu.unmap_within(1, &[0]), hook_and_use, hook_and_use],
    );
}

/// Two share the table, and a third that runs the space hooks it late: each flush passes it by, or reaches it, however
/// many generations it is behind.
#[test]
fn inv_4_flushes_meet_a_cpu_that_earlier_ones_have_passed_by() {
    check(
        Setup { preemptions: 1, pages: 3, ..setup() },
        |cpus| {
            first_has_hooked(cpus);
            cpus[1].hook(1);
        },
        [
            |cpu| cpu.unmap_within(1, &[0]),
            |cpu| {
                cpu.unmap_within(1, &[1]);
                cpu.access(0);
            },
            |cpu| {
                cpu.hook(1);
                cpu.access(1);
                cpu.access(0);
            },
        ],
    );
}

/// A CPU that a flush has passed by is interrupted by one that goes to all, and then flushes everything.
#[test]
fn inv_4_a_flush_to_all_meets_a_cpu_that_an_earlier_one_has_passed_by() {
    check(
        Setup { preemptions: 1, pages: 3, ..setup() },
        |cpus| {
            first_has_hooked(cpus);
            cpus[1].hook(1);
        },
        [
            |cpu| cpu.unmap_within(1, &[0]),
            |cpu| {
                cpu.access(0);
                cpu.unmap(1, &[1]);
                cpu.access(2);
            },
            |cpu| {
                cpu.hook(1);
                cpu.access(1);
            },
        ],
    );
}

/// The thread that used the page runs on another CPU now: the one that it came from may hold it.
#[test]
fn inv_6_an_unmap_after_a_migration_reaches_the_sharer() {
    check(
        setup(),
        first_has_hooked,
        [
            |cpu| {
                cpu.access(0);
                cpu.access(0);
            },
            |cpu| cpu.unmap_within(1, &[0]),
        ],
    );
}

/// The sharer has left the space, or is leaving it, and its ASID keeps what it holds; it comes back.
#[test]
fn inv_2_an_unmap_meets_a_sharer_that_comes_back() {
    check(
        Setup { spaces: 2, ..setup() },
        |cpus| {
            all_have_hooked(cpus);
            cpus[1].switch(2);
        },
        [
            |cpu| cpu.unmap_within(1, &[0]),
            |cpu| {
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

/// A table is freed that one CPU alone has hooked: the other holds the space lazily, and is not interrupted.
#[test]
fn inv_6_a_table_of_one_cpu_is_freed_beside_a_lazy_one() {
    check_end(
        setup(),
        first_has_hooked,
        [
            |cpu| cpu.unmap_within_with_tables(1),
            |cpu| {
                cpu.access(0);
                cpu.lazy();
                cpu.switch(1);
            },
        ],
        |machine| assert_eq!(machine.interrupts.get(), 0, "a CPU that cannot hold it was interrupted"),
    );
}

/// A table is freed that a lazy CPU has hooked, too: it may walk it until it is interrupted.
#[test]
fn inv_6_a_table_is_freed_that_a_lazy_cpu_shares() {
    check(
        setup(),
        all_have_hooked,
        [
            |cpu| cpu.unmap_within_with_tables(1),
            |cpu| {
                cpu.lazy();
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

/// Both halves are flushed where only this CPU is.
#[test]
fn inv_10_an_unmap_alone_reaches_the_user_half() {
    let isolated = tlbkit::Policy { isolation: Isolation::On, ..POLICY };
    check(
        Setup { policy: isolated, pages: 2, ..setup() },
        |cpus| {
            first_has_hooked(cpus);
            cpus[0].access(0);
        },
        [
            |cpu| {
                cpu.unmap_within(1, &[0]);
                cpu.access(0);
                cpu.access(1);
            },
            |cpu| cpu.lazy(),
        ],
    );
}

/// The kernel takes a page away from a space that its CPU has left: what is held under the space's ASID is stale.
#[test]
fn inv_12_an_unmap_from_another_space_makes_the_asid_stale() {
    check(
        Setup { spaces: 2, ..setup() },
        |cpus| {
            first_has_hooked(cpus);
            cpus[0].access(0);
            cpus[0].switch(2);
        },
        [
            |cpu| {
                cpu.unmap_within(1, &[0]);
                cpu.switch(1);
                cpu.access(0);
            },
            |cpu| cpu.access(0),
        ],
    );
}

/// All use the tables that they share.
fn joined() -> Setup {
    Setup { is_joined: true, preemptions: 2, ..setup() }
}

fn all_have_used<const N: usize>(cpus: &[Cpu; N]) {
    cpus.iter().for_each(|cpu| cpu.switch(1));
    cpus.iter().for_each(|cpu| cpu.access(0));
}

/// Converts the space, and takes a page away from the sharers of its table, of whom there are none.
pub(crate) fn convert_and_unmap(cpu: &Cpu) {
    cpu.convert(1);
    cpu.unmap_within(1, &[0]);
}

/// A space is converted whose page another CPU uses, leaves and uses again: whenever it does, it walks its own tables,
/// or the page is there.
#[test]
fn inv_2_a_conversion_meets_a_cpu_that_leaves_and_comes_back() {
    check(
        Setup { spaces: 2, ..joined() },
        all_have_used,
        [convert_and_unmap, |cpu| {
            cpu.switch(2);
            cpu.switch(1);
            cpu.access(0);
        }],
    );
}

/// A lazy CPU leaves the tables that it shared before one of them is freed, or comes back before.
#[test]
fn inv_6_a_conversion_meets_a_lazy_cpu() {
    check(
        joined(),
        all_have_used,
        [
            |cpu| {
                cpu.convert(1);
                cpu.unmap_within_with_tables(1);
            },
            |cpu| {
                cpu.lazy();
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

/// Another CPU takes a page away from all meanwhile, and its answers bring CPUs up to the newest generation.
#[test]
fn inv_4_a_conversion_meets_a_flush() {
    check(
        Setup { preemptions: 1, pages: 2, ..joined() },
        all_have_used,
        [convert_and_unmap, |cpu| cpu.unmap(1, &[1]), |cpu| cpu.access(0)],
    );
}

/// The user half of a CPU that is converted is not the one that it has left.
#[test]
fn inv_10_a_conversion_reaches_the_user_half() {
    let isolated = tlbkit::Policy { isolation: Isolation::On, ..POLICY };
    check(
        Setup { policy: isolated, ..joined() },
        all_have_used,
        [convert_and_unmap, |cpu| {
            cpu.access(0);
            cpu.lazy();
            cpu.switch(1);
            cpu.access(0);
        }],
    );
}

/// The only sharer gives a page away while another CPU hooks the table, and passes: either that one walks to nothing,
/// or the page is held back.
#[test]
fn inv_6_what_is_retired_meets_a_cpu_that_hooks_the_table() {
    check(
        Setup { preemptions: 2, ..setup() },
        first_has_hooked,
        [
            |cpu| {
                if let Some(retired) = cpu.retire_within(1, &[0]) {
                    cpu.reclaim(1, retired, 1);
                }
            },
            |cpu| {
                cpu.hook(1);
                cpu.access(0);
                cpu.pass();
                cpu.access(0);
            },
        ],
    );
}

/// A page that two share is retired, and one that a CPU alone has used is flushed by it at once, in the same epoch: the
/// CPU that has passed by the second one still owes the first.
#[test]
fn inv_6_what_is_retired_meets_a_flush_that_passes_a_sharer_by() {
    check(
        Setup { preemptions: 1, pages: 3, ..setup() },
        |cpus| {
            first_has_hooked(cpus);
            cpus[1].hook(1);
        },
        [
            |cpu| {
                if let Some(retired) = cpu.retire_within(1, &[0]) {
                    cpu.unmap_within(1, &[1]);
                    cpu.reclaim(1, retired, 1);
                }
            },
            |cpu| {
                cpu.access(0);
                cpu.access(1);
                cpu.pass();
                cpu.access(0);
            },
        ],
    );
}

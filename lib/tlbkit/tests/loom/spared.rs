//! INV-6 for CPUs that get no IPI: those that their host does not run, and those that flush at their next entry.

use tlbkit::{HostFlush, KernelFlushes};

use crate::cpu::Cpu;
use crate::explore::{all_run_one_space, check};
use crate::machine::Setup;
use crate::memory::KERNEL;

fn deferring(kernel_pages: usize) -> Setup {
    Setup { kernel_pages, kernel_flushes: KernelFlushes::AtEntry, ..Setup::default() }
}

fn revoke(cpu: &Cpu) {
    cpu.unmap(KERNEL, &[0]);
}

fn revoke_other(cpu: &Cpu) {
    cpu.unmap(KERNEL, &[1]);
}

/// Comes into the kernel, and uses what is mapped there.
fn enter(cpu: &Cpu) {
    cpu.catch_up();
    cpu.access_kernel(0);
}

#[test]
fn inv_6_entering_the_kernel_meets_a_kernel_flush() {
    check(deferring(1), |[_, cpu]| cpu.defer(), [revoke, enter]);
}

#[test]
fn inv_6_leaving_the_kernel_meets_a_kernel_flush() {
    let leave = |cpu: &Cpu| {
        cpu.access_kernel(0);
        cpu.defer();
    };
    check(deferring(1), |_| {}, [revoke, leave]);
}

#[test]
fn inv_6_leaving_and_entering_meet_a_kernel_flush() {
    let there_and_back = |cpu: &Cpu| {
        cpu.access_kernel(0);
        cpu.defer();
        enter(cpu);
    };
    check(Setup { preemptions: 2, ..deferring(1) }, |_| {}, [revoke, there_and_back]);
}

/// The second finds that a flush is owed already.
#[test]
fn inv_6_entering_the_kernel_meets_two_kernel_flushes() {
    let enter_and_use_both = |cpu: &Cpu| {
        enter(cpu);
        cpu.access_kernel(1);
    };
    let setup = Setup { preemptions: 1, ..deferring(2) };
    check(setup, |[_, cpu, _]| cpu.defer(), [revoke, enter_and_use_both, revoke_other]);
}

#[test]
fn inv_6_leaving_the_kernel_meets_two_kernel_flushes() {
    let leave = |cpu: &Cpu| {
        cpu.access_kernel(1);
        cpu.defer();
    };
    check(Setup { preemptions: 1, ..deferring(2) }, |_| {}, [revoke, leave, revoke_other]);
}

/// Its walker may follow the kernel's tables in user mode, too.
#[test]
fn inv_6_a_cpu_in_user_mode_meets_freed_kernel_tables() {
    check(deferring(1), |[_, cpu]| cpu.defer(), [|cpu| cpu.unmap_with_tables(KERNEL), |cpu| _ = cpu.catch_up()]);
}

/// Stopped in user mode, it has not entered by itself.
#[test]
fn inv_6_bring_up_of_a_cpu_that_deferred_meets_a_kernel_flush() {
    let prepare = |[_, cpu]: &[Cpu; 2]| {
        cpu.defer();
        cpu.stop();
    };
    let come_up = |cpu: &Cpu| {
        cpu.bring_up();
        cpu.access_kernel(0);
    };
    check(Setup { preemptions: 2, ..deferring(1) }, prepare, [revoke, come_up]);
}

fn guest() -> Setup {
    Setup { host: HostFlush::TranslationsAndPaths, ..Setup::default() }
}

#[test]
fn inv_6_a_preempted_cpu_meets_revoke() {
    let user = |cpu: &Cpu| {
        cpu.access(0);
        cpu.preempted();
        cpu.access_uninterrupted(0);
    };
    check(guest(), all_run_one_space, [|cpu| cpu.unmap(1, &[0]), user]);
}

/// It has read the generation, and loads CR3 when it goes on.
#[test]
fn inv_2_a_cpu_preempted_in_a_switch_meets_revoke() {
    let prepare = |[_, cpu]: &[Cpu; 2]| (1..=2).for_each(|table| cpu.switch(table));
    let back = |cpu: &Cpu| {
        cpu.core().is_preempted_at_cr3.set(true);
        cpu.switch(1);
        cpu.access(0);
    };
    check(Setup { spaces: 2, ..guest() }, prepare, [|cpu| cpu.unmap(1, &[0]), back]);
}

#[test]
fn inv_6_a_lazy_cpu_that_is_preempted_meets_freed_tables() {
    let lazy = |cpu: &Cpu| {
        cpu.lazy();
        cpu.preempted();
        cpu.switch(1);
        cpu.access(0);
    };
    check(Setup { preemptions: 2, ..guest() }, all_run_one_space, [|cpu| cpu.unmap_with_tables(1), lazy]);
}

#[test]
fn inv_6_a_preempted_cpu_meets_a_kernel_flush() {
    let user = |cpu: &Cpu| {
        cpu.access_kernel(0);
        cpu.preempted();
        cpu.access_kernel(0);
    };
    check(Setup { kernel_pages: 1, ..guest() }, |_| {}, [revoke, user]);
}

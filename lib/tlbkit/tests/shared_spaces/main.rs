//! A small kernel whose processes are shared by `Arc`, without a line of unsafe code. It runs on a soft machine: each
//! CPU is a thread (`machine.rs`), and an access to a frame that was freed ends the test.
//!
//! What it shows a kernel in Rust:
//! - the machine is a static, made by `const` functions;
//! - a process owns its space, and the space owns its set of CPUs: nothing borrows, nothing is leaked;
//! - the kernel's name of a space is a type of its own, and a table leads from the name to the process;
//! - the table's lock is held for a few instructions, never while a CPU waits for another;
//! - a process ends when its last task does: first `destroy`, then the table forgets it, then the `Arc` goes.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

mod kernel;
mod machine;
mod memory;

use std::sync::Arc;
use std::thread;

use kernel::{CPUS, Kernel, PAGES, Pid, Process, va_of};
use machine::SoftCpu;
use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{
    Cpu, CpuId, CpuSetUpkeep, CpuState, Destroyed, Hardware, PhysAddr, Policy, Reason, Scope, Stride, Tlb, TlbGather,
    Translations,
};
use tlbkit_testkit::MODERN;

/// Takes a page from `process` and gives it another one. No CPU uses the old frame when it is freed.
fn replace(kernel: &Kernel, cpu: Cpu<'_, '_, SoftCpu<'_>>, process: &Process, page: usize) {
    let mut gather = TlbGather::new(Translations::OfSpace(&process.space), Vec::new());
    // Relaxed: the flush orders it; partner is what the walks of other CPUs find after they have answered.
    let frame = process.entries[page].swap(0, Ordering::Relaxed);
    gather.unmap(&cpu, va_of(page), Stride::Page4K, Scope::NonGlobal, Reason::RemovePte, frame);
    gather.flush(&cpu).into_frames().into_iter().for_each(|frame| kernel.frames.free(frame));
    // Relaxed: an entry where none was needs no order; a walk finds it, or faults and walks again.
    process.entries[page].store(kernel.frames.alloc(), Ordering::Relaxed);
}

/// The running task of `process` ends; with the last one the process does.
fn exit(kernel: &Kernel, cpu: Cpu<'_, '_, SoftCpu<'_>>, process: Arc<Process>) {
    cpu.hardware().with_irqs_off(|irqs| cpu.load_kernel(irqs));
    cpu.hardware().kept.take();
    // AcqRel: the last one comes after what all others did; partner is itself.
    if process.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
        assert_eq!(cpu.destroy(&process.space), Destroyed::Now);
        let pid = Pid::from(process.space.token());
        kernel.processes.lock().unwrap()[pid.0] = None;
    }
}

/// One CPU: two tasks run on it in turn, each of its own process. Tasks on CPU 0 change pages, the others use them.
fn run_cpu(kernel: &Kernel, me: CpuId, tasks: [Arc<Process>; 2], rounds: usize) {
    let soft = SoftCpu::new(kernel, me, MODERN);
    let cpu = kernel.tlb.cpu(me, &soft);
    soft.with_irqs_off(|irqs| cpu.bring_up(irqs));
    kernel.start.wait();
    for round in 0..rounds {
        let process = &tasks[round % 2];
        soft.with_irqs_off(|irqs| cpu.switch_to(&process.space, irqs));
        soft.kept.replace(Some(Arc::clone(process)));
        if round == 0 {
            // Each CPU runs a process before the first page goes: however they are scheduled, somebody must be told.
            kernel.start.wait();
        }
        for page in 0..PAGES {
            kernel.touch(&soft, page);
            soft.take_interrupt();
        }
        if me.0 == 0 {
            replace(kernel, cpu, process, round % PAGES);
        } else if round % 8 == 7 {
            soft.with_irqs_off(|irqs| cpu.enter_lazy(irqs));
            soft.take_interrupt();
        }
    }
    for process in tasks {
        exit(kernel, cpu, process);
        // Relaxed: a count.
        kernel.tasks_left.fetch_sub(1, Ordering::Relaxed);
    }
    // Relaxed: as above. Until the last process has ended somebody may ask this CPU to leave its set.
    while kernel.tasks_left.load(Ordering::Relaxed) != 0 {
        soft.take_interrupt();
        soft.relax();
    }
}

/// Two processes with a task on each CPU, to the end of both.
fn run(tlb: &'static Tlb<'static>) {
    run_losing(tlb, 0);
}

/// The same, and the first `lost` interrupts are lost.
fn run_losing(tlb: &'static Tlb<'static>, lost: usize) {
    let kernel = Kernel::new(tlb, 2 * CPUS);
    // Relaxed: the CPUs begin later.
    kernel.apics.to_lose.store(lost, Ordering::Relaxed);
    let processes = [kernel.make_process(CPUS), kernel.make_process(CPUS)];
    let ended = processes.each_ref().map(Arc::downgrade);
    thread::scope(|scope| {
        for cpu in 0..CPUS {
            let (kernel, tasks) = (&kernel, processes.clone());
            scope.spawn(move || run_cpu(kernel, CpuId(cpu as u32), tasks, 4000));
        }
        drop(processes);
    });
    // Relaxed: all threads have ended.
    assert_eq!(kernel.apics.to_lose.load(Ordering::Relaxed), 0, "no interrupt was there to be lost");
    assert!(ended.iter().all(|process| process.upgrade().is_none()), "a process outlives its tasks");
}

/// A machine as a static.
macro_rules! machine {
    ($name:ident, $upkeep:expr) => {
        static $name: Tlb<'static> = {
            static STATES: [CpuState; CPUS] = [const { CpuState::new() }; CPUS];
            static MATRIX: [AtomicU64; Tlb::matrix_words(CPUS)] =
                [const { AtomicU64::new(0) }; Tlb::matrix_words(CPUS)];
            Tlb::new(&STATES, &MATRIX, PhysAddr(0), Policy { cpu_set: $upkeep, ..Policy::DEFAULT })
        };
    };
}

/// Trims often, so that CPUs are asked about spaces that they do not run.
#[test]
fn processes_in_arcs_are_shared_by_three_cpus() {
    machine!(TRIMMED, CpuSetUpkeep::Trimmed { every: 4 });
    run(&TRIMMED);
}

/// Each switch asks for the space that it leaves.
#[test]
fn processes_in_arcs_are_shared_where_sets_are_exact() {
    machine!(EXACT, CpuSetUpkeep::Exact);
    run(&EXACT);
}

/// By default who waits asks again: a lost interrupt costs time and nothing else.
#[test]
fn lost_interrupts_are_survived_by_default() {
    machine!(LOSING, CpuSetUpkeep::Trimmed { every: 4 });
    run_losing(&LOSING, 5);
}

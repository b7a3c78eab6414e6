//! What a program does between system calls: loads, stores and computing. Most of the host's time is spent here.

use tlbkit::PhysAddr;
use tlbkit_pmap::{Access as PagerAccess, Fault};

use super::TaskIndex;
use super::memory::KernelMemory;
use super::sched::Fate;
use super::state::Kernel;
use crate::error::RunError;
use crate::mmu::{Access, Overlap, Source};
use crate::observer::{Cause, Intent, KernelEvent, Moment, Walk};

/// More faults in a row at one address than there can be. Another thread may undo what a fault has mapped before the
/// access is tried again, but not that often.
const MOST_FAULTS: u32 = 64;

impl Kernel {
    /// Carries out one access of the running program, faults included, and returns where it went.
    #[inline]
    pub(super) fn touch(&'static self, me: TaskIndex, va: u64, access: Access, overlap: Overlap) -> PhysAddr {
        let mut faults = 0;
        loop {
            let processor = self.machine.running();
            if self.machine.must_look_around(processor) {
                self.pace(me);
                continue;
            }
            if let Ok((pa, source)) = processor.access_as_user(va, access, overlap, &self.phys) {
                if source == Source::Walk {
                    let walk = if faults == 0 { Walk::AtOnce } else { Walk::AfterFault };
                    let root = self.tasks.get(me).process.space().root();
                    self.observer().walked(self.machine.cpu(), root, va, walk);
                }
                return pa;
            }
            faults += 1;
            if faults > MOST_FAULTS {
                self.fail(RunError::FaultLoop { va, faults, cpu: self.machine.cpu() });
            }
            self.page_fault(me, va, access);
        }
    }

    /// A page fault of the running program.
    fn page_fault(&'static self, me: TaskIndex, va: u64, access: Access) {
        let (machine, process) = (self.machine, self.tasks.get(me).process);
        self.observer().kernel_event(KernelEvent::Fault);
        self.note_progress();
        self.enter_kernel();
        machine.running().charge_to(Cause::Fault);
        machine.execute(machine.costs().page_fault);
        self.make_room();
        let held = self.hold_locks(me, self.settings.per_vma_locks.wanted_by_fault(va));
        machine.running().charge_to(Cause::Fault);
        let cpu = machine.cpu();
        self.observer().begin_range(cpu, process.space().root(), va, 1, Intent::Keeps);
        let access = if access == Access::Write { PagerAccess::Write } else { PagerAccess::Read };
        let fault = if machine.defect().loses_repair() {
            Fault::Spurious
        } else {
            machine.with_cpu(cpu, |handle| process.vm.fault(&handle, &KernelMemory(self), va, access))
        };
        self.observer().end_operation(cpu);
        held.release();
        match fault {
            Fault::Bad => self.fail(RunError::BadAccess { va }),
            Fault::OutOfMemory => self.fail_without_frame(),
            _ => {}
        }
        self.return_to_user();
    }

    /// Lets others catch up, takes interrupts, and gives the CPU away if the time slice is over.
    pub(super) fn pace(&'static self, me: TaskIndex) {
        let machine = self.machine;
        machine.sync(machine.touch_lookahead());
        let now = machine.running().now();
        if now >= self.overdue_at() {
            self.fail_overdue(now);
        }
        if machine.noise().tick_due(machine.cpu()) <= now {
            // A kernel that does not disturb its CPUs stops the tick of one that has a single task, as Linux does with
            // `nohz_full`.
            if machine.defers_kernel_flushes() && self.queues.is_empty(machine.cpu()) {
                machine.noise().forget_ticks(machine.cpu(), now);
            } else {
                self.tick(me);
            }
        }
        if self.queues.preempt_at(machine.cpu()) <= machine.running().now() {
            self.observer().kernel_event(KernelEvent::Preemption);
            self.enter_kernel();
            self.switch_away(me, Fate::Queue);
            self.return_to_user();
        }
        let cpu = machine.cpu();
        let looks_at = self.queues.preempt_at(cpu).min(self.overdue_at()).min(machine.noise().tick_due(cpu));
        machine.refresh_limit(cpu, looks_at);
    }

    /// The timer of the CPU interrupts the running program. A balancer may move its task to another CPU.
    fn tick(&'static self, me: TaskIndex) {
        let machine = self.machine;
        self.enter_kernel();
        let (cpu, processor) = (machine.cpu(), machine.running());
        self.observer().passed(cpu, Moment::Tick, processor.now());
        let cycles = machine.costs().interrupt + machine.noise().take_tick(cpu, processor.now());
        processor.advance_for(Cause::Kernel, machine.shared_cycles(cpu, cycles));
        self.balance(me);
        self.return_to_user();
    }

    /// Uses the CPU for `cycles`, more while the other thread of the core is busy.
    pub(super) fn compute(&'static self, me: TaskIndex, cycles: u64) {
        let machine = self.machine;
        let mut left = machine.noise().work(machine.cpu(), cycles);
        loop {
            self.pace(me);
            if left == 0 {
                return;
            }
            let cpu = machine.cpu();
            let processor = machine.processor(cpu);
            let percent = machine.work_percent(cpu);
            let start = processor.now();
            let end = start.saturating_add((left * percent).div_ceil(100));
            let looks_at = processor.takes_at().min(self.queues.preempt_at(cpu)).min(machine.noise().tick_due(cpu));
            let looks_at = looks_at.min(machine.lent_until(cpu));
            machine.sleep_until(end.min(looks_at), Cause::User);
            let done = (processor.now() - start) * 100 / percent;
            left = if processor.now() >= end { 0 } else { left.saturating_sub(done) };
        }
    }
}

//! What a program does between system calls: loads, stores, computing. This is where host time goes.

use tlbkit::VirtAddr;

use super::TaskIndex;
use super::sched::Fate;
use crate::engine::ledger::Cause;
use crate::engine::world::World;
use crate::mmu::{Access, Hit, Mode, Overlap, Source};
use crate::run::RunError;

/// Faults in a row at one address: another thread may undo a repair before the access is tried again, but not so often.
const MOST_FAULTS: u32 = 64;

impl World {
    /// Translates one access of the running program, faults included, and returns where it went.
    #[inline]
    pub(crate) fn touch(&'static self, me: TaskIndex, va: u64, access: Access, overlap: Overlap) -> tlbkit::PhysAddr {
        let mut faults = 0;
        loop {
            let core = self.core();
            if core.clock.get() >= self.limit.get() {
                self.pace(me);
                continue;
            }
            let result = core.mmu.borrow_mut().translate(VirtAddr(va), access, Mode::User, overlap, &self.phys);
            match result {
                Ok(hit) => {
                    self.charge_hit(&hit);
                    return hit.pa;
                }
                Err(fault) => {
                    core.advance_for(Cause::WalkUser, u64::from(fault.cost.cycles));
                    faults += 1;
                    if faults > MOST_FAULTS {
                        self.fail(RunError::FaultLoop { va, faults, cpu: self.cpu() });
                    }
                    self.page_fault(me, va, access);
                }
            }
        }
    }

    #[inline]
    fn charge_hit(&self, hit: &Hit) {
        let core = self.core();
        match hit.cost.source {
            // Two loads start in a cycle; what they load is in the first-level cache.
            Source::L1 => {
                let half = core.half.get() + 1;
                core.half.set(half & 1);
                core.advance_for(Cause::User, u64::from(half >> 1));
            }
            Source::Stlb => core.advance_for(Cause::User, u64::from(hit.cost.cycles)),
            Source::Walk => core.advance_for(Cause::WalkUser, u64::from(hit.cost.cycles)),
        }
    }

    /// Lets others catch up, takes interrupts, and gives the CPU away if the time slice is over.
    pub(crate) fn pace(&'static self, me: TaskIndex) {
        self.sync(self.touch_lookahead());
        let cpu = self.cpu();
        let now = self.cores[cpu].clock.get();
        if now >= self.kernel.overdue_at() {
            self.fail(self.kernel.overrun(now));
        }
        if self.kernel.preempt_at(cpu) <= now {
            self.kernel.count(|counters| counters.preemptions += 1);
            self.enter_kernel();
            self.switch_away(me, Fate::Queue);
            self.return_to_user();
        }
        self.refresh_limit(self.cpu());
    }

    /// Uses the CPU for `cycles`, more while the other thread of the core is busy.
    pub(crate) fn compute(&'static self, me: TaskIndex, cycles: u64) {
        let mut left = cycles;
        loop {
            self.pace(me);
            if left == 0 {
                return;
            }
            let cpu = self.cpu();
            let core = &self.cores[cpu];
            let percent = self.pace_percent(cpu);
            let start = core.clock.get();
            let end = start.saturating_add((left * percent).div_ceil(100));
            self.sleep_until(end.min(core.takes_at()).min(self.kernel.preempt_at(cpu)), Cause::User);
            let done = (core.clock.get() - start) * 100 / percent;
            left = if core.clock.get() >= end { 0 } else { left.saturating_sub(done) };
        }
    }

    /// Siblings are numbered half a socket apart.
    fn pace_percent(&self, cpu: usize) -> u64 {
        let busy = self.sibling(cpu).is_some_and(|sibling| !self.kernel.is_halted(sibling));
        if busy { self.costs.smt_percent } else { 100 }
    }
}

//! The protocol's atomics and its PAUSE: where the code of the protocol meets the machine.
//!
//! Each atomic access is a point at which other CPUs may act, and costs what its cache line costs. A turn of a spin
//! loop that cannot see anything new is slept through.

use std::cell::Cell;

use tlbkit::sync::Access as AtomicAccess;

use super::agenda::NEVER;
use super::line_access::Repeats;
use super::system::Multiprocessor;
use crate::lines::LineId;
use crate::observer::Cause;

thread_local! {
    static ON_THREAD: Cell<Option<&'static Multiprocessor>> = const { Cell::new(None) };
}

/// The observer of the host's thread: called before each atomic access of the protocol takes effect.
pub(crate) fn observe(access: AtomicAccess, address: usize) {
    let Some(machine) = ON_THREAD.get() else { return };
    if machine.running_cpu().is_none() {
        return;
    }
    if access == AtomicAccess::Load && machine.streak.repeats(address, machine.costs.lines.local_cycles) {
        machine.tally.note_access();
    } else {
        machine.look_up(access, address);
    }
}

/// The protocol's atomics.
impl Multiprocessor {
    /// Makes `machine` the one whose protocol runs on this host thread, or none.
    pub(crate) fn install(machine: Option<&'static Self>) {
        ON_THREAD.set(machine);
    }

    #[inline(never)]
    fn look_up(&'static self, access: AtomicAccess, address: usize) {
        self.end_streak();
        if access == AtomicAccess::Fence {
            let processor = self.running();
            processor.advance_to(processor.drained_at.get(), processor.cause());
            processor.advance(self.costs.full_fence);
            return;
        }
        if let Some(queues) = &self.queues
            && let Some(part) = self.tlb.part_at(address)
        {
            return self.access_part(queues, access, part);
        }
        self.access_line(access, address, Repeats::KnownByAddress);
    }

    /// PAUSE in a loop that looks at the kernel's own state, which has no cache lines: no turn of it can be slept
    /// through.
    pub(crate) fn pause(&'static self) {
        let processor = self.running();
        processor.spin.borrow_mut().disturb();
        processor.advance_for(Cause::LockSpin, self.costs.pause);
        processor.pauses_until.set(processor.now());
        self.sync(0);
    }

    /// PAUSE of the protocol: sleeps through the turns of its loop that cannot see anything new.
    pub(super) fn relax(&'static self) {
        let cpu = self.cpu();
        let processor = &self.processors[cpu];
        let cause = match processor.cause() {
            Cause::FlushWait => Cause::FlushWait,
            _ => Cause::LockSpin,
        };
        processor.advance_for(cause, self.costs.pause);
        // An interrupt that is due is taken first. Its handler may fetch a line again that this CPU had lost, and so
        // hide that the line was written.
        self.sync(0);
        self.end_streak();
        let lines = processor.spin.borrow_mut().end_turn();
        let unchanged = |line: &LineId| self.lines.borrow().is_held(cpu as u32, *line);
        if lines.is_empty() || !lines.iter().all(unchanged) {
            return;
        }
        lines.iter().for_each(|&line| self.lines.borrow_mut().watch(cpu as u32, line));
        processor.pauses_until.set(NEVER);
        self.sleep_until(processor.takes_at().min(self.lent_until(cpu)), cause);
        processor.pauses_until.set(0);
        lines.iter().for_each(|&line| self.lines.borrow_mut().unwatch(cpu as u32, line));
        self.sync(0);
    }
}

//! Work under the lock of a node's LRU lists: the wait for the lock, the lines that move with it, and how long it is
//! kept.

use tlbkit::sync::Access as AtomicAccess;

use super::linux_lines::LinuxLine;
use super::lru_lock::LruLocks;
use super::system::Multiprocessor;
use crate::code::LruWork;
use crate::observer::{Cause, LineUse};

impl Multiprocessor {
    /// The running CPU takes the lock of its node's LRU lists, does `work` on them, and releases the lock.
    ///
    /// It waits for the holder of the lock, and for lines that other CPUs had. What it executes is a part of what a
    /// fault or a call costs, and is not charged again: it only keeps other CPUs waiting.
    pub(crate) fn change_lru_lists(&'static self, work: LruWork) {
        self.end_streak();
        self.sync(0);
        let (cpu, processor) = (self.cpu(), self.running());
        processor.spin.borrow_mut().disturb();
        let node = self.topology.socket_index(cpu);
        let came = processor.now();
        if let Some(until) = self.lru_locks.others_until(node, cpu, came) {
            // A waiter looks once in each pause: it sees that the lock is free at the first look after its release.
            let pauses = (until - came).div_ceil(self.costs.pause);
            let seen = came + pauses * self.costs.pause;
            processor.advance_to(seen + self.costs.lines.same_socket_cycles, Cause::LockSpin);
            processor.pauses_until.set(processor.now());
        }
        for (part, line) in LruLocks::lines(node).enumerate() {
            // The lock is taken by a locked operation. What it guards is read, and then written.
            if part == LruLocks::LOCK {
                self.take_lru_line(line, AtomicAccess::Rmw);
            } else {
                self.take_lru_line(line, AtomicAccess::Load);
                self.take_lru_line(line, AtomicAccess::Store);
            }
        }
        self.lru_locks.take(node, cpu, processor.now());
        self.go_on_with_lru_lists(work);
        // The store that releases the lock becomes visible after all stores before it.
        self.lru_locks.keep_until(node, cpu, processor.drained_at.get());
    }

    /// One access to a line that moves with the lock, unless this CPU's own cache answers it.
    fn take_lru_line(&'static self, line: LinuxLine, access: AtomicAccess) {
        let (cpu, processor) = (self.cpu() as u32, self.running());
        let mut lines = self.lines.borrow_mut();
        let line = lines.line_of(line.name());
        if !lines.answers(cpu, access, line) {
            let charge = lines.access(cpu, access, line, processor.now());
            self.tally.note_access();
            processor.advance_line(charge.cycles, LineUse::Other);
            processor.drained_at.set(processor.drained_at.get().max(charge.visible_at));
        }
    }

    /// The running CPU does `work` more under the lock that it still holds.
    pub(crate) fn go_on_with_lru_lists(&self, work: LruWork) {
        let cpu = self.cpu();
        let locked = work.locked * self.costs.lines.locked_cycles;
        let cycles = self.shared_cycles(cpu, self.costs.instructions(work.instructions)) + locked;
        self.lru_locks.keep(self.topology.socket_index(cpu), cpu, self.running().now(), cycles);
    }
}

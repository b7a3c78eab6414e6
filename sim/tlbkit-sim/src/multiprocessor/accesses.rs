//! Memory accesses: the protocol's atomics, and the loads and stores of programs and of the kernel.
//!
//! Each atomic access is a point at which other CPUs may act, and costs what its cache line costs. Loads and stores go
//! through the TLB.

use std::cell::Cell;

use tlbkit::sync::Access as AtomicAccess;
use tlbkit::{CpuId, Part, PhysAddr, VirtAddr};

use super::agenda::NEVER;
use super::linux_lines::LinuxLine;
use super::lists::ListLocks;
use super::processor::{Irqs, Processor};
use super::queues::Queues;
use super::spin::LineFound;
use super::system::Multiprocessor;
use crate::lines::{LineId, Met, Reach, word_bit};
use crate::machine::{ListWork, LooksAt};
use crate::mmu::{Access, Fault, Hit, Overlap, Privilege, Source, Tables};
use crate::observer::{Cause, LineUse};

thread_local! {
    static ON_THREAD: Cell<Option<&'static Multiprocessor>> = const { Cell::new(None) };
}

/// How it is known that an access meets the line of the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repeats {
    /// By its address, as long as nobody else acts.
    KnownByAddress,
    /// It is not: the line has only a name, which no access of the host has.
    NotKnown,
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

    /// An access to the line of the byte at `address`, or that has this name.
    fn access_line(&'static self, access: AtomicAccess, address: usize, repeats: Repeats) {
        let cpu = self.cpu();
        let processor = &self.processors[cpu];
        let met = self.lines.borrow_mut().find(cpu as u32, access, address, processor.now());
        let Met { line, reach, address } = met;
        self.sync(match reach {
            Reach::Settled if processor.irqs() == Irqs::Off => NEVER,
            Reach::Settled => self.touch_lookahead(),
            Reach::Near => self.costs.lines.nearest_cycles(),
            Reach::Far => 0,
        });
        if access == AtomicAccess::Rmw {
            processor.advance_to(processor.drained_at.get(), processor.cause());
        }
        self.tally.note_access();
        let now = processor.now();
        let charge = self.lines.borrow_mut().access(cpu as u32, access, line, now);
        let line_use = if charge.set_words & word_bit(address) != 0 { LineUse::CpuSet } else { LineUse::Other };
        processor.advance_line(charge.cycles, line_use);
        if repeats == Repeats::KnownByAddress {
            let is_settled = reach == Reach::Settled && charge.was_held;
            let ahead = if is_settled { self.touch_lookahead() } else { self.costs.lines.nearest_cycles() };
            let until = self.horizon.get().saturating_add(ahead + 1).min(processor.takes_at());
            self.streak.begin(processor, address, charge.set_words, until);
        }
        if access == AtomicAccess::Load {
            processor.spin.borrow_mut().load(line, if charge.was_held { LineFound::Held } else { LineFound::Fetched });
            return;
        }
        processor.spin.borrow_mut().disturb();
        processor.drained_at.set(processor.drained_at.get().max(charge.visible_at));
        if charge.is_watched {
            let watchers = self.lines.borrow_mut().take_watchers(line);
            watchers.into_iter().for_each(|watcher| self.wake(watcher as usize, now));
        }
    }

    /// PAUSE in a loop that looks at what only the kernel's own state says: nothing can be slept through.
    pub(crate) fn pause(&'static self) {
        let processor = self.running();
        processor.spin.borrow_mut().disturb();
        processor.advance_for(Cause::LockSpin, self.costs.pause);
        processor.pauses_until.set(processor.now());
        self.sync(0);
    }

    /// PAUSE: sleeps through turns of a loop that cannot see anything new.
    pub(super) fn relax(&'static self) {
        let cpu = self.cpu();
        let processor = &self.processors[cpu];
        let cause = match processor.cause() {
            Cause::FlushWait => Cause::FlushWait,
            _ => Cause::LockSpin,
        };
        processor.advance_for(cause, self.costs.pause);
        // First whatever is due: an interrupt taken here may fetch a line again that was lost, and hide the loss.
        self.sync(0);
        self.end_streak();
        let lines = processor.spin.borrow_mut().end_turn();
        let unchanged = |line: &LineId| self.lines.borrow().is_held(cpu as u32, *line);
        if lines.is_empty() || !lines.iter().all(unchanged) {
            return;
        }
        lines.iter().for_each(|&line| self.lines.borrow_mut().watch(cpu as u32, line));
        processor.pauses_until.set(NEVER);
        self.sleep_until(processor.takes_at(), cause);
        processor.pauses_until.set(0);
        lines.iter().for_each(|&line| self.lines.borrow_mut().unwatch(cpu as u32, line));
        self.sync(0);
    }
}

/// What the protocol does to its parts, as what Linux does.
impl Multiprocessor {
    /// An access of the protocol to one of its parts.
    pub(super) fn access_part(&'static self, queues: &Queues, access: AtomicAccess, part: Part) {
        let cpu = self.cpu();
        let own = CpuId(cpu as u32);
        match part {
            Part::Presence(CpuId(of)) => self.access_presence(queues, access, of as usize),
            Part::Mailbox(CpuId(of)) => self.touch(access, LinuxLine::Record(of as usize)),
            Part::Inbox(of) if of != own && access == AtomicAccess::Rmw => self.put_call(queues, of.0 as usize),
            Part::Outbox(of) if of == own && access == AtomicAccess::Load => self.look_for_answers(queues),
            Part::Outbox(of) if of != own => self.access_call(queues, access, of.0 as usize),
            Part::Inbox(_) | Part::TopOfInbox(_) | Part::Outbox(_) => self.pass_free(),
        }
    }

    /// The handler begins: it takes all calls out of its queue.
    pub(super) fn take_calls(&'static self) {
        if self.queues.is_some() {
            self.touch(AtomicAccess::Rmw, LinuxLine::Queue(self.cpu()));
        }
    }

    /// The running CPU waits for its calls from now on: a look at its outbox is one at them.
    pub(super) fn begin_to_wait(&self) {
        if let Some(queues) = &self.queues {
            queues.is_waiting[self.cpu()].set(true);
        }
    }

    /// The same, with a first look. True if it does not answer others by itself meanwhile.
    pub(super) fn wait_for_calls(&'static self) -> bool {
        self.begin_to_wait();
        self.queues.as_ref().inspect(|queues| self.look_for_answers(queues)).is_some()
    }

    /// The flush of the running CPU is over.
    pub(super) fn end_of_calls(&self) {
        if let Some(queues) = &self.queues {
            queues.is_waiting[self.cpu()].set(false);
        }
    }

    /// The running CPU has done its part of a flush, if there was anything to do: it notes the generation.
    pub(super) fn note_flushed(&'static self) {
        let Some(queues) = &self.queues else { return };
        let was_current = queues.was_current[self.cpu()].replace(false);
        if !was_current && queues.code.looks_at == LooksAt::LazyAndLoaded {
            self.touch(AtomicAccess::Store, LinuxLine::Loaded(self.cpu()));
        }
    }

    fn access_presence(&'static self, queues: &Queues, access: AtomicAccess, of: usize) {
        if queues.code.looks_at == LooksAt::LazyAndLoaded {
            self.touch(access, LinuxLine::Loaded(of));
        }
        self.touch(access, LinuxLine::Lazy(of));
    }

    fn put_call(&'static self, queues: &Queues, to: usize) {
        let from = self.cpu();
        queues.waited_for.add(from, to);
        queues.open.add(from, to);
        self.touch(AtomicAccess::Store, queues.call(from, to));
        self.touch(AtomicAccess::Load, LinuxLine::Queue(to));
        self.touch(AtomicAccess::Rmw, LinuxLine::Queue(to));
    }

    /// A target's access to the outbox of `from`.
    fn access_call(&'static self, queues: &Queues, access: AtomicAccess, from: usize) {
        let to = self.cpu();
        let call = queues.call(from, to);
        if access == AtomicAccess::Load {
            self.touch(AtomicAccess::Load, call);
        }
        self.touch(AtomicAccess::Store, call);
        if access == AtomicAccess::Rmw {
            queues.open.remove(from, to);
        }
    }

    /// Looks at one call after the other, up to the first that is not done.
    fn look_for_answers(&'static self, queues: &Queues) {
        let (from, processor) = (self.cpu(), self.running());
        if !queues.is_waiting[from].get() {
            return self.pass_free();
        }
        if processor.cause() == Cause::FlushSend {
            processor.charge_to(Cause::FlushWait);
        }
        while let Some(to) = queues.waited_for.first(from) {
            self.touch(AtomicAccess::Load, queues.call(from, to));
            if queues.open.has(from, to) {
                return;
            }
            queues.waited_for.remove(from, to);
        }
        self.pass_free();
    }

    fn touch(&'static self, access: AtomicAccess, line: LinuxLine) {
        self.access_line(access, line.name(), Repeats::NotKnown);
    }

    /// What has no counterpart costs nothing, and comes in its turn all the same. It has no line that could be watched,
    /// so no loop with it in it is slept through.
    fn pass_free(&'static self) {
        self.running().spin.borrow_mut().disturb();
        self.sync(self.costs.lines.nearest_cycles());
    }
}

/// The lists of pages.
impl Multiprocessor {
    /// The running CPU takes the lock of its node's lists, does this work that changes them, and lets go.
    ///
    /// It waits for whoever has the lock and for lines that others had. What it executes is a part of what a fault or a
    /// call costs, and is not charged again: it only keeps others waiting.
    pub(crate) fn change_lists(&'static self, work: ListWork) {
        self.end_streak();
        self.sync(0);
        let (cpu, processor) = (self.cpu(), self.running());
        processor.spin.borrow_mut().disturb();
        let node = self.topology.socket_index(cpu);
        let came = processor.now();
        if let Some(until) = self.list_locks.others_until(node, cpu, came) {
            // Who waits looks once in each pause: it sees the lock free at the first look after it was let go.
            let pauses = (until - came).div_ceil(self.costs.pause);
            let seen = came + pauses * self.costs.pause;
            processor.advance_to(seen + self.costs.lines.same_socket_cycles, Cause::LockSpin);
            processor.pauses_until.set(processor.now());
        }
        for (part, line) in ListLocks::lines(node).enumerate() {
            // The lock is taken by a locked operation. What it guards is read, and then written.
            if part == ListLocks::LOCK {
                self.take_list_line(line, AtomicAccess::Rmw);
            } else {
                self.take_list_line(line, AtomicAccess::Load);
                self.take_list_line(line, AtomicAccess::Store);
            }
        }
        self.list_locks.take(node, cpu, processor.now());
        self.go_on_with_lists(work);
        // The store that lets go of the lock comes after all stores before it.
        self.list_locks.keep_until(node, cpu, processor.drained_at.get());
    }

    /// One access to a line that moves with the lock, unless this CPU's own cache answers it.
    fn take_list_line(&'static self, line: LinuxLine, access: AtomicAccess) {
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

    /// It has not let go yet, and does so much more.
    pub(crate) fn go_on_with_lists(&self, work: ListWork) {
        let cpu = self.cpu();
        let locked = work.locked * self.costs.lines.locked_cycles;
        let cycles = self.shared_cycles(cpu, self.costs.instructions(work.instructions)) + locked;
        self.list_locks.keep(self.topology.socket_index(cpu), cpu, self.running().now(), cycles);
    }
}

/// Loads and stores by address.
impl Processor {
    /// An access of the running program. Charges for it and says where it goes.
    ///
    /// # Errors
    /// The fault that it raises; what the handler costs is not charged.
    #[inline]
    pub(crate) fn access_as_user(
        &self,
        va: u64,
        access: Access,
        overlap: Overlap,
        tables: &impl Tables,
    ) -> Result<PhysAddr, Fault> {
        let result = self.mmu.borrow_mut().translate(VirtAddr(va), access, Privilege::User, overlap, tables);
        let Hit { pa, cost } = match result {
            Ok(hit) => hit,
            Err(fault) => {
                self.advance_for(Cause::WalkUser, u64::from(fault.cost.cycles));
                return Err(fault);
            }
        };
        match cost.source {
            // Two loads start in a cycle; what they load is in the first-level cache.
            Source::L1 => {
                let half = self.half.get() + 1;
                self.half.set(half & 1);
                self.advance_for(Cause::User, u64::from(half >> 1));
            }
            Source::Stlb => self.advance_for(Cause::User, u64::from(cost.cycles)),
            Source::Walk => self.advance_for(Cause::WalkUser, u64::from(cost.cycles)),
        }
        Ok(pa)
    }

    /// A load by the kernel from its own addresses. Charges for its translation and says where it goes.
    ///
    /// # Errors
    /// The fault that it raises, for which nothing is charged.
    pub(crate) fn load_as_kernel(&self, va: u64, tables: &impl Tables) -> Result<PhysAddr, Fault> {
        let mut mmu = self.mmu.borrow_mut();
        let hit = mmu.translate(VirtAddr(va), Access::Read, Privilege::Kernel, Overlap::Independent, tables)?;
        self.advance_for(Cause::WalkKernel, u64::from(hit.cost.cycles));
        Ok(hit.pa)
    }
}

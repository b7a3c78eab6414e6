//! What the protocol does to its parts, as accesses to the lines of another kernel's queues of calls: the rows of the
//! table in `call_queues`.

use tlbkit::sync::Access as AtomicAccess;
use tlbkit::{CpuId, Part};

use super::call_queues::CallQueues;
use super::line_access::Repeats;
use super::linux_lines::LinuxLine;
use super::system::Multiprocessor;
use crate::code::LooksAt;
use crate::observer::Cause;

impl Multiprocessor {
    /// An access of the protocol to one of its parts.
    pub(super) fn access_part(&'static self, queues: &CallQueues, access: AtomicAccess, part: Part) {
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

    /// The running CPU waits for its calls from now on: when it looks at its outbox, it looks at these.
    pub(super) fn begin_to_wait(&self) {
        if let Some(queues) = &self.queues {
            queues.is_waiting[self.cpu()].set(true);
        }
    }

    /// The running CPU begins to wait for its calls, and looks at them once. True if it does not answer others by
    /// itself meanwhile, which holds for a kernel with queues of calls.
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
        if !was_current && queues.reads.looks_at == LooksAt::LazyAndLoaded {
            self.touch(AtomicAccess::Store, LinuxLine::Loaded(self.cpu()));
        }
    }

    fn access_presence(&'static self, queues: &CallQueues, access: AtomicAccess, of: usize) {
        if queues.reads.looks_at == LooksAt::LazyAndLoaded {
            self.touch(access, LinuxLine::Loaded(of));
        }
        self.touch(access, LinuxLine::Lazy(of));
    }

    fn put_call(&'static self, queues: &CallQueues, to: usize) {
        let from = self.cpu();
        queues.waited_for.add(from, to);
        queues.open.add(from, to);
        self.touch(AtomicAccess::Store, queues.call(from, to));
        self.touch(AtomicAccess::Load, LinuxLine::Queue(to));
        self.touch(AtomicAccess::Rmw, LinuxLine::Queue(to));
    }

    /// A target's access to the outbox of `from`.
    fn access_call(&'static self, queues: &CallQueues, access: AtomicAccess, from: usize) {
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
    fn look_for_answers(&'static self, queues: &CallQueues) {
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

    /// An access without a counterpart in the other kernel: it costs nothing, but it still comes in its turn. It has no
    /// line that could be watched, so no loop that contains it is slept through.
    fn pass_free(&'static self) {
        self.running().spin.borrow_mut().disturb();
        self.sync(self.costs.lines.nearest_cycles());
    }
}

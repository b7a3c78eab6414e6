//! A flush that was issued and not waited for yet.
//!
//! ```compile_fail
//! # use tlbkit::{Cpu, Hardware, TlbGather};
//! # fn free(_: Vec<u32>) {}
//! fn too_early<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u32>>) {
//!     let pending = gather.issue(&cpu);
//!     free(pending.into_frames()); // there is no such thing: frames come out of `wait` alone
//! }
//! ```

use crate::gather::{Flushed, TlbGather};
use crate::hardware::{Event, Hardware};
use crate::issue::Ticket;
use crate::owed::Debts;
use crate::request::Request;
use crate::tlb::Cpu;
use crate::wait::Waited;

impl<'s, S, F> TlbGather<'s, S, F> {
    /// Begins to flush what was named, everywhere, and does not wait: the frames come out of [`Pending::wait`].
    ///
    /// When it returns, this CPU has flushed, and the others have been asked. They may still use what was named, so
    /// nothing may be done to the frames: nothing written that the program must not see, nothing freed. The page tables
    /// may be changed further, and other flushes issued. Who finds an entry gone that this gather names must not go on
    /// before it is flushed (C-28): so issue before the lock of the page table is dropped, and any gather of the space,
    /// or of the kernel if this one is, that is flushed meanwhile flushes for itself, as it does for a
    /// [`TlbBatch`](crate::TlbBatch). That flush takes no global entry along in a gather of a space: where one was
    /// named there with [`Scope::Global`](crate::Scope), keep others away until [`Pending::wait`] has returned.
    ///
    /// It waits for nobody, so it may be called with interrupts off, and under a spin lock. Preemption is off: a task
    /// that has moved to another CPU is noticed at both ends of the call. It is not for interrupt handlers.
    ///
    /// ```
    /// # use tlbkit::*;
    /// fn unmap<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u64>>, free: impl Fn(u64)) {
    ///     let pending = gather.issue(&cpu);
    ///     // give the lock of the page tables back, do something else, then, interrupts on:
    ///     pending.wait(&cpu).into_frames().into_iter().for_each(free);
    /// }
    /// ```
    ///
    /// # Panics
    /// If called while this CPU waits for another flush.
    pub fn issue<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>) -> Pending<'s, S, F> {
        let mut debts = Debts::NONE;
        let ticket = if self.has_work(cpu) {
            let request = self.request(cpu); // before its own debt is among those that it looks for
            cpu.tlb().owed.add(self.space_id(), &mut debts); // before the generation rises, as a batch does
            cpu.issue(self.translations, request, self.reason)
        } else {
            Ticket::Over
        };
        cpu.assert_here(); // what was asked and flushed here may be another CPU's
        let mut pending = Pending { gather: self, ticket, debts };
        pending.settle_if_over(cpu);
        pending
    }
}

/// A flush that was issued: frames that other CPUs may still reach.
///
/// Waited for on any CPU, by [`wait`](Self::wait). Several can be outstanding, of one space or of many, and they can be
/// waited for in any order. The space lives until then. One that is dropped keeps its frames for ever: a leak, not a
/// use-after-free (INV-9). What it owes stays as well: from then on a gather that names nothing flushes the whole
/// space, in this space and in each sixty-fourth. If it was of the kernel's addresses, each gather of those flushes
/// everything.
#[must_use = "a flush that is not waited for leaks its frames, and has others flush in vain"]
pub struct Pending<'s, S, F> {
    gather: TlbGather<'s, S, F>,
    ticket: Ticket,
    /// Until it is over, whoever finds an entry gone must flush for itself.
    debts: Debts,
}

impl<S, F> Pending<'_, S, F> {
    /// True if no CPU can use what was named any more: [`wait`](Self::wait) then returns at once, interrupts on or off.
    ///
    /// It waits for nobody. A request that found all mailboxes in use is asked here, if this CPU has one free now, so
    /// asking again and again gets to `true` as long as the other CPUs take interrupts, or answer by themselves. A
    /// kernel whose interrupts stay off does both in a loop, by [`poll`](Self::poll) or in one of its own, which calls
    /// [`answer`](Cpu::answer) and sends a lost interrupt again to those that are [`missing`](Cpu::missing).
    /// Preemption is off: a task that has moved to another CPU is noticed at both ends of the call, as by `poll`.
    ///
    /// # Panics
    /// If called while this CPU waits for another flush.
    #[must_use]
    #[inline]
    pub fn is_done<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) -> bool {
        cpu.assert_here();
        let is_over = self.is_over(cpu);
        cpu.assert_here(); // what was asked and flushed here may be another CPU's
        is_over
    }

    #[inline(never)] // once in a kernel's text, for two callers
    fn is_over<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) -> bool {
        match &self.ticket {
            Ticket::Over => return true,
            Ticket::Asked(asked) if cpu.first_missing(asked).is_some() => return false,
            Ticket::Asked(_) => {
                self.ticket = Ticket::Over;
                cpu.hardware().event(Event::FlushEnd);
            }
            Ticket::Announced(generation) => {
                let request = Request { generation: *generation, ..self.gather.request(cpu) };
                if let Some(ticket) = cpu.ask_if_free(self.gather.translations, &request, self.gather.reason) {
                    self.ticket = ticket;
                }
            }
        }
        self.settle_if_over(cpu);
        matches!(self.ticket, Ticket::Over)
    }

    /// Returns when [`is_done`](Self::is_done) would say so, and is called with interrupts on or off: what a kernel
    /// whose interrupts stay off calls before [`wait`](Self::wait), which then returns at once.
    ///
    /// It answers other CPUs at each turn, and faces those that are late as every wait does ([`Hardware::late`],
    /// [`Hardware::unanswered`]). In the place of INV-7's interrupts stands a rule for the kernel: whoever waits for
    /// another CPU, in the loop of a lock too, calls [`Cpu::answer`] at each turn, but in the functions of
    /// [`Hardware`], whose locks nobody holds who waits for another CPU. One loop that does not, entered with
    /// interrupts off, may wait for this CPU, which waits for it, until [`Hardware::unanswered`] names it; by default
    /// that panics. Preemption is off, and it is not for interrupt handlers.
    ///
    /// ```
    /// # use tlbkit::*;
    /// fn unmap<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u64>>, free: impl Fn(u64)) {
    ///     let mut pending = gather.issue(&cpu); // under a spin lock, interrupts off
    ///     pending.poll(&cpu);
    ///     pending.wait(&cpu).into_frames().into_iter().for_each(free);
    /// }
    /// ```
    ///
    /// # Panics
    /// If called while this CPU waits for another flush.
    pub fn poll<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) {
        cpu.assert_here();
        cpu.assert_not_inside_another();
        // The patience with those that are asked begins when they are, not when a mailbox is waited for.
        let [mut for_answers, mut for_mailbox] = [Waited::default(), Waited::default()];
        while !self.is_over(cpu) {
            match &self.ticket {
                Ticket::Asked(asked) => cpu.poll_a_turn(asked, &mut for_answers),
                Ticket::Over | Ticket::Announced(_) => cpu.wait_a_turn_for_any(&mut for_mailbox),
            }
        }
        cpu.assert_here();
    }

    fn settle_if_over<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) {
        if matches!(self.ticket, Ticket::Over) {
            cpu.tlb().owed.settle(core::mem::replace(&mut self.debts, Debts::NONE));
        }
    }

    /// Waits until no CPU can use what was named (INV-6), and gives the frames back. Answers other CPUs meanwhile.
    ///
    /// Interrupts on, preemption off, no lock held for which another CPU may spin with its interrupts off: what
    /// [`TlbGather::flush`] needs. It may be called on another CPU than the one that issued the flush.
    ///
    /// # Panics
    /// If other CPUs were to be asked and interrupts are off (INV-7), unless [`is_done`](Self::is_done) has said that
    /// it is over or [`poll`](Self::poll) has returned; if called while this CPU waits for another flush.
    #[inline]
    pub fn wait<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>) -> Flushed<F> {
        match &self.ticket {
            Ticket::Over => {}
            Ticket::Asked(asked) => cpu.wait_for(asked),
            Ticket::Announced(generation) => {
                let request = Request { generation: *generation, ..self.gather.request(cpu) };
                cpu.ask_and_wait(self.gather.translations, request, self.gather.reason);
            }
        }
        cpu.tlb().owed.settle(self.debts);
        self.gather.into_flushed()
    }
}

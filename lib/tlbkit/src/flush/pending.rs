//! A flush in two steps: [`TlbGather::issue`] announces it and sends the request, [`Pending::wait`] waits.
//!
//! **The rule.** Issuing never waits, so it may be done with interrupts off and under a spin lock. If every mailbox may
//! still be being read, the request is not sent: the flush has been announced and done here, and the code that waits
//! for it later sends it first.
//!
//! Only CPUs that have the space loaded need the space in order to carry out a request. So a request that nobody ever
//! waits for is harmless, even when its space has ended. One that trims the CPU set is different: a CPU that runs
//! something else takes itself out of the CPU set of that space. Such a request is sent by the code that waits for it.
//!
//! ```compile_fail
//! # use tlbkit::{Cpu, Hardware, TlbGather};
//! # fn free(_: Vec<u32>) {}
//! fn too_early<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u32>>) {
//!     let pending = gather.issue(&cpu);
//!     free(pending.into_frames()); // there is no such thing: frames come out of `wait` alone
//! }
//! ```

use super::gather::{Flushed, TlbGather};
use super::mailboxes::Issued;
use super::owed::Debts;
use super::request::{Needs, Request};
use super::shootdown::Outcome;
use super::wait::Waited;
use crate::cpu::Cpu;
use crate::hardware::{Event, Hardware};
use crate::policy::Reason;
use crate::space::{Generation, Translations};

/// How far an announced flush has come.
#[derive(Debug)]
enum Progress {
    /// It is over.
    Over,
    /// The request was sent.
    Sent(Issued),
    /// The request was not sent yet; its generation.
    Announced(Generation),
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Begins what [`shootdown`](Self::shootdown) does, and does not wait.
    fn issue(&self, whose: Translations<'_, H::Set>, mut request: Request<'_>, reason: Reason) -> Progress {
        if self.announce(whose, &mut request) == Outcome::Complete {
            return Progress::Over;
        }
        if !request.needs(Needs::TRIM)
            && let Some(progress) = self.send_if_free(whose, &request, reason)
        {
            return progress;
        }
        self.flush_here(&request);
        self.hardware.event(Event::FlushIssued);
        Progress::Announced(request.generation)
    }

    /// Sends the request of an announced flush, and flushes here; does nothing if all mailboxes are in use.
    fn send_if_free(&self, whose: Translations<'_, H::Set>, request: &Request<'_>, reason: Reason) -> Option<Progress> {
        self.assert_here();
        self.assert_not_in_a_flush();
        self.state.is_in_a_flush.set(1); // before it looks: an interrupt handler must not take the same mailbox
        let Some(mailbox) = self.free_mailbox() else {
            self.state.is_in_a_flush.set(0);
            return None;
        };
        let responders = self.send_by_any_mailbox(mailbox, whose, request, reason);
        let (progress, event) = if responders.words.is_empty() {
            (Progress::Over, Event::FlushEnd)
        } else {
            (Progress::Sent(self.record_issued(mailbox, &responders)), Event::FlushIssued)
        };
        self.state.is_in_a_flush.set(0);
        self.hardware.event(event);
        Some(progress)
    }
}

impl<'s, S, F> TlbGather<'s, S, F> {
    /// Begins to flush what was recorded, everywhere, and does not wait: the frames come out of [`Pending::wait`].
    ///
    /// When it returns, this CPU has flushed, and the request has been sent to the other CPUs. They may still use what
    /// was recorded, so the frames must be left alone: nothing may be written that the program must not see, and
    /// nothing may be freed. The page tables may be changed further, and other flushes issued. A CPU that finds a PTE
    /// already cleared by this gather must not go on before it is flushed (C-28). So issue before the
    /// page-table lock is dropped: any gather of the space, or of kernel addresses if this one is, that is flushed
    /// meanwhile then flushes for itself, as it does for a [`TlbBatch`](crate::TlbBatch). In a gather of a space that
    /// flush leaves out global entries: where one was recorded with [`Scope::Global`](crate::Scope), keep other CPUs
    /// away until [`Pending::wait`] has returned.
    ///
    /// It waits for nobody, so it may be called with interrupts off, and under a spin lock. Preemption is off: a task
    /// that has migrated is noticed at both ends of the call. It is not for interrupt handlers.
    ///
    /// ```
    /// # use tlbkit::*;
    /// fn unmap<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u64>>, free: impl Fn(u64)) {
    ///     let pending = gather.issue(&cpu);
    ///     // drop the page-table lock, do something else, then, with interrupts on:
    ///     pending.wait(&cpu).into_frames().into_iter().for_each(free);
    /// }
    /// ```
    ///
    /// # Panics
    /// If called while this CPU waits for another flush.
    pub fn issue<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>) -> Pending<'s, S, F> {
        let mut debts = Debts::NONE;
        let progress = if self.has_work(cpu) {
            let request = self.request(cpu); // before its own debt is among those that it looks for
            cpu.tlb().owed.add(self.space_id(), &mut debts); // before the generation rises, as in a batch
            cpu.issue(self.translations, request, self.reason())
        } else {
            Progress::Over
        };
        cpu.assert_here(); // otherwise what was sent and flushed here was another CPU's
        let mut pending = Pending { gather: self, progress, debts };
        pending.settle_if_over(cpu);
        pending
    }
}

/// A flush that was issued, with the frames that other CPUs may still reach.
///
/// It can be waited for on any CPU, by [`wait`](Self::wait). Several can be outstanding, of one space or of many, and
/// they can be waited for in any order. The space must live until then. One that is dropped keeps its frames for ever:
/// a leak, not a use-after-free (INV-9). What it owes stays as well: from then on a gather in which nothing was
/// recorded flushes the whole space, in this space and in every sixty-fourth. If it was about kernel addresses, each
/// gather of those flushes everything.
#[must_use = "a flush that is not waited for leaks its frames, and makes other flushes do more than they need"]
pub struct Pending<'s, S, F> {
    gather: TlbGather<'s, S, F>,
    progress: Progress,
    /// Until it is over, a CPU that finds a PTE cleared must flush for itself.
    debts: Debts,
}

impl<S, F> Pending<'_, S, F> {
    /// True if no CPU can use what was recorded any more: [`wait`](Self::wait) then returns at once. It may be called
    /// with interrupts off, and it answers nobody.
    ///
    /// A flush that found all mailboxes in use is sent here, if this CPU has a free one now. So asking again and again
    /// gets to `true` as long as the other CPUs take interrupts, or answer by themselves. A kernel whose interrupts
    /// stay off does both in a loop: by [`poll`](Self::poll), or in a loop that calls [`answer`](Cpu::answer) and sends
    /// another IPI to those CPUs that are [`missing`](Cpu::missing). Preemption is off: a task that has migrated is
    /// noticed at both ends of the call, as by `poll`.
    ///
    /// # Panics
    /// If called while this CPU waits for another flush.
    #[must_use]
    #[inline]
    pub fn is_done<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) -> bool {
        cpu.assert_here();
        let is_over = self.is_over(cpu);
        cpu.assert_here(); // otherwise what was sent and flushed here was another CPU's
        is_over
    }

    fn is_over<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) -> bool {
        match &self.progress {
            Progress::Over => return true,
            Progress::Sent(issued) if cpu.first_missing(issued).is_some() => return false,
            Progress::Sent(_) => {
                self.progress = Progress::Over;
                cpu.hardware().event(Event::FlushEnd);
            }
            Progress::Announced(generation) => {
                let request = Request { generation: *generation, ..self.gather.request(cpu) };
                if let Some(progress) = cpu.send_if_free(self.gather.translations, &request, self.gather.reason()) {
                    self.progress = progress;
                }
            }
        }
        self.settle_if_over(cpu);
        matches!(self.progress, Progress::Over)
    }

    /// Returns when [`is_done`](Self::is_done) would be true, and is called with interrupts on or off: what a kernel
    /// whose interrupts stay off calls before [`wait`](Self::wait), which then returns at once.
    ///
    /// It answers other CPUs at each turn, and deals with those that are late as every wait does ([`Hardware::late`],
    /// [`Hardware::unanswered`]). The interrupts of INV-7 are replaced by a rule for the kernel: every loop that waits
    /// for another CPU, that of a lock too, calls [`Cpu::answer`] at each turn. Functions of [`Hardware`] are exempt;
    /// nobody may hold their locks while waiting for another CPU. One loop that spins with interrupts off and does not
    /// answer deadlocks with this CPU, until [`Hardware::unanswered`] panics or does something better. Preemption is
    /// off, and it is not for interrupt handlers.
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
        cpu.assert_not_in_a_flush();
        // The patience with the responders begins when the request is sent, not while a mailbox is waited for.
        let [mut for_answers, mut for_mailbox] = [Waited::default(), Waited::default()];
        while !self.is_over(cpu) {
            match &self.progress {
                Progress::Sent(issued) => _ = cpu.wait_a_turn_for_issued(issued, &mut for_answers),
                Progress::Over | Progress::Announced(_) => cpu.wait_a_turn_for_mailbox(&mut for_mailbox),
            }
        }
        cpu.assert_here();
    }

    /// Waits until no CPU can use what was recorded (INV-6), and gives the frames back. Answers other CPUs meanwhile.
    ///
    /// Interrupts are on, preemption is off, and no lock is held for which another CPU may spin with interrupts off:
    /// what [`TlbGather::flush`] needs too. It may be called on another CPU than the one that issued the flush.
    ///
    /// # Panics
    /// If other CPUs have to flush and interrupts are off (INV-7), unless [`is_done`](Self::is_done) was true or
    /// [`poll`](Self::poll) has returned; if called while this CPU waits for another flush.
    #[inline]
    pub fn wait<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>) -> Flushed<F> {
        match &self.progress {
            Progress::Over => {}
            Progress::Sent(issued) => cpu.wait_for_issued(issued),
            Progress::Announced(generation) => {
                let mut request = Request { generation: *generation, ..self.gather.request(cpu) };
                let is_of_space = matches!(self.gather.translations, Translations::OfSpace(_));
                if is_of_space && cpu.tlb().is_trim_due(request.generation, request.needs) {
                    request.needs = request.needs.with(Needs::TRIM);
                }
                cpu.assert_here();
                cpu.assert_not_in_a_flush();
                cpu.flush_with_others(self.gather.translations, &request, self.gather.reason());
            }
        }
        cpu.tlb().owed.settle(self.debts);
        self.gather.into_flushed()
    }

    fn settle_if_over<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) {
        if matches!(self.progress, Progress::Over) {
            cpu.tlb().owed.settle(core::mem::replace(&mut self.debts, Debts::NONE));
        }
    }
}

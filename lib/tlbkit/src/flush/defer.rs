//! [`TlbBatch::defer`] (Linux: LUF, an RFC of 2025; Xen: `tlbflush_timestamp`): a batch that is flushed when its frames
//! are needed, and not when they are taken. So one flush serves thousands of frames, and leaves out the CPUs that have
//! flushed meanwhile.
//!
//! **The rule.** It is for frames whose recorded translations could only read, and of whose content nothing changes
//! before the flush: until then a CPU may read the old frame while another one reads the page in a new one, and both
//! have to find the same. So, from the moment at which the first translation is taken out until
//! [`Deferred::flush`] returns,
//! - the kernel writes nothing into such a frame: it is not zeroed, not poisoned, and no list is threaded through it;
//! - a dirty page, and one that some entry allowed to be written, is not deferred: it goes into another batch;
//! - a fault that maps something writable where an entry was found cleared calls [`Cpu::drain`] first, under the lock
//!   of the page table (`tlbkit-pmap` does). munmap, mprotect and copies on write find by themselves that one is owed,
//!   or that the generation has moved on (`owed.rs`);
//! - before a file is written or truncated, or mapped so that a program may write it, what was deferred of it is
//!   flushed. The library does not know of files: their owner looks after that.
//!
//! Page tables are never deferred: a walker would read what is written there next (C-20).
//!
//! **Who is left out.** The batch's flush is `batch.rs`'s, but for the CPUs that have *passed* since the batch was
//! closed ([`GracePeriods::pass`]). To close it ends the epoch:
//!
//! ```text
//!   CPU that takes frames (revoke, defer)      CPU that passes (pass)            CPU that needs frames (flush)
//!   change the PTE; advance the generation     is the epoch another one than
//!   fence(SeqCst)                              it has passed?
//!   targets |= CPU set                         if so: fence(SeqCst)
//!   ... any number of times ...                read the generation; if it is
//!   after := epoch; epoch := after + 1         newer: flush all of the space
//!                                              passed := that epoch  (Release)   has it passed `after`?   (Acquire)
//!                                                                                if not: is it lazy, or elsewhere?
//!                                                                                send it a request, and wait
//! ```
//! A CPU that passes a later epoch than `after` has read it after it was ended, so by the two fences it reads the
//! generation of every change that was recorded before, of whatever space: it has flushed what it runs, and compares
//! what it loads later (INV-2). Who has flushed for another reason, as in a switch or an answer, may call `pass` there
//! for the price of a few loads, since the generation is current by then; who calls it at each tick is interrupted by
//! no batch that lies for longer than that, and flushes once for each.
//!
//! ```compile_fail
//! # use tlbkit::{Cpu, GracePeriods, Hardware, TlbBatch};
//! # fn free(_: Vec<u32>) {}
//! fn too_early<H: Hardware>(cpu: &Cpu<'_, '_, H>, periods: &GracePeriods, batch: TlbBatch<Vec<u32>>) {
//!     free(batch.defer(cpu, periods).into_frames()); // there is no such thing: frames come out of `flush` alone
//! }
//! ```

use super::batch::TlbBatch;
use super::gather::Flushed;
use super::retire::GracePeriods;
use crate::cpu::Cpu;
use crate::hardware::Hardware;
use crate::policy::Reason;

/// A batch that was closed, and whose frames nobody needs yet. One that is dropped keeps its frames for ever: a leak,
/// not a use-after-free (INV-9). The stamp of a kernel that keeps its frames elsewhere is a `Deferred<()>`, which
/// cannot be [folded](Self::fold).
#[must_use = "a batch that is not flushed leaks its frames, and makes other flushes do more than they need"]
pub struct Deferred<F> {
    batch: TlbBatch<F>,
    /// A CPU that has passed a later epoch holds nothing of the batch.
    after: u64,
}

impl<F> TlbBatch<F> {
    /// Closes the batch without a flush: the frames come out of [`Deferred::flush`]. The rule at the head of
    /// `flush/defer.rs` says for what that is right. It interrupts nobody and waits for nobody, so interrupts may be
    /// off.
    ///
    /// Other CPUs may go on reading what was recorded. A kernel bounds how much it holds like this, and flushes
    /// earlier where the rule says so; meanwhile each gather of these spaces in which nothing is recorded flushes the
    /// whole space.
    ///
    /// # Panics
    /// If a page-table page was recorded.
    pub fn defer<H: Hardware>(self, cpu: &Cpu<'_, '_, H>, periods: &GracePeriods<'_>) -> Deferred<F> {
        cpu.assert_here();
        assert!(!self.has_tables(), "page tables are not deferred: a CPU may be walking them");
        Deferred { after: periods.end_epoch(), batch: self }
    }
}

impl<F> Deferred<F> {
    /// Takes `other` in, so that one flush serves both: batches that several CPUs have filled, or one after the other.
    pub fn fold<T, H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, other: Self)
    where
        F: IntoIterator<Item = T> + Extend<T>,
    {
        self.after = self.after.max(other.after);
        self.batch.fold(cpu, other.batch);
    }

    /// Flushes what was recorded, on the CPUs that have not passed since, and gives the frames back. It promises what
    /// [`TlbBatch::flush`] does. This CPU passes first, so if all others have passed there is nothing to do.
    ///
    /// # Panics
    /// As [`TlbBatch::flush`]; if there are fewer [`Passed`](crate::Passed) than CPUs.
    pub fn flush<H: Hardware>(mut self, cpu: &Cpu<'_, '_, H>, periods: &GracePeriods<'_>, why: Reason) -> Flushed<F> {
        cpu.with_irqs_off_here(|irqs| periods.pass(cpu, irqs));
        self.batch.leave_out(cpu.tlb().cpus(), |cpu| periods.has_passed(cpu, self.after));
        if self.batch.concerns_nobody() { self.batch.settle(cpu) } else { self.batch.flush(cpu, why) }
    }
}

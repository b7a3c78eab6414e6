//! [`TlbBatch`] (Linux: `tlbflush_unmap_batch`): one flush for translations of many spaces, as reclaim and migration
//! need it.
//!
//! Reclaim takes one frame out of the page tables of all spaces that map it, then the next one, and frees them
//! together. A gather for each space would interrupt the same CPUs again and again. A batch records translations of any
//! number of spaces without allocating, and sends each CPU one request: "bring what you have loaded up to its newest
//! generation".
//!
//! ```text
//!   batch (unmap)                                  CPU that joins the space (switch/mod.rs)
//!   change the PTE                                 join the CPU set; presence := switching
//!   owed += 1; advance the generation              fence(SeqCst)
//!   fence(SeqCst)       (in advance)               read the generation
//!   targets |= CPU set                             load CR3; presence := running
//!   ... any number of spaces ...
//!   flush: read the presence of the targets
//! ```
//! This is the race of `space/mod.rs` with the initiator's part in two pieces. A CPU that joins after the CPU set was
//! read finds the generation, and a CPU that was in the set is looked at by `flush`. Until then programs may still use
//! the pages; what another CPU that finds the PTE cleared must do is in `owed.rs`.
//!
//! ```compile_fail
//! # use tlbkit::TlbBatch;
//! # fn free(_: Vec<u32>) {}
//! let batch = TlbBatch::new(vec![1u32]);
//! free(batch.frames); // private: freeing before flushing does not compile
//! ```

use core::mem::ManuallyDrop;

use super::gather::Flushed;
use super::owed::Debts;
use super::request::{Extent, Needs, Request};
use super::targets::BatchTargets;
use crate::addr::CpuId;
use crate::cpu::Cpu;
use crate::hardware::Hardware;
use crate::policy::Reason;
use crate::space::{AddressSpace, SpaceId, Translations};

/// Translations of any number of spaces that were taken away, and their frames, waiting for one flush. `F` is any
/// collection of frames.
///
/// Record a translation while its page-table lock is held (C-75). Recording waits for nobody: interrupts may be off. A
/// batch may be filled and flushed on different CPUs, one after the other. It is for user addresses without the global
/// bit.
///
/// Until [`flush`](Self::flush) returns nothing is promised: programs go on using what their CPUs have cached. Code
/// that relies on something else to be true of such a page, that it is clean for instance, has to look after the flush.
#[must_use = "a batch that is not flushed leaks its frames, and makes other flushes do more than they need"]
pub struct TlbBatch<F> {
    targets: BatchTargets,
    debts: Debts,
    needs: Needs,
    /// A frame is held.
    holds: bool,
    frames: ManuallyDrop<F>,
}

impl<F> TlbBatch<F> {
    /// An empty batch; `frames` is where it keeps frames.
    pub const fn new(frames: F) -> Self {
        let (targets, debts, needs) = (BatchTargets::EMPTY, Debts::NONE, Needs::NOTHING);
        Self { targets, debts, needs, holds: false, frames: ManuallyDrop::new(frames) }
    }

    /// Records translations of `space` that were taken away, where no frame is freed or another mapping of it is still
    /// to come: any number of pages, whose page tables are still locked.
    pub fn revoke<H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, space: &AddressSpace<H::Set>) {
        cpu.tlb().owed.add(space.id, &mut self.debts);
        let stamp = space.advance();
        if cpu.has_broadcast() && stamp.pcid().is_some() {
            self.needs = self.needs.with(Needs::SHARED); // then nobody is asked, whatever else it holds
            return;
        }
        self.targets.add(space);
    }

    /// Records a translation of `space`, which was taken out of the page tables, and holds the `frame` that it mapped
    /// until the flush. If other spaces map the frame too, record those by [`revoke`](Self::revoke), before or after.
    pub fn unmap<T, H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, space: &AddressSpace<H::Set>, frame: T)
    where
        F: Extend<T>,
    {
        self.revoke(cpu, space);
        self.hold(frame);
    }

    /// Records all that lay below a page-table page of `space` that was taken out, and holds that page, `frame`, until
    /// the flush. CPUs that hold the space in lazy TLB mode are responders as well (C-20, C-21). Code that reads page
    /// tables without a lock is not waited for where INVLPGB or a host flushes a CPU: a kernel that has such code and
    /// no grace period frees tables by a [gather](crate::TlbGather::interrupt_walkers) (C-23).
    pub fn unmap_table<T, H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, space: &AddressSpace<H::Set>, frame: T)
    where
        F: Extend<T>,
    {
        self.needs = self.needs.with(Needs::TABLES);
        self.unmap(cpu, space, frame);
    }

    /// Holds `frame`, which several spaces mapped, until the flush. If nothing is recorded in this batch, before or
    /// after, the flush is one of everything, on every CPU: it cannot be known what mapped the frame.
    pub fn hold<T>(&mut self, frame: T)
    where
        F: Extend<T>,
    {
        self.holds = true;
        self.frames.extend(Some(frame));
    }

    /// True if nothing was recorded.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.targets.is_empty() && !self.needs.any_of(Needs::SHARED)
    }

    /// Flushes what was recorded, everywhere, and gives the frames back.
    ///
    /// When it returns, no CPU can use a translation that was recorded (INV-6), and with a page-table page among the
    /// frames no CPU walks it. CPUs that run none of the spaces are left alone, but for those in the middle of a switch
    /// and those whose space shares a bit with one that was recorded (`targets.rs`). So are CPUs that hold one in lazy
    /// TLB mode, unless page-table pages are freed: they flush before a program of it runs (INV-5).
    ///
    /// # Panics
    /// If another CPU has to flush and interrupts are off (INV-7); if called while this CPU waits for another flush.
    pub fn flush<H: Hardware>(self, cpu: &Cpu<'_, '_, H>, why: Reason) -> Flushed<F> {
        self.flush_named(cpu, why);
        Flushed::new(ManuallyDrop::into_inner(self.frames))
    }

    /// Flushes as [`flush`](Self::flush) does, calls `free` with the frames, and leaves the batch empty, to be used
    /// again: for a kernel that keeps one batch for each task. `free` takes the frames out of the collection.
    ///
    /// ```
    /// # use tlbkit::*;
    /// fn reclaim<H: Hardware>(batch: &mut TlbBatch<Vec<u64>>, cpu: &Cpu<'_, '_, H>, free: impl Fn(u64)) {
    ///     batch.flush_and_reuse(cpu, Reason::Migrate, |frames| frames.drain(..).for_each(free));
    /// }
    /// ```
    ///
    /// # Panics
    /// As [`flush`](Self::flush); what was recorded is still in the batch then. Of further flushes
    /// [`TlbGather::flush_and_reuse`](crate::TlbGather::flush_and_reuse) has the rule.
    pub fn flush_and_reuse<H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, why: Reason, free: impl FnOnce(&mut F)) {
        self.flush_named(cpu, why);
        self.targets.clear();
        (self.debts, self.needs, self.holds) = (Debts::NONE, Needs::NOTHING, false);
        free(&mut self.frames);
    }

    /// True if a page-table page was recorded: then the batch is not [deferred](Self::defer).
    #[must_use]
    pub const fn has_tables(&self) -> bool {
        self.needs.any_of(Needs::TABLES)
    }

    /// Leaves those of the machine's `cpus` CPUs alone that `holds_nothing` of what was recorded.
    pub(super) fn leave_out(&mut self, cpus: usize, holds_nothing: impl Fn(CpuId) -> bool) {
        self.targets.leave_out(cpus, holds_nothing);
    }

    /// Takes in what `other` has recorded, and its frames.
    pub(super) fn fold<T, H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, other: Self)
    where
        F: IntoIterator<Item = T> + Extend<T>,
    {
        let names_too_little = self.names_nothing() || other.names_nothing();
        self.targets.add_all(&other.targets);
        // What both have raised is owed by one batch from now on, and stays above 0.
        cpu.tlb().owed.settle(self.debts.in_both(other.debts));
        self.debts = self.debts.with(other.debts);
        self.needs = self.needs.with(other.needs);
        self.holds |= other.holds;
        if names_too_little {
            // What the other one has recorded says nothing of the frames that this one holds.
            self.targets.clear();
            self.needs = Needs::NOTHING;
        }
        self.frames.extend(ManuallyDrop::into_inner(other.frames));
    }

    /// True if nobody can hold what was recorded: all CPUs were left out.
    pub(super) fn concerns_nobody(&self) -> bool {
        !self.targets.is_empty() && !self.targets.has_cpus() && !self.needs.any_of(Needs::SHARED)
    }

    /// Gives the frames back without a flush, as the batch [concerns nobody](Self::concerns_nobody).
    pub(super) fn settle<H: Hardware>(self, cpu: &Cpu<'_, '_, H>) -> Flushed<F> {
        cpu.tlb().owed.settle(self.debts);
        Flushed::new(ManuallyDrop::into_inner(self.frames))
    }

    /// True if it cannot be known what mapped the frames that are held.
    const fn names_nothing(&self) -> bool {
        self.holds && self.is_empty()
    }

    fn flush_named<H: Hardware>(&self, cpu: &Cpu<'_, '_, H>, why: Reason) {
        if !self.is_empty() {
            self.send(cpu, SpaceId::LOADED, Extent::Loaded(&self.targets), why);
        } else if self.holds {
            self.send(cpu, SpaceId::KERNEL, Extent::Everything, why);
        }
        cpu.tlb().owed.settle(self.debts);
    }

    /// Sends a request that is about no space in particular: its responders are found among all CPUs that are
    /// online, as for kernel addresses. So it goes as [`Translations::OfKernel`], though its space is `LOADED`.
    fn send<H: Hardware>(&self, cpu: &Cpu<'_, '_, H>, space: SpaceId, extent: Extent<'_>, why: Reason) {
        let request = Request { space, extent, ..Request::everything(self.needs) };
        cpu.shootdown(Translations::OfKernel, request, why);
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Does the deferred flushes of `space`, those of batches and issued gathers, everywhere (Linux:
    /// `flush_tlb_batched_pending`): for code that finds a PTE cleared, or narrowed, and goes on without a flush of its
    /// own. It looks at one word, and is done if no flush may be owed. It does not know about a gather that another CPU
    /// has filled and neither flushed nor issued yet.
    ///
    /// [`TlbGather::flush`](crate::TlbGather::flush) does the same by itself, even if nothing was recorded, and
    /// [`flush_range`](Self::flush_range) flushes enough anyway. What is left are changes that need no flush: call this
    /// before another frame is mapped where a PTE was found cleared. For kernel addresses a gather in which nothing was
    /// recorded does the same.
    ///
    /// # Panics
    /// As [`TlbGather::flush`](crate::TlbGather::flush).
    pub fn drain(&self, space: &AddressSpace<H::Set>) {
        self.assert_here();
        if self.tlb.owed.is_owed(space.id) {
            let request = Request::everything(Needs::NOTHING).in_space(space);
            self.shootdown(Translations::OfSpace(space), request, Reason::RemovePte);
        }
    }
}

//! `TlbBatch`: one flush for translations of many spaces, as reclaim, migration and the merging of equal pages need it.
//!
//! Such a kernel takes one frame out of the page tables of all that map it, then the next, and frees them together. A
//! gather for each space would interrupt the same CPUs again and again. A batch names translations of any number of
//! spaces, without allocation, and asks each CPU once: "bring what you have loaded up to its newest generation".
//!
//! ```text
//!   batch (unmap)                             CPU that joins the space (switch.rs)
//!   change PTE                                join set; presence := switching
//!   owed += 1; advance generation             fence(SeqCst)
//!   fence(SeqCst)       (in advance)          read generation
//!   union |= set                              load CR3; presence := running
//!   ... any number of spaces ...
//!   flush: read presence of the union
//! ```
//! It is the handshake of `address_space.rs`, with its two halves apart: whoever joins after the set was read finds the
//! generation, and whoever was in the set is looked at by `flush`. Until then the pages may still be used; what another
//! CPU that finds them gone must do is in `owed.rs`.
//!
//! ```compile_fail
//! # use tlbkit::TlbBatch;
//! # fn free(_: Vec<u32>) {}
//! let batch = TlbBatch::new(vec![1u32]);
//! free(batch.frames); // private: freeing before flushing does not compile
//! ```

use core::mem::ManuallyDrop;

use crate::addr::{SpaceToken, Stride};
use crate::address_space::{AddressSpace, Generation, SpaceId, Translations};
use crate::gather::Flushed;
use crate::hardware::Hardware;
use crate::owed::Debts;
use crate::reason::Reason;
use crate::request::{Extent, Needs, Request, Step};
use crate::tlb::Cpu;
use crate::union::Union;

/// Translations of any number of spaces, and their frames, that wait for one flush. `F` is any collection of frames.
///
/// Translations are named while the lock of their page table is held, and before it is dropped (C-75). Naming waits for
/// nobody: interrupts may be off. A batch may be named and flushed on different CPUs, one after the other. It is for
/// entries of user halves without the global bit.
///
/// Until [`flush`](Self::flush) returns nothing is promised: programs go on using what their CPUs hold. So whoever
/// relies on something else to be true of such a page, that it is clean or at rest, finds out after the flush.
#[must_use = "a batch that is not flushed leaks its frames, and has others flush in vain"]
pub struct TlbBatch<F> {
    union: Union,
    debts: Debts,
    needs: Needs,
    /// A frame is kept.
    holds: bool,
    frames: ManuallyDrop<F>,
}

impl<F> TlbBatch<F> {
    /// An empty batch; `frames` is where it keeps frames.
    pub const fn new(frames: F) -> Self {
        let (union, debts, needs) = (Union::EMPTY, Debts::NONE, Needs::NOTHING);
        Self { union, debts, needs, holds: false, frames: ManuallyDrop::new(frames) }
    }

    /// Names translations of `space` that were revoked, where no frame is freed or another mapping of it is still to
    /// come: any number of pages, whose page tables are still locked.
    pub fn revoke<H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, space: &AddressSpace<H::Set>) {
        cpu.tlb().owed.add(space.id, &mut self.debts);
        space.advance();
        self.union.add(space);
    }

    /// Names a translation of `space`, which was taken out of the page tables, and keeps the `frame` that it named
    /// until the flush. If other spaces map the frame too, [`revoke`](Self::revoke) names those, before or after.
    pub fn unmap<T, H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, space: &AddressSpace<H::Set>, frame: T)
    where
        F: Extend<T>,
    {
        self.revoke(cpu, space);
        self.hold(frame);
    }

    /// Names all that lay below a page-table page of `space` that was taken out, and keeps that page, `frame`, until
    /// the flush: CPUs that hold the space lazily are asked as well (C-20, C-21).
    pub fn unmap_table<T, H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, space: &AddressSpace<H::Set>, frame: T)
    where
        F: Extend<T>,
    {
        self.needs = self.needs.with(Needs::TABLES);
        self.unmap(cpu, space, frame);
    }

    /// Keeps `frame`, which several spaces mapped, until the flush. If nothing is named in this batch, before or after,
    /// the flush is one of everything, on every CPU: it cannot be known what led to the frame.
    pub fn hold<T>(&mut self, frame: T)
    where
        F: Extend<T>,
    {
        self.holds = true;
        self.frames.extend(Some(frame));
    }

    /// True if nothing was named.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.union.is_empty()
    }

    /// Flushes what was named, everywhere, and gives the frames back.
    ///
    /// When it returns, no CPU can use a translation that was named (INV-6), and with a page-table page among the
    /// frames none walks it. CPUs that run none of the spaces are not asked, nor those that hold one lazily, unless
    /// tables are freed: they flush before a program of it runs (INV-5).
    ///
    /// # Panics
    /// If another CPU must be asked and interrupts are off (INV-7); if called while this CPU waits for another flush.
    pub fn flush<H: Hardware>(self, cpu: &Cpu<'_, '_, H>, why: Reason) -> Flushed<F> {
        self.flush_named(cpu, why);
        Flushed::of(ManuallyDrop::into_inner(self.frames))
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
    /// As [`flush`](Self::flush); what was named is still in the batch then.
    pub fn flush_and_reuse<H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, why: Reason, free: impl FnOnce(&mut F)) {
        self.flush_named(cpu, why);
        self.union.clear();
        (self.debts, self.needs, self.holds) = (Debts::NONE, Needs::NOTHING, false);
        free(&mut self.frames);
    }

    fn flush_named<H: Hardware>(&self, cpu: &Cpu<'_, '_, H>, why: Reason) {
        if !self.is_empty() {
            self.send(cpu, SpaceId::LOADED, Extent::Loaded(&self.union), why);
            cpu.tlb().owed.settle(self.debts);
        } else if self.holds {
            self.send(cpu, SpaceId::KERNEL, Extent::Everything, why);
        }
    }

    /// As a request that concerns no space in particular: whom it asks is found among all that are online.
    fn send<H: Hardware>(&self, cpu: &Cpu<'_, '_, H>, space: SpaceId, extent: Extent<'_>, why: Reason) {
        let (token, step, needs) = (SpaceToken(0), Step::of(Stride::Page4K), self.needs);
        let request = Request { space, token, generation: Generation::NEVER, extent, step, needs };
        cpu.shootdown_of_many(&request, why);
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Flushes what batches and issued gathers owe to `space`, everywhere: for whoever finds an entry gone, or
    /// narrowed, and goes on without a flush of its own. It looks at one word, and is done if none of them may have
    /// named the space. A gather that another CPU has filled and neither flushed nor issued yet it does not know of.
    ///
    /// [`TlbGather::flush`](crate::TlbGather::flush) does so by itself, even if nothing was named, and
    /// [`flush_range`](Self::flush_range) needs no more than it does anyway. What is left are changes that need no
    /// flush: call this before another frame is mapped where an entry was found gone. For the kernel's addresses a
    /// gather in which nothing was named does the same.
    ///
    /// # Panics
    /// As [`TlbGather::flush`](crate::TlbGather::flush).
    pub fn drain(&self, space: &AddressSpace<H::Set>) {
        self.assert_here();
        if self.tlb.owed.has(space.id) {
            let request = Request {
                space: space.id,
                token: space.token,
                generation: Generation::NEVER,
                extent: Extent::Everything,
                step: Step::of(Stride::Page4K),
                needs: Needs::NOTHING,
            };
            self.shootdown(Translations::OfSpace(space), request, Reason::RemovePte);
        }
    }
}

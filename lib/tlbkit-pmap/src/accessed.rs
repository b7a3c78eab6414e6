//! The accessed bit: what it says of entries that are taken out, and how it is cleared.
//!
//! **Never accessed, never cached** (ABIS, 2017). The walker caches a translation only once A is set in every entry
//! that led to it, and sets the bit first where it is clear (Intel's manual, volume 3, section 4.10.2.3). It does so by
//! a locked update, which finds an entry gone if an exchange came first:
//!
//! ```text
//!   CPU that walks                             CPU that takes the entry out
//!   read the entry: A is clear
//!                                              exchange the entry for 0: A is clear, so put the frame
//!   set A if the entry is as it was read:
//!     it is not; fault, and cache nothing
//! ```
//! So an entry that an exchange returns with A clear is cached nowhere, if nobody ever clears the bit of an entry that
//! a CPU may hold. Under [`Unaccessed::Spared`] such an entry needs no flush. Where software ages pages it clears the
//! bit, and a CPU may hold the translation after that. [`Vm::age`] therefore flushes before it drops the page-table
//! lock, without which nobody takes an entry out:
//!
//! ```text
//!   CPU that ages                              CPU that unmaps
//!   lock; clear A
//!                                              waits for the lock
//!   flush everywhere; unlock
//!                                              lock; exchange: A is clear, and nobody has it
//! ```
//! What the rule says is of this entry. A CPU may still hold the one that was at its address before, if that was taken
//! out and its flush is not over (C-28): a sweep flushes its range again when it ends where another one is under way,
//! and what replaces a single page is not spared then.
//!
//! Linux does not flush when it ages pages (`ptep_clear_flush_young` of x86), so it could not rely on the rule.
//!
//! The rule holds for each level: the manual says the same of the paging-structure caches. But entries that point to
//! tables are written with A set, here as in Linux (`_PAGE_TABLE`), so a table that is taken out is always flushed.

use crate::error::Error;
use crate::memory::Memory;
use crate::pmap::{Pmap, user_range};
use crate::sweep::change_leaf;
use crate::table;
use crate::vm::Vm;
use tlbkit::sync::Ordering;
use tlbkit::{Cpu, Hardware, Reason, Unaccessed};
use tlbkit_arch::Pte;

/// True if no CPU can hold a translation of `old`, which an atomic exchange has just returned, and the kernel relies on
/// that.
pub(crate) fn is_cached_nowhere<H: Hardware>(cpu: &Cpu<'_, '_, H>, old: Pte) -> bool {
    cpu.tlb().policy().unaccessed == Unaccessed::Spared && !old.has(Pte::ACCESSED)
}

impl<S> Pmap<S> {
    /// True if no CPU can use what `old` mapped, an entry that an exchange has just returned: neither it nor, for a
    /// call that is no sweep and so does not look at the others when it ends, an entry that was there before it. The
    /// caller holds the page-table lock.
    pub(crate) fn is_gone<H: Hardware>(&self, cpu: &Cpu<'_, '_, H>, old: Pte) -> bool {
        // Acquire: partner is the Release in `end_sweep`, after whose flush the sweep is no longer counted. One that
        // took out what was here before counted itself before it took the lock.
        is_cached_nowhere(cpu, old) && self.sweeping.load(Ordering::Acquire) == 0
    }
}

impl<S> Vm<'_, S> {
    /// Clears the accessed bits of the pages that are mapped in `pages` base pages from `va` on, and returns how many
    /// had it set; a large page counts once. It flushes, for each last-level table, so that each access from then on
    /// sets the bit again; that is counted as [`Reason::WriteProtect`].
    ///
    /// # Errors
    /// [`Error::BadRange`].
    pub fn age<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        pages: u64,
    ) -> Result<u64, Error> {
        let _guard = self.lock.read(cpu.hardware());
        let mut accessed = 0;
        self.pmap.for_each_table_span(cpu.hardware(), mem, user_range(va, pages)?, |mut span| {
            let mut gather = self.pmap.gather::<H, M, 1>(cpu, mem);
            while let Some((va, entry)) = table::first_leaf(mem, self.pmap.root(), span.clone()) {
                let first = va & !(entry.bytes() - 1);
                span.start = first + entry.bytes();
                if entry.pte.has(Pte::PRESENT | Pte::ACCESSED) {
                    accessed += 1;
                    change_leaf(mem, first, entry, Reason::WriteProtect, &mut gather, |pte| pte.without(Pte::ACCESSED));
                }
            }
            gather.finish();
            Ok(())
        })?;
        Ok(accessed)
    }
}

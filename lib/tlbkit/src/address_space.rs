//! One set of page tables, and what the protocol must know of it.
//!
//! Three generations, told apart:
//! - the **space's**: how many revocations there have been; only rises (INV-3);
//! - a **slot's**: up to which of them this CPU's entries under a tag have been flushed; never above the space's;
//! - a **request's**: the one up to which an initiator wants all CPUs to be.
//!
//! INV-2, the handshake that everything rests on:
//!
//! ```text
//!   a CPU that joins (switch.rs)              a CPU that revokes (shootdown.rs)
//!   join set; presence := switching           change PTE
//!   fence(SeqCst)                             advance generation        (AddressSpace::advance)
//!   read generation                           fence(SeqCst)             (AddressSpace::advance)
//!   load CR3                                  read set, read presence
//!   presence := running
//! ```
//! Each side writes, then reads what the other writes. With both fences at least one sees the other's write: either the
//! revoker finds the joiner and interrupts it, or the joiner finds the new generation and flushes. Without either fence
//! both may miss, and the joiner runs on a translation that was revoked.

use crate::addr::{PhysAddr, SpaceToken};
use crate::cpu_set::{AtomicCpuSet, words_for};
use crate::history::state::LazyCount;
use crate::sync::{AtomicU64, Ordering, const_unless_loom, fence};

/// Names a space for ever: an id is never given out twice (INV-3), so a tag that names a dead space is merely useless.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceId(pub(crate) u64);

impl SpaceId {
    /// The kernel's own tables: never tagged, no set of CPUs.
    pub const KERNEL: Self = Self(0);

    /// The id as a number, for traces.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Counts the revocations of one space; starts at 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Generation(pub(crate) u64);

impl Generation {
    /// Of a slot that holds nothing that may be used.
    pub(crate) const NEVER: Self = Self(0);

    /// The generation as a number, for traces.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Page tables shared by the threads of one process: 48 bytes (56 with the feature `history`), plus one
/// bit per possible CPU in the kernel's storage.
///
/// A kernel puts it at the start of a cache line: whatever shares its line suffers from every flush.
pub struct AddressSpace<'k> {
    pub(crate) id: SpaceId,
    pub(crate) token: SpaceToken,
    pub(crate) root: PhysAddr,
    generation: AtomicU64,
    #[cfg_attr(not(feature = "history"), allow(dead_code, reason = "it holds nothing then"))]
    pub(crate) lazy_count: LazyCount,
    pub(crate) cpus: AtomicCpuSet<'k>,
}

impl<'k> AddressSpace<'k> {
    const_unless_loom! {
        /// A space whose top-level table is at `root`; under page-table isolation the user half's is one page above it.
        ///
        /// `id` comes from [`Tlb::fresh_id`](crate::Tlb::fresh_id); `set` holds [`set_words`](Self::set_words) zeros.
        #[must_use]
        pub fn new(id: SpaceId, token: SpaceToken, root: PhysAddr, set: &'k [AtomicU64]) -> Self {
            Self {
                id,
                token,
                root,
                generation: AtomicU64::new(1),
                lazy_count: LazyCount::new(),
                cpus: AtomicCpuSet::new(set),
            }
        }
    }

    /// Words of storage that the set of CPUs needs.
    #[must_use]
    pub const fn set_words(cpus: usize) -> usize {
        words_for(cpus)
    }

    /// Bytes that a space costs on a machine of `cpus` CPUs: the fixed part and one bit per CPU, in whole words.
    #[must_use]
    pub const fn bytes(cpus: usize) -> usize {
        size_of::<Self>() + 8 * words_for(cpus)
    }

    /// The space's name.
    #[must_use]
    pub const fn id(&self) -> SpaceId {
        self.id
    }

    /// What the kernel called it.
    #[must_use]
    pub const fn token(&self) -> SpaceToken {
        self.token
    }

    /// The top-level table.
    #[must_use]
    pub const fn root(&self) -> PhysAddr {
        self.root
    }

    /// CPUs that may hold translations of it.
    #[must_use]
    pub const fn cpus(&self) -> AtomicCpuSet<'k> {
        self.cpus
    }

    /// The newest generation. Acquire: partner is the Release in `advance`, so that whoever flushes
    /// up to what it read here walks tables that already hold the changes.
    #[must_use]
    #[inline(always)]
    pub fn generation(&self) -> Generation {
        // Acquire: as above.
        Generation(self.generation.load(Ordering::Acquire))
    }

    /// Records that translations were revoked; the page tables have been changed. What is read after it, the set and
    /// the presence of its CPUs, is read after every CPU that joins can see the new generation (INV-2).
    #[inline(always)]
    pub(crate) fn advance(&self) -> Generation {
        // Release: the PTE changes come before it; partner is the Acquire in `generation`.
        let before = self.generation.fetch_add(1, Ordering::Release);
        // SeqCst: partners are the fences of `enter` and `leave_lazy`; the diagram at the head of this file.
        fence(Ordering::SeqCst);
        Generation(before + 1)
    }
}

/// Whether a destroyed space's top-level table may be freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Destroyed {
    /// No CPU has it loaded.
    Now,
    /// A CPU still holds it lazily; [`Event::LastLazyReference`](crate::Event) will say when.
    WhenUnreferenced,
}

/// Whose translations a flush is about.
#[derive(Clone, Copy)]
pub enum Translations<'s, 'k> {
    /// A user space's.
    OfSpace(&'s AddressSpace<'k>),
    /// The kernel's: its addresses stand in the tables of every space, so every CPU may hold them.
    OfKernel,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[cfg(not(narrow_sets))]
    #[test]
    fn a_space_costs_a_line_and_a_bit_per_cpu() {
        let fixed = if cfg!(feature = "history") { 56 } else { 48 };
        assert_eq!([8, 48, 4096].map(AddressSpace::bytes), [fixed + 8, fixed + 8, fixed + 512]);
    }

    #[test]
    fn inv_3_generations_only_rise() {
        let words = [const { AtomicU64::new(0) }; 1];
        let space = AddressSpace::new(SpaceId(1), SpaceToken(0), PhysAddr(0), &words);
        let before = space.generation();
        assert_eq!(space.advance(), before.next());
        assert_eq!(space.generation(), before.next());
        assert!(before > Generation::NEVER);
    }
}

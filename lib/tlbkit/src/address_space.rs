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
use crate::references::{Notice, References};
use crate::sync::{AtomicU64, Ordering, const_unless_loom, fence};

/// Names a space for ever: an id is never given out twice (INV-3), so a tag that names a dead space is merely useless.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceId(pub(crate) u64);

impl SpaceId {
    /// The kernel's own tables: never tagged, no set of CPUs.
    pub const KERNEL: Self = Self(0);
    /// In a request: no space in particular, but the one that the responder has loaded. Beyond all ids that are given
    /// out.
    pub(crate) const LOADED: Self = Self(1 << 62);

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

    /// This generation if there is no notice; otherwise one that no slot has.
    #[inline(always)]
    pub(crate) const fn joined_to(self, notice: Notice) -> Self {
        Self(self.0 | notice.0)
    }

    pub(crate) const fn has_notice(self) -> bool {
        self.0 & Notice::LOOK.0 != 0
    }

    pub(crate) const fn without_notice(self) -> Self {
        Self(self.0 & !Notice::LOOK.0)
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Page tables shared by the threads of one process: 40 bytes, and the storage `S` of
/// one bit per possible CPU. That is any collection of words: an array inside the space, a box, a slice that is
/// borrowed. Each use of it finds the same words, as many as [`set_words`](Self::set_words) says.
///
/// A space that owns its storage is an ordinary value: it may lie in an [`Arc`](https://doc.rust-lang.org/alloc/sync),
/// and it is `Send` and `Sync`.
///
/// A kernel puts it at the start of a cache line: whatever shares its line suffers from every flush.
pub struct AddressSpace<S = &'static [AtomicU64]> {
    pub(crate) id: SpaceId,
    pub(crate) token: SpaceToken,
    pub(crate) root: PhysAddr,
    generation: AtomicU64,
    pub(crate) references: References,
    set: S,
}

impl<S> AddressSpace<S> {
    const_unless_loom! {
        /// A space whose top-level table is at `root`; under page-table isolation the user half's is one page above it.
        ///
        /// `id` comes from [`Tlb::fresh_id`](crate::Tlb::fresh_id); `set` holds [`set_words`](Self::set_words) zeros.
        ///
        /// # Panics
        /// If `root` is not the address of a page: its low bits would be taken for a tag. If `id` is
        /// [`SpaceId::KERNEL`]: a CPU that runs such a space would look as if it were switching for ever.
        #[must_use]
        pub fn new(id: SpaceId, token: SpaceToken, root: PhysAddr, set: S) -> Self {
            root.assert_is_page();
            assert!(id.0 != SpaceId::KERNEL.0, "a space with the kernel's id: take one from Tlb::fresh_id");
            Self {
                id,
                token,
                root,
                generation: AtomicU64::new(1),
                references: References::new(),
                set,
            }
        }
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
        // SeqCst: partners are the fences of `begin_entry` and `leave_lazy`; the diagram at the head of this file.
        fence(Ordering::SeqCst);
        Generation(before + 1)
    }
}

impl<S: AsRef<[AtomicU64]>> AddressSpace<S> {
    /// CPUs that may hold translations of it.
    #[must_use]
    #[inline(always)]
    pub fn cpus(&self) -> AtomicCpuSet<'_> {
        AtomicCpuSet::new(self.set.as_ref())
    }
}

impl AddressSpace<&[AtomicU64]> {
    /// Words of storage that the set of CPUs needs, whoever owns them.
    #[must_use]
    pub const fn set_words(cpus: usize) -> usize {
        words_for(cpus)
    }

    /// Bytes that a space with a borrowed set costs on a machine of `cpus` CPUs: the fixed part, and one bit per CPU in
    /// whole words. With the set inside it is 16 less.
    #[must_use]
    pub const fn bytes(cpus: usize) -> usize {
        size_of::<Self>() + 8 * words_for(cpus)
    }
}

/// Whether a destroyed space's top-level table may be freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Destroyed {
    /// No CPU has it loaded, and none touches it again.
    Now,
    /// A CPU still holds it lazily; [`Event::LastLazyReference`](crate::Event) will say when none does any more.
    WhenUnreferenced,
}

/// Whose translations a flush is about.
pub enum Translations<'s, S> {
    /// A user space's.
    OfSpace(&'s AddressSpace<S>),
    /// The kernel's: its addresses stand in the tables of every space, so every CPU may hold them.
    OfKernel,
}

impl<S> Clone for Translations<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Translations<'_, S> {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::addr::CpuId;

    #[cfg(not(narrow_sets))]
    #[test]
    fn a_space_costs_a_line_and_a_bit_per_cpu() {
        assert_eq!([8, 48, 4096].map(AddressSpace::bytes), [64, 64, 568]);
    }

    /// Whoever owns the words: the space finds them, and may be sent to another thread and shared.
    #[test]
    fn a_set_lies_in_any_storage() {
        fn is_shared<T: Send + Sync>(_: &T) {}
        fn joins<S: AsRef<[AtomicU64]> + Send + Sync>(set: S) -> (u64, usize) {
            let space = AddressSpace::new(SpaceId(1), SpaceToken(0), PhysAddr(0), set);
            is_shared(&space);
            space.cpus().add(CpuId(1), Ordering::Relaxed); // Relaxed: the test has one thread
            let words = space.cpus().words();
            (words[0].load(Ordering::Relaxed), words.len()) // Relaxed: as above
        }
        let zeros = || [AtomicU64::new(0), AtomicU64::new(0)];
        assert_eq!(joins(zeros()), (2, 2));
        assert_eq!(joins(Box::<[AtomicU64]>::from(zeros())), (2, 2));
        assert_eq!(joins(zeros().as_slice()), (2, 2));
        assert_eq!(size_of::<AddressSpace<[AtomicU64; 1]>>(), 48);
    }

    #[test]
    #[should_panic(expected = "a space with the kernel's id")]
    fn no_space_has_the_kernels_id() {
        let _space = AddressSpace::new(SpaceId::KERNEL, SpaceToken(0), PhysAddr(0), [AtomicU64::new(0)]);
    }

    #[test]
    fn inv_3_generations_only_rise() {
        let words = [const { AtomicU64::new(0) }; 1];
        let space = AddressSpace::new(SpaceId(1), SpaceToken(0), PhysAddr(0), words);
        let before = space.generation();
        assert_eq!(space.advance(), before.next());
        assert_eq!(space.generation(), before.next());
        assert!(before > Generation::NEVER);
    }
}

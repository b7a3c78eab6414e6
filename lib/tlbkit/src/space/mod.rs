//! An address space: one set of page tables, and what the protocol must know about it.
//!
//! **The rule.** Every change that takes a translation away advances the space's TLB generation, and every CPU that
//! loads the space reads it. That is what lets a flush leave out all CPUs that do not run the space just now.
//!
//! Three generations are compared in this crate. They are told apart by what they belong to:
//! - the **space's** ([`AddressSpace::generation`], Linux: `mm->context.tlb_gen`): how many times translations were
//!   taken away. It only rises (INV-3);
//! - an **ASID's** (`cpu/asid.rs`, Linux: `ctxs[asid].tlb_gen`): the generation of the space up to which this CPU has
//!   flushed what it caches under that ASID. It is never above the space's;
//! - a **request's** (`flush/request.rs`, Linux: `flush_tlb_info.new_tlb_gen`): the generation of the space up to which
//!   an initiator wants its responders to flush.
//!
//! **The race**, INV-2, on which everything else rests:
//!
//! ```text
//!   a CPU that loads the space (switch/mod.rs)     a CPU that takes translations away (flush/shootdown.rs)
//!   join the CPU set; presence := switching        change the PTE
//!   fence(SeqCst)                                  advance the generation       (AddressSpace::advance)
//!   read the generation                            fence(SeqCst)                (AddressSpace::advance)
//!   load CR3                                       read the CPU set, read the presence of its members
//!   presence := running
//! ```
//! Each side writes, then reads what the other side writes. With both fences at least one of them sees the other's
//! write: either the initiator finds the CPU and sends it an IPI, or the CPU finds the new generation and flushes by
//! itself. If either fence is missing, both may miss, and the CPU runs on a translation that is gone.
//!
//! **Neighbours.** `cpu_set.rs` is the set itself. `shared.rs` has the PCID that all CPUs can share for one space; it
//! is kept in the word of the space's generation. `end.rs` is how a space ends while CPUs still hold it in lazy TLB
//! mode. CPUs enter and leave a space in `switch/`; translations are taken away in `flush/`.

pub(crate) mod cpu_set;
mod end;
pub(crate) mod shared;

use crate::addr::{PhysAddr, SpaceToken};
use crate::sync::{AtomicU64, Ordering, const_unless_loom, fence};
use cpu_set::{AtomicCpuSet, words_for};
use shared::Stamp;

/// Names a space for ever: an id is never given out twice (INV-3), so an ASID that names a dead space is merely
/// useless.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceId(pub(crate) u64);

impl SpaceId {
    /// The kernel's own page tables, which have no ASID and no CPU set.
    pub const KERNEL: Self = Self(0);
    /// In a request: whatever space the responder has loaded. Above every id that is given out.
    pub(crate) const LOADED: Self = Self(1 << 62);

    /// The id as a number, for traces.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// A TLB generation: counts how many times translations of one space were taken away, from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Generation(pub(crate) u64);

impl Generation {
    /// Of an ASID under which nothing may be used. No space ever has it.
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

/// Page tables shared by the threads of one process (Linux: the TLB part of `mm_struct`): 40 bytes, and the storage `S`
/// of one bit for each possible CPU. That is any collection of words: an array inside the space, a box, a borrowed
/// slice. Each use of it must find the same words, as many as [`set_words`](Self::set_words) says.
///
/// A space that owns its storage is an ordinary value: it may live in an
/// [`Arc`](https://doc.rust-lang.org/alloc/sync), and it is `Send` and `Sync`.
///
/// Put it at the start of a cache line: every flush writes to that line, and whatever shares it pays for that.
pub struct AddressSpace<S = &'static [AtomicU64]> {
    pub(crate) id: SpaceId,
    pub(crate) token: SpaceToken,
    pub(crate) root: PhysAddr,
    stamp: AtomicU64,
    pub(crate) references: References,
    set: S,
}

impl<S> AddressSpace<S> {
    const_unless_loom! {
        /// A space whose top-level table is at `root`. Under page-table isolation the user half's top-level table is
        /// one page above it.
        ///
        /// `id` comes from [`Tlb::fresh_id`](crate::Tlb::fresh_id); `set` holds [`set_words`](Self::set_words) zeros.
        ///
        /// # Panics
        /// If `root` is not the address of a page: its low bits would be taken for a PCID. If `id` is
        /// [`SpaceId::KERNEL`]: a CPU that runs such a space would look as if it were switching for ever.
        #[must_use]
        pub fn new(id: SpaceId, token: SpaceToken, root: PhysAddr, set: S) -> Self {
            root.assert_is_page();
            assert!(id.0 != SpaceId::KERNEL.0, "a space with the kernel's id: take one from Tlb::fresh_id");
            Self {
                id,
                token,
                root,
                stamp: AtomicU64::new(1),
                references: References::new(),
                set,
            }
        }
    }

    /// The space's id.
    #[must_use]
    pub const fn id(&self) -> SpaceId {
        self.id
    }

    /// The kernel's name for it.
    #[must_use]
    pub const fn token(&self) -> SpaceToken {
        self.token
    }

    /// The top-level table.
    #[must_use]
    pub const fn root(&self) -> PhysAddr {
        self.root
    }

    /// The newest generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.stamp().generation()
    }

    /// Records that translations were taken away; the page tables have been changed before. What the caller reads
    /// afterwards, the CPU set and the presence of its members, is read after the new generation has become visible to
    /// every CPU that joins (INV-2).
    pub(crate) fn advance(&self) -> Stamp {
        // Release: the PTE changes come before it; partner is the Acquire in `stamp`.
        let before = self.stamp.fetch_add(1, Ordering::Release);
        // SeqCst: partners are the fences in `announce_switch`, the diagram is at the head of this file; and, as an
        // Acquire, the Release in `end_move`.
        fence(Ordering::SeqCst);
        Stamp(before + 1)
    }
}

impl<S: AsRef<[AtomicU64]>> AddressSpace<S> {
    /// CPUs that may hold translations of it (Linux: `mm_cpumask`).
    #[must_use]
    pub fn cpus(&self) -> AtomicCpuSet<'_> {
        AtomicCpuSet::new(self.set.as_ref())
    }
}

impl AddressSpace<&[AtomicU64]> {
    /// Words of storage that the CPU set needs, wherever they are.
    #[must_use]
    pub const fn set_words(cpus: usize) -> usize {
        words_for(cpus)
    }

    /// Bytes that a space with a borrowed CPU set costs on a machine of `cpus` CPUs: the fixed part, and one bit for
    /// each CPU in whole words. With the set inside it costs 16 bytes less.
    #[must_use]
    pub const fn bytes(cpus: usize) -> usize {
        size_of::<Self>() + 8 * words_for(cpus)
    }
}

/// How many CPUs hold a dying space in lazy TLB mode, and whether it is dying at all.
///
/// While a space is alive nobody counts its lazy CPUs, unless the policy says that they are counted all along. When it
/// dies, `end.rs` counts those that are left, once; from then on its CPU set names them and nobody else.
pub(crate) struct References(AtomicU64);

const DYING: u64 = 1 << 63;

impl References {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// The space dies, and this many CPUs hold it. False if it was dying before.
    pub(crate) fn begin_wait(&self, holders: u64) -> bool {
        // Relaxed: ordered by the fence in `notify_holders`; see `is_dying`.
        self.0.swap(DYING | holders, Ordering::Relaxed) & DYING == 0
    }

    /// True once the CPUs that hold the space have been counted.
    pub(crate) fn is_dying(&self) -> bool {
        // Relaxed: ordered by the fence that the leaving CPU has executed; partner is the one in `notify_holders`.
        self.0.load(Ordering::Relaxed) & DYING != 0
    }

    /// Drops as many references; true if they were the last ones of a dying space. Then nobody may touch the space but
    /// the one who frees it.
    pub(crate) fn remove(&self, holders: u64) -> bool {
        // AcqRel: the tables are freed after every CPU that held them has let go; partner is itself on other CPUs.
        self.0.fetch_sub(holders, Ordering::AcqRel) == DYING | holders
    }

    /// One more CPU holds a space that is alive: only where lazy references are counted all along.
    pub(crate) fn add(&self) {
        // Relaxed: a count; the CPU that adds is running the space, so nobody has begun to end it.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The space dies, and its holders have been counted all along; true if there are none.
    pub(crate) fn begin_counted_wait(&self) -> bool {
        // AcqRel: as in `remove`, its partner.
        self.0.fetch_or(DYING, Ordering::AcqRel) == 0
    }
}

/// Whether a destroyed space's top-level table may be freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Destroyed {
    /// No CPU has it loaded, and none touches it again.
    Now,
    /// A CPU still holds it in lazy TLB mode; [`Event::LastLazyReference`](crate::Event) reports when none does any
    /// more.
    WhenUnreferenced,
}

/// Whose translations a flush takes away.
pub enum Translations<'s, S> {
    /// A user space's.
    OfSpace(&'s AddressSpace<S>),
    /// The kernel's: its addresses are mapped in every space, so every CPU may cache them.
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

    /// The space finds its words wherever they are, and may be sent to another thread and shared.
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
        assert_eq!(space.advance().generation(), before.next());
        assert_eq!(space.generation(), before.next());
        assert!(before > Generation::NEVER);
    }

    #[test]
    fn the_last_reference_of_a_dying_space_is_reported() {
        let references = References::new();
        assert!(!references.is_dying() && references.begin_wait(3) && references.is_dying());
        assert!(!references.remove(1) && references.remove(2));
        assert!(!references.begin_wait(1), "a space dies once");
    }

    #[test]
    fn the_last_counted_reference_of_a_dying_space_is_reported() {
        let references = References::new();
        references.add();
        references.add();
        assert!(!references.remove(1));
        assert!(!references.begin_counted_wait());
        assert!(references.remove(1));
    }
}

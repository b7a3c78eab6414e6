//! A request (Linux: `flush_tlb_info`), and the mailbox in which the responders read it.
//!
//! A request lies in one of its initiator's own mailboxes until it is answered, so there is no queue that could
//! overflow (C-64). What does not fit into a mailbox becomes a flush of everything, and keeps the global scope if any
//! part of it had that (INV-11).

use super::sharers::Within;
use super::targets::BatchTargets;
use crate::addr::{SpaceToken, Stride, VirtAddr};
use crate::policy::history::ENABLED;
use crate::policy::history::state::{List, Room, SharedList};
use crate::space::{AddressSpace, Generation, SpaceId};
use crate::sync::{AtomicU64, Ordering, array_of, const_unless_loom};

/// Mailboxes of a CPU: so many of its requests can be outstanding at once. Each but the first costs the kernel 64 bytes
/// for each CPU and one bit for each pair of CPUs. Two for loom and `narrow_sets`, so that tests run out of them.
pub(crate) const MAILBOXES: usize = if cfg!(any(loom, narrow_sets)) { 2 } else { 4 };

/// Which entries are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent<'l> {
    /// All entries of the space.
    Everything,
    /// `pages` translations of `stride` from an address on.
    Range { start: VirtAddr, pages: u32 },
    /// Whatever space the responder has loaded, up to its newest generation: for a batch of many spaces.
    Loaded(&'l BatchTargets),
    /// Entries that only some CPUs can hold.
    Within(&'l Within<'l>),
    /// Single pages: only with the feature `history`.
    List(List<'l>),
}

/// What a request needs beyond flushing the entries of its extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needs(u64);

impl Needs {
    pub(crate) const NOTHING: Self = Self(0);
    /// Entries with the global bit are flushed too.
    pub(crate) const GLOBAL: Self = Self(1);
    /// Page-table pages are about to be freed (Linux: `freed_tables`): CPUs in lazy TLB mode are responders too, and
    /// paging-structure caches are flushed.
    pub(crate) const TABLES: Self = Self(1 << 1);
    /// CPUs of the CPU set that do not run the space are responders too. Those that run something else leave the set;
    /// those that hold it in lazy TLB mode load the kernel's page tables, and stay in the set until the next trim.
    pub(crate) const TRIM: Self = Self(1 << 2);
    /// Every CPU of the CPU set is a responder, whatever it runs: it may not touch the space after its answer.
    pub(crate) const EVERYONE: Self = Self(1 << 3);
    /// Entries without the global bit are among those that are flushed. Such entries of kernel addresses may be cached
    /// under other PCIDs, which INVLPG does not reach.
    pub(crate) const NON_GLOBAL: Self = Self(1 << 4);

    /// Each responder answers by itself, since a flush of its TLB is not enough: it has to leave the space, or
    /// code on it may be walking the page tables with interrupts off.
    pub(crate) const ANSWER: Self = Self(1 << 5);
    /// In a batch: one of its spaces has a PCID by which INVLPGB reaches all CPUs.
    pub(crate) const SHARED: Self = Self(1 << 6);

    /// It goes to some of the CPUs that run the space, which may be generations behind: `sharers.rs`.
    pub(crate) const WITHIN: Self = Self(1 << 7);

    /// With any of these, CPUs that do not use the space are responders too.
    pub(crate) const WIDENS_RESPONDERS: Self = Self::GLOBAL.with(Self::TRIM).with(Self::EVERYONE);

    /// With any of these, no responder acknowledges before it has flushed: `answer.rs`.
    pub(crate) const LATE: Self = Self::TABLES.with(Self::GLOBAL).with(Self::EVERYONE).with(Self::ANSWER);

    pub(crate) const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub(crate) const fn without(self, less: Self) -> Self {
        Self(self.0 & !less.0)
    }

    /// True if it contains one of `these`.
    pub(crate) const fn any_of(self, these: Self) -> bool {
        self.0 & these.0 != 0
    }
}

/// The distance between the translations of a range, as a power of two: a [`Stride`] in the form in which a responder
/// adds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step(u8);

impl Step {
    pub(crate) const PAGE_4K: Self = Self::from_stride(Stride::Page4K);
    pub(crate) const PAGE_2M: Self = Self::from_stride(Stride::Page2M);

    pub(crate) const fn from_stride(stride: Stride) -> Self {
        Self(stride.shift() as u8)
    }

    pub(crate) const fn shift(self) -> u32 {
        self.0 as u32 % u64::BITS
    }

    pub(crate) const fn bytes(self) -> u64 {
        1 << self.shift()
    }
}

/// What one CPU wants another one to flush.
#[derive(Clone, Copy)]
pub(crate) struct Request<'l> {
    pub(crate) space: SpaceId,
    pub(crate) token: SpaceToken,
    pub(crate) generation: Generation,
    pub(crate) extent: Extent<'l>,
    pub(crate) step: Step,
    pub(crate) needs: Needs,
}

impl Request<'static> {
    /// All that is cached, of no space in particular; it was not announced yet.
    pub(crate) const fn everything(needs: Needs) -> Self {
        Self {
            space: SpaceId::KERNEL,
            token: SpaceToken(0),
            generation: Generation::NEVER,
            extent: Extent::Everything,
            step: Step::from_stride(Stride::Page4K),
            needs,
        }
    }
}

impl Request<'_> {
    /// This request, of `space`.
    pub(crate) const fn in_space<S>(self, space: &AddressSpace<S>) -> Self {
        Self { space: space.id, token: space.token, ..self }
    }

    /// True if it needs one of `these`.
    pub(crate) const fn needs(&self, these: Needs) -> bool {
        self.needs.any_of(these)
    }

    /// The number of pages that are flushed one by one; `None` for everything.
    pub(crate) const fn pages(&self) -> Option<u32> {
        match self.extent {
            Extent::Everything | Extent::Loaded(_) | Extent::Within(_) => None,
            Extent::Range { pages, .. } => Some(pages),
            Extent::List(list) => Some(list.count()),
        }
    }
}

const EVERYTHING: u64 = 0;
const RANGE: u64 = 1;
const LIST: u64 = 2;

/// Whether a responder that has read a CPU's first mailbox must look at its other ones; `mailboxes.rs` has the rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InUse {
    /// No other mailbox is in use.
    FirstAlone = 0,
    /// Another mailbox may be in use.
    Several = 1,
}

/// Words of a mailbox: `space`, `token`, `generation`, `shape`, `start`.
pub(crate) const MAILBOX_WORDS: usize = 5;

/// The first mailbox of a CPU.
#[repr(C)]
pub(crate) struct FirstMailbox {
    words: [AtomicU64; MAILBOX_WORDS],
    list: SharedList,
}

impl FirstMailbox {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self { words: array_of!(AtomicU64::new(0); MAILBOX_WORDS), list: SharedList::new() }
        }
    }

    pub(crate) const fn mailbox(&self) -> Mailbox<'_> {
        Mailbox { words: &self.words, list: Some(&self.list) }
    }
}

/// A request in shared memory. Its words are accessed Relaxed: the outbox orders them, as drawn in `mod.rs`.
#[derive(Clone, Copy)]
pub(crate) struct Mailbox<'m> {
    words: &'m [AtomicU64; MAILBOX_WORDS],
    /// Relative to `start`. Only the first mailbox has one: in the others a list becomes a flush of everything.
    list: Option<&'m SharedList>,
}

impl<'m> Mailbox<'m> {
    /// A mailbox other than the first, in words of the request matrix.
    pub(crate) fn from_words(words: &'m [AtomicU64]) -> Self {
        let words = words.first_chunk().expect("the words of a mailbox");
        Self { words, list: None }
    }

    const fn space(&self) -> &AtomicU64 {
        &self.words[0]
    }

    const fn token(&self) -> &AtomicU64 {
        &self.words[1]
    }

    const fn generation(&self) -> &AtomicU64 {
        &self.words[2]
    }

    /// kind | needs << 8 | step << 16 | in use << 24 | count << 32
    const fn shape(&self) -> &AtomicU64 {
        &self.words[3]
    }

    /// The first address of a range, the lowest of a list.
    const fn start(&self) -> &AtomicU64 {
        &self.words[4]
    }

    /// Writes `request`; `in_use` is read in a CPU's first mailbox alone.
    #[inline(always)]
    pub(crate) fn post(&self, request: &Request<'_>, in_use: InUse) {
        let (kind, start, count) = match request.extent {
            // The targets decide which CPUs are responders, which need not know them.
            Extent::Everything | Extent::Loaded(_) | Extent::Within(_) => (EVERYTHING, 0, 0),
            Extent::Range { start, pages } => (RANGE, start.0, pages),
            Extent::List(list) => match self.list.and_then(|shared| shared.post(list)) {
                Some(lowest) => (LIST, lowest, list.count()),
                None => (EVERYTHING, 0, 0),
            },
        };
        let step = u64::from(request.step.shift());
        let shape = kind | request.needs.0 << 8 | step << 16 | (in_use as u64) << 24 | u64::from(count) << 32;
        // Relaxed, all of them: published by the Release store of the outbox; see the type.
        self.space().store(request.space.0, Ordering::Relaxed);
        self.token().store(request.token.0, Ordering::Relaxed);
        self.generation().store(request.generation.0, Ordering::Relaxed);
        self.shape().store(shape, Ordering::Relaxed); // Relaxed: as above
        if kind != EVERYTHING {
            self.start().store(start, Ordering::Relaxed); // Relaxed: as above
        }
    }

    /// Says in a first mailbox, which a responder may be reading, that another one is about to be used.
    pub(crate) fn mark_others_in_use(&self) {
        // Relaxed: this CPU alone writes its mailboxes.
        let shape = self.shape().load(Ordering::Relaxed);
        // Relaxed: the hint for the other mailbox comes after it (Release); a CPU that has taken that hint (Acquire)
        // reads it.
        self.shape().store(shape | (InUse::Several as u64) << 24, Ordering::Relaxed);
    }

    /// The request, with its list in `room` if it has one; and what a first mailbox says about the others.
    #[inline(always)]
    pub(crate) fn read<'l>(&self, room: &'l mut Room) -> (Request<'l>, InUse) {
        // Relaxed, all of them: ordered by the Acquire load of the outbox; see the type.
        let shape = self.shape().load(Ordering::Relaxed);
        let count = (shape >> 32) as u32;
        let extent = match shape & 0xff {
            // Relaxed: as above.
            RANGE => Extent::Range { start: VirtAddr(self.start().load(Ordering::Relaxed)), pages: count },
            LIST if ENABLED => {
                let lowest = self.start().load(Ordering::Relaxed); // Relaxed: as above
                let list = self.list.and_then(|shared| shared.read(lowest, count, room));
                list.map_or(Extent::Everything, Extent::List)
            }
            _ => Extent::Everything,
        };
        let in_use = if shape >> 24 & 1 == 0 { InUse::FirstAlone } else { InUse::Several };
        // Relaxed, all of them: as above.
        let request = Request {
            space: SpaceId(self.space().load(Ordering::Relaxed)),
            token: SpaceToken(self.token().load(Ordering::Relaxed)),
            generation: Generation(self.generation().load(Ordering::Relaxed)),
            extent,
            step: Step((shape >> 16) as u8),
            needs: Needs(shape >> 8 & 0xff),
        };
        (request, in_use)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_posted_is_read() {
        let (first, words) = (FirstMailbox::new(), [const { AtomicU64::new(0) }; MAILBOX_WORDS]);
        for mailbox in [first.mailbox(), Mailbox::from_words(&words)] {
            for extent in [Extent::Everything, Extent::Range { start: VirtAddr(0x7000), pages: u32::MAX }] {
                let request = Request {
                    space: SpaceId(3),
                    token: SpaceToken(u64::MAX),
                    generation: Generation(1 << 60),
                    extent,
                    step: Step::from_stride(Stride::Page2M),
                    needs: Needs::GLOBAL.with(Needs::TRIM),
                };
                mailbox.post(&request, InUse::FirstAlone);
                let mut room = Room::new();
                let (read, in_use) = mailbox.read(&mut room);
                assert_eq!(in_use, InUse::FirstAlone);
                assert_eq!(
                    (read.space, read.token, read.generation),
                    (request.space, request.token, request.generation)
                );
                assert_eq!((read.extent, read.step, read.needs), (extent, request.step, request.needs));
            }
        }
    }

    #[test]
    fn marking_others_in_use_changes_nothing_else() {
        let first = FirstMailbox::new();
        let request = Request {
            space: SpaceId(3),
            token: SpaceToken(1),
            generation: Generation(2),
            extent: Extent::Range { start: VirtAddr(0x7000), pages: 0x89ab_cdef },
            step: Step::from_stride(Stride::Page1G),
            needs: Needs::TABLES,
        };
        first.mailbox().post(&request, InUse::FirstAlone);
        first.mailbox().mark_others_in_use();
        let mut room = Room::new();
        let (read, in_use) = first.mailbox().read(&mut room);
        assert_eq!((read.extent, read.step, read.needs), (request.extent, request.step, request.needs));
        assert_eq!(in_use, InUse::Several);
    }
}

//! What one CPU asks of another, and the mailbox in which it lies while it is carried out.
//!
//! A request lies in its initiator's [`CpuState`](crate::CpuState), one at a time, so there is no queue to overflow
//! (C-64). What does not fit becomes everything, and keeps the global scope if any part of it had one (INV-11).

use crate::addr::{SpaceToken, Stride, VirtAddr};
use crate::address_space::{Generation, SpaceId};
use crate::history::state::{List, Room, SharedList};
use crate::sync::{AtomicU64, Ordering, const_unless_loom};

/// Which entries are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent<'l> {
    /// All of the space.
    Everything,
    /// `pages` translations of `stride` from an address on.
    Range { start: VirtAddr, pages: u32 },
    /// Single pages; there are none without the feature `history`.
    List(List<'l>),
}

/// What a request needs besides the entries that its extent names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needs(u64);

impl Needs {
    pub(crate) const NOTHING: Self = Self(0);
    /// Entries with the global bit go too.
    pub(crate) const GLOBAL: Self = Self(1);
    /// Page-table pages are about to be freed: lazy CPUs are asked too, and whole paths go.
    pub(crate) const TABLES: Self = Self(1 << 1);
    /// CPUs of the set that do not run the space are asked too, and leave the set.
    pub(crate) const TRIM: Self = Self(1 << 2);
    /// Every CPU of the set is asked, whatever it runs: nobody may touch the space after its answer.
    pub(crate) const EVERYONE: Self = Self(1 << 3);

    #[inline(always)]
    pub(crate) const fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// True if it has one of `these`.
    #[inline(always)]
    pub(crate) const fn any_of(self, these: Self) -> bool {
        self.0 & these.0 != 0
    }
}

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Request<'l> {
    pub(crate) space: SpaceId,
    pub(crate) token: SpaceToken,
    pub(crate) generation: Generation,
    pub(crate) extent: Extent<'l>,
    pub(crate) stride: Stride,
    pub(crate) needs: Needs,
}

impl Request<'_> {
    /// True if it needs one of `these`.
    #[inline(always)]
    pub(crate) const fn needs(&self, these: Needs) -> bool {
        self.needs.any_of(these)
    }

    /// Pages that it names; `None` for everything.
    pub(crate) const fn pages(&self) -> Option<u32> {
        match self.extent {
            Extent::Everything => None,
            Extent::Range { pages, .. } => Some(pages),
            Extent::List(list) => Some(list.count()),
        }
    }
}

const EVERYTHING: u64 = 0;
const RANGE: u64 = 1;
const LIST: u64 = 2;

/// A request in shared memory. Its words are Relaxed: the initiator writes them before it sets its outbox (Release),
/// and a responder reads them only while its own bit in that outbox is set (Acquire), which the responder alone
/// clears.
#[repr(C)]
pub(crate) struct Mailbox {
    space: AtomicU64,
    token: AtomicU64,
    generation: AtomicU64,
    /// kind | needs << 8 | stride << 16 | count << 32
    shape: AtomicU64,
    /// The first address of a range, the lowest of a list.
    start: AtomicU64,
    /// Relative to `start`.
    list: SharedList,
}

impl Mailbox {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self {
                space: AtomicU64::new(0),
                token: AtomicU64::new(0),
                generation: AtomicU64::new(0),
                shape: AtomicU64::new(0),
                start: AtomicU64::new(0),
                list: SharedList::new(),
            }
        }
    }

    pub(crate) fn post(&self, request: &Request<'_>) {
        let (kind, start, count) = match request.extent {
            Extent::Everything => (EVERYTHING, 0, 0),
            Extent::Range { start, pages } => (RANGE, start.0, pages),
            Extent::List(list) => match self.list.post(list) {
                Some(lowest) => (LIST, lowest, list.count()),
                None => (EVERYTHING, 0, 0),
            },
        };
        let shape = kind | request.needs.0 << 8 | u64::from(request.stride.shift()) << 16 | u64::from(count) << 32;
        // Relaxed, all of them: published by the Release store of the outbox; see the type.
        self.space.store(request.space.0, Ordering::Relaxed);
        self.token.store(request.token.0, Ordering::Relaxed);
        self.generation.store(request.generation.0, Ordering::Relaxed);
        self.shape.store(shape, Ordering::Relaxed); // Relaxed: as above
        if kind != EVERYTHING {
            self.start.store(start, Ordering::Relaxed); // Relaxed: as above
        }
    }

    /// The request, and its list in `room` if it has one.
    #[inline(always)]
    pub(crate) fn read<'l>(&self, room: &'l mut Room) -> Request<'l> {
        // Relaxed, all of them: ordered by the Acquire load of the outbox; see the type.
        let shape = self.shape.load(Ordering::Relaxed);
        let count = (shape >> 32) as u32;
        let extent = match shape & 0xff {
            // Relaxed: as above.
            RANGE => Extent::Range { start: VirtAddr(self.start.load(Ordering::Relaxed)), pages: count },
            LIST if cfg!(feature = "history") => {
                let lowest = self.start.load(Ordering::Relaxed); // Relaxed: as above
                self.list.read(lowest, count, room).map_or(Extent::Everything, Extent::List)
            }
            _ => Extent::Everything,
        };
        // Relaxed, all of them: as above.
        Request {
            space: SpaceId(self.space.load(Ordering::Relaxed)),
            token: SpaceToken(self.token.load(Ordering::Relaxed)),
            generation: Generation(self.generation.load(Ordering::Relaxed)),
            extent,
            stride: match shape >> 16 & 0xff {
                21 => Stride::Page2M,
                30 => Stride::Page1G,
                _ => Stride::Page4K,
            },
            needs: Needs(shape >> 8 & 0xff),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_posted_is_read() {
        let mailbox = Mailbox::new();
        for extent in [Extent::Everything, Extent::Range { start: VirtAddr(0x7000), pages: u32::MAX }] {
            let request = Request {
                space: SpaceId(3),
                token: SpaceToken(u64::MAX),
                generation: Generation(1 << 60),
                extent,
                stride: Stride::Page2M,
                needs: Needs::GLOBAL.and(Needs::TRIM),
            };
            mailbox.post(&request);
            let mut room = Room::new();
            let read = mailbox.read(&mut room);
            assert_eq!((read.space, read.token, read.generation), (request.space, request.token, request.generation));
            assert_eq!((read.extent, read.stride, read.needs), (extent, Stride::Page2M, request.needs));
        }
    }
}

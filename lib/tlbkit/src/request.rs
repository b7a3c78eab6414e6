//! What one CPU asks of another, and the mailbox in which it lies while it is carried out.
//!
//! A request lives in its sender's [`CpuState`](crate::CpuState), one at a time, so there is no queue to overflow
//! (C-64). More pages than fit become everything, with the strongest scope asked for (INV-11).

use crate::addr::{PAGE_BYTES, SpaceToken, Stride, VirtAddr};
use crate::address_space::{Generation, SpaceId};
use crate::sync::{AtomicU32, AtomicU64, Ordering, const_unless_loom, zeros};

/// Single pages that a request can name.
pub const MAX_PAGES: usize = 16;

/// Which entries are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// All of the space.
    Everything,
    /// `pages` translations of `stride` from an address on.
    Range { start: VirtAddr, pages: u32 },
    /// The first `count` addresses of the list.
    List { count: u32 },
}

/// What else must hold.
pub(crate) mod scope {
    /// Entries with the global bit are among them.
    pub(crate) const GLOBAL: u64 = 1;
    /// Page-table pages are about to be freed: lazy CPUs too, and whole paths.
    pub(crate) const TABLES: u64 = 1 << 1;
    /// CPUs that do not run the space are interrupted and leave its set.
    pub(crate) const TRIM: u64 = 1 << 2;
    /// Every CPU of the set is interrupted, whatever it runs: nobody may touch the space after the answer.
    pub(crate) const EVERYONE: u64 = 1 << 3;
}

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) space: SpaceId,
    pub(crate) token: SpaceToken,
    pub(crate) generation: Generation,
    pub(crate) extent: Extent,
    pub(crate) stride: Stride,
    pub(crate) scope: u64,
}

impl Request {
    #[inline(always)]
    pub(crate) const fn has(&self, scope: u64) -> bool {
        self.scope & scope != 0
    }

    /// Pages that it names; `None` for everything.
    pub(crate) const fn pages(&self) -> Option<u32> {
        match self.extent {
            Extent::Everything => None,
            Extent::Range { pages, .. } => Some(pages),
            Extent::List { count } => Some(count),
        }
    }
}

const EVERYTHING: u64 = 0;
const RANGE: u64 = 1;
const LIST: u64 = 2;

/// A request in shared memory. Words are Relaxed: the sender writes them before it sets its outbox (Release), and a
/// target reads them only while its own bit in that outbox is set (Acquire), which the target alone clears.
#[repr(C)]
pub(crate) struct Mailbox {
    space: AtomicU64,
    token: AtomicU64,
    generation: AtomicU64,
    /// kind | scope << 8 | stride << 16 | count << 32
    shape: AtomicU64,
    /// The first address of a range, the lowest of a list.
    start: AtomicU64,
    /// Pages above `start`: half the size of addresses, so that a CPU's state takes eight lines.
    list: [AtomicU32; MAX_PAGES],
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
                list: zeros!(AtomicU32; MAX_PAGES),
            }
        }
    }

    pub(crate) fn post(&self, request: &Request, list: &[VirtAddr]) {
        let (kind, start, count) = match request.extent {
            Extent::Everything => (EVERYTHING, 0, 0),
            Extent::Range { start, pages } => (RANGE, start.0, pages),
            Extent::List { count } => match self.post_list(list) {
                Some(lowest) => (LIST, lowest, count),
                None => (EVERYTHING, 0, 0),
            },
        };
        let shape = kind | request.scope << 8 | u64::from(request.stride.shift()) << 16 | u64::from(count) << 32;
        // Relaxed, all of them: published by the Release store of the outbox; see the type.
        self.space.store(request.space.0, Ordering::Relaxed);
        self.token.store(request.token.0, Ordering::Relaxed);
        self.generation.store(request.generation.0, Ordering::Relaxed);
        self.shape.store(shape, Ordering::Relaxed); // Relaxed: as above
        if kind != EVERYTHING {
            self.start.store(start, Ordering::Relaxed); // Relaxed: as above
        }
    }

    /// The lowest address; `None` if the list spans too much (16 TiB) to be written relative to it.
    fn post_list(&self, list: &[VirtAddr]) -> Option<u64> {
        let lowest = list.iter().map(|va| va.0).min()?;
        for (word, va) in self.list.iter().zip(list) {
            let pages_above = u32::try_from((va.0 - lowest) / PAGE_BYTES).ok()?;
            word.store(pages_above, Ordering::Relaxed); // Relaxed: as in `post`
        }
        Some(lowest)
    }

    /// The request, and its list in `list` if it has one.
    pub(crate) fn read(&self, list: &mut [VirtAddr; MAX_PAGES]) -> Request {
        // Relaxed, all of them: ordered by the Acquire load of the outbox; see the type.
        let shape = self.shape.load(Ordering::Relaxed);
        let count = (shape >> 32) as u32;
        let extent = match shape & 0xff {
            // Relaxed: as above.
            RANGE => Extent::Range { start: VirtAddr(self.start.load(Ordering::Relaxed)), pages: count },
            LIST => {
                let lowest = self.start.load(Ordering::Relaxed); // Relaxed: as above
                for (va, word) in list.iter_mut().zip(&self.list).take(count as usize) {
                    *va = VirtAddr(lowest + u64::from(word.load(Ordering::Relaxed)) * PAGE_BYTES); // Relaxed: as above
                }
                Extent::List { count }
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
            scope: shape >> 8 & 0xff,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_posted_is_read() {
        let mailbox = Mailbox::new();
        let pages = [VirtAddr(0xf000), VirtAddr(0x1000)];
        for extent in
            [Extent::Everything, Extent::Range { start: VirtAddr(0x7000), pages: u32::MAX }, Extent::List { count: 2 }]
        {
            let request = Request {
                space: SpaceId(3),
                token: SpaceToken(u64::MAX),
                generation: Generation(1 << 60),
                extent,
                stride: Stride::Page2M,
                scope: scope::GLOBAL | scope::TRIM,
            };
            mailbox.post(&request, &pages);
            let mut list = [VirtAddr(0); MAX_PAGES];
            let read = mailbox.read(&mut list);
            assert_eq!((read.space, read.token, read.generation), (request.space, request.token, request.generation));
            assert_eq!((read.extent, read.stride, read.scope), (extent, Stride::Page2M, request.scope));
            assert!(!matches!(extent, Extent::List { .. }) || list[..2] == pages);
        }
    }

    #[test]
    fn a_list_that_spans_too_much_becomes_everything() {
        let pages = [VirtAddr(0x1000), VirtAddr(0xffff_8000_0000_0000)];
        assert_eq!(Mailbox::new().post_list(&pages), None);
        assert_eq!(Mailbox::new().post_list(&pages[1..]), Some(pages[1].0));
    }
}

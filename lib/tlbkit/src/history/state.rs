//! What older choices keep in the protocol's structures: a list in a request and its mailbox, the machine's counters, a
//! row of the matrix.

use super::choices::{Accounting, History};
use super::stats::CpuStats;
use crate::addr::{PAGE_BYTES, VirtAddr};
use crate::sync::{AtomicU32, Ordering, array_of, const_unless_loom};

/// Single pages that a request can name.
pub const MAX_PAGES: usize = 16;

/// Rows of the matrix: the kernel's own set.
pub(crate) const ROWS: usize = 1;

/// Single pages that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List<'l>(pub(super) &'l [VirtAddr]);

impl List<'_> {
    pub(crate) const fn count(&self) -> u32 {
        self.0.len() as u32
    }

    #[inline(always)]
    pub(crate) fn each(&self, f: impl FnMut(VirtAddr)) {
        self.0.iter().copied().for_each(f);
    }

    /// True if each page lies below `end`.
    pub(crate) fn is_below(&self, end: u64) -> bool {
        self.0.iter().all(|va| va.0 < end)
    }
}

/// Where a responder puts the list that it reads from a mailbox.
pub(crate) struct Room(Option<[VirtAddr; MAX_PAGES]>);

impl Room {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self(None)
    }
}

/// The list of a mailbox: pages above the lowest address, half the size of addresses, so that it takes one line.
pub(crate) struct SharedList([AtomicU32; MAX_PAGES]);

impl SharedList {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(array_of!(AtomicU32::new(0); MAX_PAGES))
        }
    }

    /// The lowest address; `None` if the list spans too much (16 TiB) to be written relative to it.
    pub(crate) fn post(&self, list: List<'_>) -> Option<u64> {
        let lowest = list.0.iter().map(|va| va.0).min()?;
        for (word, va) in self.0.iter().zip(list.0) {
            let pages_above = u32::try_from((va.0 - lowest) / PAGE_BYTES).ok()?;
            word.store(pages_above, Ordering::Relaxed); // Relaxed: as in `Mailbox::post`
        }
        Some(lowest)
    }

    /// The list of `count` pages that was posted with this lowest address.
    pub(crate) fn read<'l>(&self, lowest: u64, count: u32, room: &'l mut Room) -> Option<List<'l>> {
        let list = room.0.insert([VirtAddr(0); MAX_PAGES]).get_mut(..count as usize)?;
        for (va, word) in list.iter_mut().zip(&self.0) {
            // Relaxed: as in `Mailbox::read`.
            *va = VirtAddr(lowest + u64::from(word.load(Ordering::Relaxed)) * PAGE_BYTES);
        }
        Some(List(list))
    }
}

/// The counters of a machine, one a CPU, when flushes are counted.
pub(crate) struct Counters<'k>(Option<&'k [CpuStats]>);

impl<'k> Counters<'k> {
    pub(crate) const NONE: Self = Self(None);

    pub(super) fn new(history: &History, stats: &'k [CpuStats]) -> Self {
        Self((history.accounting == Accounting::On).then_some(stats))
    }

    pub(super) fn of(&self, cpu: usize) -> Option<&'k CpuStats> {
        self.0.and_then(|stats| stats.get(cpu))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_spans_too_much_is_not_posted() {
        let pages = [VirtAddr(0x1000), VirtAddr(0xffff_8000_0000_0000)];
        assert_eq!(SharedList::new().post(List(&pages)), None);
        assert_eq!(SharedList::new().post(List(&pages[1..])), Some(pages[1].0));
    }

    #[test]
    fn a_list_is_read_as_it_was_posted() {
        let (shared, pages, mut room) = (SharedList::new(), [VirtAddr(0xf000), VirtAddr(0x1000)], Room::new());
        let lowest = shared.post(List(&pages)).unwrap();
        assert_eq!(shared.read(lowest, 2, &mut room), Some(List(&pages)));
    }
}

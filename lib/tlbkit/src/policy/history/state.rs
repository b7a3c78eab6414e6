//! What choices of older kernels keep in the protocol's structures: a list in a request and its mailbox, the machine's
//! counters, a row of the request matrix. Without the feature all of this has no size.

use super::ENABLED;
use super::choices::{Accounting, History};
use super::stats::CpuStats;
use crate::addr::{PAGE_BYTES, VirtAddr};
use crate::sync::{AtomicU32, Ordering, array_of, const_unless_loom};

/// Single pages that a request can name.
pub const MAX_PAGES: usize = 16;

/// Rows of the request matrix: the kernel's own CPU set.
pub(crate) const ROWS: usize = ENABLED as usize;

/// Pages for which there is room in a mailbox and in a gather.
pub(super) const ROOM: usize = if ENABLED { MAX_PAGES } else { 0 };

/// A value of this type proves that the build has the feature. Where it has not there is no such value, and the
/// compiler drops every branch that would need one.
#[cfg(feature = "history")]
type Proof = ();
#[cfg(not(feature = "history"))]
type Proof = core::convert::Infallible;

#[cfg(feature = "history")]
const PROOF: Option<Proof> = Some(());
#[cfg(not(feature = "history"))]
const PROOF: Option<Proof> = None;

/// Single pages that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List<'l>(&'l [VirtAddr], Proof);

impl<'l> List<'l> {
    pub(super) fn new(pages: &'l [VirtAddr]) -> Option<Self> {
        PROOF.map(|proof| Self(pages, proof))
    }

    pub(crate) const fn count(&self) -> u32 {
        self.0.len() as u32
    }

    pub(crate) fn for_each(&self, f: impl FnMut(VirtAddr)) {
        self.0.iter().copied().for_each(f);
    }

    /// True if each page lies below `end`.
    pub(crate) fn is_below(&self, end: u64) -> bool {
        self.0.iter().all(|va| va.0 < end)
    }
}

/// Where a responder puts the list that it reads from a mailbox.
pub(crate) struct Room(Option<[VirtAddr; ROOM]>);

impl Room {
    pub(crate) const fn new() -> Self {
        Self(None)
    }
}

/// The list of a mailbox: pages above the lowest address, half the size of addresses, so that it takes one line.
pub(crate) struct SharedList([AtomicU32; ROOM]);

impl SharedList {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(array_of!(AtomicU32::new(0); ROOM))
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
        let list = room.0.insert([VirtAddr(0); ROOM]).get_mut(..count as usize)?;
        for (va, word) in list.iter_mut().zip(&self.0) {
            // Relaxed: as in `Mailbox::read`.
            *va = VirtAddr(lowest + u64::from(word.load(Ordering::Relaxed)) * PAGE_BYTES);
        }
        List::new(list)
    }
}

/// The counters of a machine, one for each CPU, if flushes are counted.
pub(crate) struct Counters<'k>([Option<&'k [CpuStats]>; ENABLED as usize]);

impl<'k> Counters<'k> {
    pub(crate) const NONE: Self = Self([None; ENABLED as usize]);

    pub(super) fn new(history: &History, stats: &'k [CpuStats]) -> Self {
        Self([(history.accounting == Accounting::On).then_some(stats); ENABLED as usize])
    }

    pub(super) fn of_cpu(&self, cpu: usize) -> Option<&'k CpuStats> {
        self.0.first().copied().flatten()?.get(cpu)
    }
}

#[cfg(all(test, feature = "history", not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_spans_too_much_is_not_posted() {
        let pages = [VirtAddr(0x1000), VirtAddr(0xffff_8000_0000_0000)];
        assert_eq!(SharedList::new().post(List(&pages, ())), None);
        assert_eq!(SharedList::new().post(List(&pages[1..], ())), Some(pages[1].0));
    }

    #[test]
    fn a_list_is_read_as_it_was_posted() {
        let (shared, pages, mut room) = (SharedList::new(), [VirtAddr(0xf000), VirtAddr(0x1000)], Room::new());
        let lowest = shared.post(List(&pages, ())).unwrap();
        assert_eq!(shared.read(lowest, 2, &mut room), Some(List(&pages, ())));
    }
}

//! What a kernel does that a policy of the protocol says nothing of.

use super::lists::PageLists;
use super::regions::RegionWaits;

/// Through what a kernel copies from a file's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileReads {
    /// Through its map of all memory, as Linux does on 64-bit machines: nothing is mapped for it.
    #[default]
    DirectMap,
    /// Through windows of its own addresses, mapped and unmapped for each piece, as NetBSD's buffer cache does.
    Windows,
}

/// Which lock those take who leave a space's regions as they are: faults, and what gives pages back. Who changes
/// regions takes that of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RegionLocks {
    /// That of all regions, for reading.
    #[default]
    OfAll,
    /// Faults that of their region; what gives pages back that of all: Linux since 6.4.
    OfOneForFaults,
    /// Both that of their region: Linux since 6.17.
    OfOne,
}

/// Which lock somebody asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wants {
    /// That of all regions, to change some.
    AllToWrite,
    /// That of all regions, to leave them as they are.
    AllToRead,
    /// That of the region in which so many pages from `va` on lie, to leave it as it is. If they lie in several
    /// regions, that of all.
    PartToRead { va: u64, pages: u64 },
}

/// Habits of the kernel of one run.
pub(crate) struct Habits {
    /// Through what it reads files.
    pub(crate) file_reads: FileReads,
    /// Base pages of a file that a load's fault maps at once.
    pub(crate) fault_around: u64,
    /// Which lock those take who leave regions as they are.
    pub(crate) region_locks: RegionLocks,
    /// How tasks wait for the lock of all regions.
    pub(crate) region_waits: RegionWaits,
    /// How it keeps lists of pages.
    pub(crate) lists: PageLists,
}

impl Habits {
    /// Which lock a fault at `va` wants.
    pub(super) fn fault_wants(&self, va: u64) -> Wants {
        match self.region_locks {
            RegionLocks::OfAll => Wants::AllToRead,
            RegionLocks::OfOneForFaults | RegionLocks::OfOne => Wants::PartToRead { va, pages: 1 },
        }
    }

    /// Which lock it wants that gives so many pages back from `va` on.
    pub(super) fn sweep_wants(&self, va: u64, pages: u64) -> Wants {
        match self.region_locks {
            RegionLocks::OfAll | RegionLocks::OfOneForFaults => Wants::AllToRead,
            RegionLocks::OfOne => Wants::PartToRead { va, pages },
        }
    }
}

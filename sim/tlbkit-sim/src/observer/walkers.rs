//! Which CPUs have walked what: those that could hold a translation, were tables private above some level.
//!
//! A CPU whose directory names a leaf table only after its own walk has asked for it cannot hold what lies below one
//! that it never named. It counts as having named a region until nothing is mapped there any more; no region is aged.
//! The same is asked of single pages, and of regions as they would be if each thread's mappings had regions of their
//! own.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tlbkit::{PAGE_BYTES, PhysAddr};

use super::clairvoyant::USER_HALF_BYTES;

/// Bytes that a leaf table maps.
const REGION_SHIFT: u32 = 21;
/// 2 MiB, 1 GiB and 512 GiB.
pub(super) const LEVEL_SHIFTS: [u32; 3] = [REGION_SHIFT, 30, 39];
/// The owner of every region while threads are not kept apart.
const TOGETHER: u32 = u32::MAX;

/// A region of a space: the space's first table, the thread that it is kept for, and its number.
type Region = (u64, u32, u64);

/// Of the top-level tables of one CPU each, that of their space.
#[derive(Debug, Default)]
pub(super) struct Roots(BTreeMap<PhysAddr, PhysAddr>);

impl Roots {
    /// The table at `own` is one CPU's, for the space that has one at `root`; a page above are the user halves.
    pub(super) fn add(&mut self, own: PhysAddr, root: PhysAddr) {
        let above = |at: PhysAddr| PhysAddr(at.0 + USER_HALF_BYTES);
        self.0.extend([(own, root), (above(own), above(root))]);
    }

    /// The top-level table of the space of which `loaded` is one.
    pub(super) fn of_space(&self, loaded: PhysAddr) -> PhysAddr {
        self.0.get(&loaded).copied().unwrap_or(loaded)
    }
}

/// What one CPU has walked.
#[derive(Debug, Default)]
struct Walked {
    /// Pages of a space, since they were mapped.
    pages: BTreeSet<(u64, u64)>,
    regions: BTreeSet<Region>,
    /// The last page, as most walks come in runs.
    last: Option<(u64, u64)>,
}

/// How a walk went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walk {
    /// A fault had come before it.
    AfterFault,
    /// It found its page at once.
    AtOnce,
}

/// Whether threads have regions of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placement {
    /// As today: one mapping follows the other.
    Together,
    /// Each thread maps where no other does.
    Apart,
}

/// What all CPUs have walked, and which thread has mapped what.
#[derive(Debug)]
pub(super) struct Walkers {
    cpus: Vec<Walked>,
    /// By space and first address: the end, and the thread that mapped it.
    mappings: BTreeMap<(u64, u64), (u64, u32)>,
    /// Faults that tables of a CPU's own would add, by level of [`LEVEL_SHIFTS`]: together and apart.
    pub(super) added_faults: [[u64; 3]; 2],
}

impl Walkers {
    pub(super) fn new(cpus: usize) -> Self {
        let cpus = (0..cpus).map(|_| Walked::default()).collect();
        Self { cpus, mappings: BTreeMap::new(), added_faults: [[0; 3]; 2] }
    }

    /// The thread `owner` has mapped a range of the space at `root`.
    pub(super) fn map(&mut self, root: PhysAddr, range: Range<u64>, owner: u32) {
        self.mappings.insert((root.0, range.start), (range.end, owner));
    }

    /// The range is not mapped any more. Regions in which nothing else is mapped lose their tables.
    pub(super) fn unmap(&mut self, root: PhysAddr, range: &Range<u64>) {
        let cut: Vec<_> = self.overlapping(root, range).collect();
        for &(start, end, owner) in &cut {
            self.mappings.remove(&(root.0, start));
            if start < range.start {
                self.mappings.insert((root.0, start), (range.start, owner));
            }
            if end > range.end {
                self.mappings.insert((root.0, range.end), (end, owner));
            }
        }
        for &(start, end, owner) in &cut {
            for region in start.max(range.start) >> REGION_SHIFT..=(end.min(range.end) - 1) >> REGION_SHIFT {
                let bytes = region << REGION_SHIFT..(region + 1) << REGION_SHIFT;
                let left: Vec<_> = self.overlapping(root, &bytes).map(|(.., owner)| owner).collect();
                let gone = [(left.is_empty(), TOGETHER), (!left.contains(&owner), owner)];
                for (_, owner) in gone.into_iter().filter(|(is_gone, _)| *is_gone) {
                    self.cpus.iter_mut().for_each(|cpu| _ = cpu.regions.remove(&(root.0, owner, region)));
                }
            }
        }
    }

    /// The space at `child` has the mappings of the one at `parent`.
    pub(super) fn fork(&mut self, parent: PhysAddr, child: PhysAddr) {
        let copied: Vec<_> = self.overlapping(parent, &(0..u64::MAX)).collect();
        self.mappings.extend(copied.into_iter().map(|(start, end, owner)| ((child.0, start), (end, owner))));
    }

    /// The pages of the range were taken out of the tables, all of them if there is no range.
    pub(super) fn forget_pages(&mut self, root: PhysAddr, range: &Range<u64>) {
        let (first, last) = ((root.0, range.start / PAGE_BYTES), (root.0, range.end.div_ceil(PAGE_BYTES)));
        for cpu in &mut self.cpus {
            let gone: Vec<_> = cpu.pages.range(first..last).copied().collect();
            gone.iter().for_each(|page| _ = cpu.pages.remove(page));
            cpu.last = None;
        }
    }

    /// The CPU has walked to the page at `va`.
    pub(super) fn note(&mut self, cpu: usize, root: PhysAddr, va: u64, walk: Walk) {
        let page = (root.0, va / PAGE_BYTES);
        if self.cpus[cpu].last.replace(page) == Some(page) || !self.cpus[cpu].pages.insert(page) {
            return;
        }
        let owner = self.overlapping(root, &(va..va + 1)).next().map_or(TOGETHER - 1, |(.., owner)| owner);
        for (placement, owner) in [TOGETHER, owner].into_iter().enumerate() {
            let walked = &mut self.cpus[cpu];
            for (level, shift) in LEVEL_SHIFTS.into_iter().enumerate() {
                let is_added =
                    walk == Walk::AtOnce && !walked.has_within(root, owner, va >> shift << shift, 1 << shift);
                self.added_faults[placement][level] += u64::from(is_added);
            }
            walked.regions.insert((root.0, owner, va >> REGION_SHIFT));
        }
    }

    /// True if the CPU has walked to a page of the range.
    pub(super) fn has_walked(&self, cpu: usize, root: PhysAddr, range: &Range<u64>) -> bool {
        let (first, last) = ((root.0, range.start / PAGE_BYTES), (root.0, range.end.div_ceil(PAGE_BYTES)));
        self.cpus[cpu].pages.range(first..last).next().is_some()
    }

    /// True if the CPU has walked to a page of a region of the level that the range touches.
    pub(super) fn has_named(
        &self,
        cpu: usize,
        root: PhysAddr,
        range: &Range<u64>,
        shift: u32,
        placement: Placement,
    ) -> bool {
        let outward = |from: u64, to: u64| {
            let first = (from >> shift) << shift;
            (first, (((to - 1) >> shift) + 1) << shift)
        };
        match placement {
            Placement::Together => {
                let (first, end) = outward(range.start, range.end);
                self.cpus[cpu].has_within(root, TOGETHER, first, end - first)
            }
            Placement::Apart => self.overlapping(root, range).any(|(start, end, owner)| {
                let (first, end) = outward(start.max(range.start), end.min(range.end));
                self.cpus[cpu].has_within(root, owner, first, end - first)
            }),
        }
    }

    /// The mappings of the space that overlap the range: start, end, owner.
    fn overlapping(&self, root: PhysAddr, range: &Range<u64>) -> impl Iterator<Item = (u64, u64, u32)> {
        let (start, end, root) = (range.start, range.end, root.0);
        let before = self.mappings.range((root, 0)..(root, start)).next_back();
        let within = self.mappings.range((root, start)..(root, end));
        before
            .into_iter()
            .chain(within)
            .map(|(&(_, from), &(to, owner))| (from, to, owner))
            .filter(move |m| m.1 > start)
    }
}

impl Walked {
    fn has_within(&self, root: PhysAddr, owner: u32, first: u64, bytes: u64) -> bool {
        let regions = (first >> REGION_SHIFT)..(first + bytes) >> REGION_SHIFT;
        self.regions.range((root.0, owner, regions.start)..(root.0, owner, regions.end)).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: PhysAddr = PhysAddr(0x1000);
    const MIB: u64 = 1 << 20;

    #[test]
    fn a_cpu_is_told_of_a_region_only_after_it_has_walked_there() {
        let mut walkers = Walkers::new(2);
        walkers.map(ROOT, 0..4 * MIB, 7);
        walkers.note(1, ROOT, 0x1000, Walk::AtOnce);
        let named = |w: &Walkers, range, shift| w.has_named(1, ROOT, &range, shift, Placement::Together);
        assert!(named(&walkers, 0x5000..0x6000, 21), "another page of the same 2 MiB");
        assert!(!named(&walkers, 2 * MIB..3 * MIB, 21) && named(&walkers, 2 * MIB..3 * MIB, 30));
        assert!(walkers.has_walked(1, ROOT, &(0..MIB)) && !walkers.has_walked(1, ROOT, &(0x5000..0x6000)));
        assert!(!walkers.has_named(0, ROOT, &(0..MIB), 39, Placement::Together), "the other CPU has walked nowhere");
        assert_eq!(walkers.added_faults, [[1; 3]; 2]);
        walkers.unmap(ROOT, &(0..2 * MIB));
        assert!(!named(&walkers, 0..MIB, 21), "the leaf table is gone");
    }

    #[test]
    fn threads_that_map_apart_share_no_region() {
        let mut walkers = Walkers::new(2);
        walkers.map(ROOT, 0..0x1000, 0);
        walkers.map(ROOT, 0x1000..0x2000, 1);
        walkers.note(0, ROOT, 0, Walk::AfterFault);
        walkers.note(1, ROOT, 0x1000, Walk::AfterFault);
        let named = |w: &Walkers, placement| w.has_named(1, ROOT, &(0..0x1000), 21, placement);
        assert!(named(&walkers, Placement::Together) && !named(&walkers, Placement::Apart));
        assert_eq!(walkers.added_faults, [[0; 3]; 2], "each had a fault of its own");
        walkers.unmap(ROOT, &(0x1000..0x2000));
        assert!(named(&walkers, Placement::Together), "the other thread's page keeps the table");
        walkers.fork(ROOT, PhysAddr(0x9000));
        assert_eq!(walkers.overlapping(PhysAddr(0x9000), &(0..MIB)).count(), 1);
    }
}

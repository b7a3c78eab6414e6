//! Costs as fixed-point numbers. Whole cycles are charged and the fraction is carried to the next charge, so that every
//! host computes the same. What a walk's reference costs depends on which lines of page tables are near.

use tlbkit::PhysAddr;

use super::access::{Cost, Overlap, Source};
use super::config::TranslationCosts;

/// One cycle.
const ONE: f64 = 256.0;
const SHIFT: u32 = 8;

/// The costs of one CPU, and the fraction of a cycle that it has not been charged yet.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    stlb: [u32; 2],
    start: u32,
    /// An entry of a table, with its nested references: by depth, and then by where its line is.
    reference: [[u32; 2]; 2],
    /// Share of a walk that is left when others overlap it, in 1/65536.
    overlap: u32,
    nested_references: u32,
    carried: u32,
}

/// One entry of a table that a walk read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    Upper,
    Leaf,
}

/// What a walk has cost so far, in 1/256 cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalkCost {
    references: u32,
    parts: u32,
}

impl Meter {
    pub(super) fn new(costs: &TranslationCosts) -> Self {
        let nested = fixed(costs.nested_references * costs.nested_reference_cycles);
        let reference = |cold, hot| [fixed(cold) + nested, fixed(hot) + nested];
        let upper = reference(costs.upper_cold_cycles, costs.upper_hot_cycles);
        let leaf = reference(costs.leaf_cold_cycles, costs.leaf_hot_cycles);
        Self {
            stlb: [fixed(costs.stlb_independent_cycles), fixed(costs.stlb_dependent_cycles)],
            start: fixed(costs.walk_start_cycles),
            reference: [upper, leaf],
            overlap: (costs.overlap_percent / 100.0 * 65_536.0).round() as u32,
            nested_references: fixed(costs.nested_references),
            carried: 0,
        }
    }

    /// A first-level hit: the reference point.
    #[inline(always)]
    pub(super) const fn l1() -> Cost {
        Cost { source: Source::L1, references: 0, cycles: 0 }
    }

    /// A second-level hit.
    #[inline(always)]
    pub(super) fn stlb(&mut self, overlap: Overlap) -> Cost {
        Cost { source: Source::Stlb, references: 0, cycles: self.charge(self.stlb[overlap as usize]) }
    }

    /// A walk begins.
    #[inline(always)]
    pub(super) fn walk(&self) -> WalkCost {
        WalkCost { references: 0, parts: self.start }
    }

    /// The walk reads an entry.
    #[inline(always)]
    pub(super) fn reference(&self, walk: &mut WalkCost, depth: Depth, line: TableLine) {
        walk.references += 1;
        walk.parts += self.reference[depth as usize][line as usize];
    }

    /// The walk is over.
    #[inline(always)]
    pub(super) fn finish(&mut self, walk: WalkCost, overlap: Overlap) -> Cost {
        let parts = match overlap {
            Overlap::Dependent => walk.parts,
            Overlap::Independent => ((u64::from(walk.parts) * u64::from(self.overlap)) >> 16) as u32,
        };
        let references = walk.references + ((walk.references * self.nested_references) >> SHIFT);
        Cost { source: Source::Walk, references: references as u16, cycles: self.charge(parts) }
    }

    fn charge(&mut self, parts: u32) -> u32 {
        let total = parts + self.carried;
        self.carried = total & ((1 << SHIFT) - 1);
        total >> SHIFT
    }
}

fn fixed(cycles: f64) -> u32 {
    (cycles * ONE).round() as u32
}

const LINE_SHIFT: u32 = 6;

/// Where a line of a page table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TableLine {
    /// Not in a cache near by.
    Far,
    /// In a cache near by, because it was read not long ago.
    Near,
}

/// Which cache lines of page tables were read not long ago: a direct-mapped filter, one short tag per line.
///
/// The caches themselves are not modelled. A hot reference costs a near hit, a cold one what the machine file says.
///
/// The filter. Storage is taken at the first walk.
#[derive(Clone, Debug)]
pub(super) struct NearLines {
    count: usize,
    tags: Vec<u16>,
}

impl NearLines {
    pub(super) fn new(count: usize) -> Self {
        assert!(count == 0 || count.is_power_of_two() && count <= 1 << 16, "a power of two of lines");
        Self { count, tags: Vec::new() }
    }

    /// Where the line of `pa` is; from now on it is near.
    #[inline(always)]
    pub(super) fn touch(&mut self, pa: PhysAddr) -> TableLine {
        if self.count == 0 {
            return TableLine::Far;
        }
        if self.tags.is_empty() {
            self.tags = vec![0; self.count];
        }
        let line = pa.0 >> LINE_SHIFT;
        // Plus one: a tag of zero is an empty place. Two lines that lie 65,535 filters apart share a tag.
        let tag = (line / self.count as u64 % u64::from(u16::MAX)) as u16 + 1;
        let place = &mut self.tags[line as usize & (self.count - 1)];
        if std::mem::replace(place, tag) == tag { TableLine::Near } else { TableLine::Far }
    }
}

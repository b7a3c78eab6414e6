//! A reference trace whose miss rates are known from independent simulators.
//!
//! Blocks of 1,024 accesses alternate between two regions of 64 MiB: a pointer chase through one random cycle over all
//! cache lines of the first, and a sequential walk in steps of 8 bytes through the second, every fourth a store. With
//! 64 entries in 4 ways and 2,048 in 16 ways, both LRU, 49.9 % of the accesses miss the first level and 44.0 % both.
//! TLBSim and DynamoRIO's drmemtrace count the same for this trace.

use std::cell::Cell;

use tlbkit::{Cr3, Pcid, PhysAddr, VirtAddr};
use tlbkit_arch::{SplitMix64, entry_at};

use tlbkit_sim::mmu::{Access, ArrayConfig, Mmu, MmuConfig, Overlap, PageSize, PathCaches, Privilege, Tables};

/// Accesses of one block.
const BLOCK: u64 = 1024;
const REGION_BYTES: u64 = 64 << 20;
const LINE_BYTES: u64 = 64;
const CHASE_BASE: u64 = 0x10_0000_0000;
const WALK_BASE: u64 = CHASE_BASE + REGION_BYTES;
/// Bit 0 of a packed access.
const STORE: u64 = 1;

/// The trace, without end: each item is an address, bit 0 set for a store.
struct Trace {
    next_line: Vec<u32>,
    line: u32,
    walked: u64,
    count: u64,
}

impl Trace {
    /// The trace of one seed.
    fn new(seed: u64) -> Self {
        let lines = (REGION_BYTES / LINE_BYTES) as u32;
        Self { next_line: single_cycle(lines, seed), line: 0, walked: 0, count: 0 }
    }
}

impl Iterator for Trace {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let block = self.count / BLOCK;
        self.count += 1;
        if block.is_multiple_of(2) {
            self.line = self.next_line[self.line as usize];
            return Some(CHASE_BASE + u64::from(self.line) * LINE_BYTES);
        }
        let at = WALK_BASE + self.walked * 8 % REGION_BYTES;
        self.walked += 1;
        Some(at | if self.walked.is_multiple_of(4) { STORE } else { 0 })
    }
}

/// Sattolo's shuffle: a permutation that is one cycle.
fn single_cycle(length: u32, seed: u64) -> Vec<u32> {
    let mut next: Vec<u32> = (0..length).collect();
    let mut random = SplitMix64::new(seed);
    for last in (1..length as usize).rev() {
        next.swap(last, (random.bits() % last as u64) as usize);
    }
    next
}

/// Table frames in one vector of words, with both regions mapped in base pages.
struct FlatTables {
    words: Vec<Cell<u64>>,
}

const ROOT: u64 = 0x1000;
const POINTERS: u64 = 0x2000;
const DIRECTORY: u64 = 0x3000;
const LAST_LEVEL: u64 = 0x4000;
const TABLE: u64 = 0x07;
const USER_PAGE: u64 = 0x07;

impl FlatTables {
    /// Tables for both regions; the data frames lie one gibibyte above.
    fn new() -> Self {
        let leaves = 2 * REGION_BYTES / 4096;
        let tables = Self { words: vec![Cell::new(0); ((LAST_LEVEL + leaves * 8) / 8) as usize] };
        tables.write(entry_at(PhysAddr(ROOT), VirtAddr(CHASE_BASE), 4).0, POINTERS | TABLE);
        tables.write(entry_at(PhysAddr(POINTERS), VirtAddr(CHASE_BASE), 3).0, DIRECTORY | TABLE);
        for table in 0..leaves / 512 {
            tables.write(DIRECTORY + 8 * table, (LAST_LEVEL + table * 4096) | TABLE);
        }
        for leaf in 0..leaves {
            tables.write(LAST_LEVEL + 8 * leaf, ((1 << 30) + leaf * 4096) | USER_PAGE);
        }
        tables
    }

    /// What to load into CR3.
    fn cr3(&self) -> Cr3 {
        Cr3::flushing(PhysAddr(ROOT), Pcid(1))
    }

    fn write(&self, at: u64, value: u64) {
        self.words[(at / 8) as usize].set(value);
    }
}

impl Tables for FlatTables {
    fn read(&self, pa: PhysAddr) -> u64 {
        self.words[(pa.0 / 8) as usize].get()
    }

    fn set_accessed_dirty(&self, pa: PhysAddr, bits: u64) {
        self.write(pa.0, self.read(pa) | bits);
    }
}

/// The hardware of the comparison.
fn reference_config() -> MmuConfig {
    let l1 = ArrayConfig::lru(&[PageSize::Small], 16, 4);
    let stlb = ArrayConfig::lru(&[PageSize::Small], 128, 16);
    MmuConfig::counting(vec![l1], vec![stlb], PathCaches { pml4e: 4, pdpte: 4, pde: 32 })
}

/// Runs packed accesses in user mode and returns a sum of the physical addresses, so that nothing is left out.
fn replay(mmu: &mut Mmu, tables: &FlatTables, accesses: &[u64]) -> u64 {
    let mut sum = 0_u64;
    for &packed in accesses {
        let access = if packed & STORE == 0 { Access::Read } else { Access::Write };
        let hit = mmu.translate(VirtAddr(packed & !STORE), access, Privilege::User, Overlap::Independent, tables);
        sum = sum.wrapping_add(hit.expect("the regions are mapped").pa.0);
    }
    sum
}

/// Accesses of the comparison; with debug assertions a tenth: the cold start then still weighs less than the margin.
const ACCESSES: u64 = if cfg!(debug_assertions) { 5_000_000 } else { 50_000_000 };
const MARGIN_POINTS: f64 = 0.2;

#[test]
fn the_reference_trace_misses_as_often_as_elsewhere() {
    let tables = FlatTables::new();
    let mut mmu = Mmu::new(reference_config());
    mmu.write_cr3(tables.cr3());
    let mut trace = Trace::new(1);
    for _ in 0..ACCESSES / 100_000 {
        let piece: Vec<u64> = trace.by_ref().take(100_000).collect();
        replay(&mut mmu, &tables, &piece);
    }
    let counters = mmu.counters();
    assert_eq!(counters.accesses, ACCESSES);
    let percent = |part: u64| 100.0 * part as f64 / ACCESSES as f64;
    let (first, both) = (percent(counters.l1_misses), percent(counters.walks));
    assert!((first - 49.9).abs() <= MARGIN_POINTS, "{first:.2} % miss the first level");
    assert!((both - 44.0).abs() <= MARGIN_POINTS, "{both:.2} % miss both");
}

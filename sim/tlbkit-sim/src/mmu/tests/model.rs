//! The slow model: entries are removed one by one as the table in `tlbkit-arch` says, ages are numbers, trees are
//! nested halves. Compared with the real
//! arrays access by access on random operations.

use tlbkit::{Cr3, Invpcid, Pcid, PhysAddr, Stride, VirtAddr};
use tlbkit_arch::{CurrentTag, Instruction, Invalidation, SplitMix64, Translation};

use super::*;
use crate::mmu::{Index, ReplacementPolicy, Source};

/// A base page, fetched under a tag.
fn fetched(page: u64, tag: u16) -> Translation {
    Translation { pcid: Pcid(tag), start: VirtAddr(page << 12), stride: Stride::Page4K, is_global: false }
}

/// One array of base pages.
struct SlowArray {
    config: ArrayConfig,
    ways: Vec<Option<Translation>>,
    /// Time of the last use of each slot; what the policies need follows from it.
    used: Vec<u64>,
    now: u64,
}

impl SlowArray {
    fn new(config: &ArrayConfig) -> Self {
        let slots = config.entries();
        // Never used: way 0 counts as the most recent, as in the stack after power-on.
        let used = vec![0; slots];
        Self { config: config.clone(), ways: vec![None; slots], used, now: 0 }
    }

    fn slots_of(&self, page: u64) -> std::ops::Range<usize> {
        let hash = if self.config.index == Index::Xor7 { page ^ page >> 7 } else { page };
        let base = (hash % self.config.sets as u64) as usize * self.config.ways;
        base..base + self.config.ways
    }

    fn touch(&mut self, slot: usize) {
        self.now += 1;
        self.used[slot] = self.now;
    }

    fn lookup(&mut self, page: u64, tag: u16) -> bool {
        let is_wanted = |held: Translation| held.serves(Pcid(tag)) && held.covers(VirtAddr(page << 12));
        let found = self.slots_of(page).find(|&slot| self.ways[slot].is_some_and(is_wanted));
        if let Some(slot) = found {
            self.touch(slot);
        }
        found.is_some()
    }

    fn fill(&mut self, entry: Translation) {
        let slots = self.slots_of(entry.start.0 >> 12);
        let slot = slots.clone().find(|&slot| self.ways[slot].is_none()).unwrap_or_else(|| {
            let ages: Vec<u64> = self.used[slots.clone()].to_vec();
            slots.start + victim(self.config.policy, &ages)
        });
        self.ways[slot] = Some(entry);
        self.touch(slot);
    }

    fn remove(&mut self, what: &Invalidation) {
        for way in &mut self.ways {
            *way = way.filter(|entry| !what.removes(entry));
        }
    }

    fn live(&self) -> u32 {
        self.ways.iter().flatten().count() as u32
    }
}

/// The victim by the times of last use. A tree points away from the half used last; a half never used is the lower one.
fn victim(policy: ReplacementPolicy, ages: &[u64]) -> usize {
    let latest = |half: &[u64]| half.iter().copied().max().unwrap_or(0);
    match policy {
        ReplacementPolicy::Lru => (0..ages.len()).min_by_key(|&way| ages[way]).unwrap(),
        ReplacementPolicy::TreePlru if ages.len() == 1 => 0,
        ReplacementPolicy::TreePlru => {
            let (low, high) = ages.split_at(ages.len() / 2);
            let lower_is_recent = latest(low) > latest(high);
            if lower_is_recent { low.len() + victim(policy, high) } else { victim(policy, low) }
        }
        ReplacementPolicy::RotatingPlru4 => {
            let groups: Vec<&[u64]> = ages.chunks(4).collect();
            let recent = (0..3).max_by_key(|&group| latest(groups[group])).unwrap();
            let next = (recent + 1) % 3;
            4 * next + victim(ReplacementPolicy::TreePlru, groups[next])
        }
    }
}

/// Two levels, one array each.
struct Slow {
    l1: SlowArray,
    stlb: SlowArray,
    tag: u16,
}

impl Slow {
    fn access(&mut self, entry: Translation) -> Source {
        let page = entry.start.0 >> 12;
        if self.l1.lookup(page, self.tag) {
            return Source::L1;
        }
        let known = self.stlb.lookup(page, self.tag);
        if !known {
            self.stlb.fill(entry);
        }
        self.l1.fill(entry);
        if known { Source::Stlb } else { Source::Walk }
    }

    fn execute(&mut self, instruction: Instruction) {
        let current = CurrentTag::Loaded(Pcid(self.tag));
        let what = instruction.invalidates(current);
        self.l1.remove(&what);
        self.stlb.remove(&what);
        if let Instruction::WriteCr3(cr3) = instruction {
            self.tag = current.after(cr3).pcid().0;
        }
    }
}

/// How often a random run flushes.
#[derive(Clone, Copy)]
pub(super) enum Flushes {
    /// One operation in a hundred.
    Rare,
    /// Every other operation: stamps run out and are handed out anew.
    Constant,
}

/// Random operations on both; every answer and every count of living entries must be the same.
pub(super) fn compare(l1: ArrayConfig, stlb: ArrayConfig, operations: u32, flushes: Flushes) {
    let (pages, globals) = (stlb.entries() as u64 * 3 / 2 + 8, 16);
    let memory = Memory::default();
    for page in 0..pages + globals {
        let global = if page < pages { 0 } else { GLOBAL };
        memory.map(ROOT, page << 12, page << 12, PageSize::Small, OPEN | global);
    }
    let mut slow = Slow { l1: SlowArray::new(&l1), stlb: SlowArray::new(&stlb), tag: 1 };
    let mut mmu = Mmu::new(MmuConfig::counting(vec![l1], vec![stlb], PathCaches { pml4e: 2, pdpte: 4, pde: 8 }));
    load(&mut mmu, ROOT, 1);
    let mut dice = SplitMix64::new(1);
    let one_in = if matches!(flushes, Flushes::Rare) { 100 } else { 2 };
    for step in 0..operations {
        if dice.below(one_in) == 0 {
            flush_both(&mut mmu, &mut slow, &mut dice, pages + globals);
        } else {
            // Half of the accesses go to a tenth of the pages.
            let span = if dice.below(2) == 0 { (pages + globals) / 10 + 1 } else { pages + globals };
            let page = pages + globals - 1 - dice.below(span);
            let entry = Translation { is_global: page >= pages, ..fetched(page, slow.tag) };
            let source = read(&mut mmu, &memory, page << 12).1.source;
            assert_eq!(source, slow.access(entry), "step {step}, page {page}");
        }
        assert_eq!(mmu.live_entries(), (slow.l1.live(), slow.stlb.live()), "step {step}");
    }
}

const ROOT: u64 = 0x1000;

fn flush_both(mmu: &mut Mmu, slow: &mut Slow, dice: &mut SplitMix64, pages: u64) {
    let (tag, page) = (Pcid(1 + dice.below(5) as u16), VirtAddr(dice.below(pages) << 12));
    let instruction = match dice.below(12) {
        0..=3 => Instruction::WriteCr3(Cr3::keeping(PhysAddr(ROOT), tag)),
        4 | 5 => Instruction::WriteCr3(Cr3::flushing(PhysAddr(ROOT), tag)),
        6 | 7 => Instruction::Invlpg(page),
        8 => Instruction::Invpcid(Invpcid::Address(tag, page)),
        9 => Instruction::Invpcid(Invpcid::Single(tag)),
        10 => Instruction::Invpcid(Invpcid::All),
        _ => Instruction::TogglePge,
    };
    slow.execute(instruction);
    execute(mmu, instruction);
}

/// Has the real arrays execute what the table knows.
pub(super) fn execute(mmu: &mut Mmu, instruction: Instruction) {
    match instruction {
        Instruction::Invlpg(va) => mmu.invlpg(va),
        Instruction::Invpcid(what) => mmu.invpcid(what).unwrap(),
        Instruction::WriteCr3(cr3) => mmu.write_cr3(cr3),
        Instruction::Invlpgb(what) => mmu.invlpgb(what),
        Instruction::TogglePge => mmu.toggle_pge(),
        other => unreachable!("{other:?} is not among the drawn"),
    }
}

fn shape(sets: usize, ways: usize, policy: ReplacementPolicy) -> ArrayConfig {
    ArrayConfig { policy, ..ArrayConfig::lru(&[PageSize::Small], sets, ways) }
}

#[test]
fn lru_of_all_widths() {
    for ways in [1, 2, 3, 4, 5, 8, 12, 16, 17, 96] {
        compare(shape(4, 4, ReplacementPolicy::Lru), shape(8, ways, ReplacementPolicy::Lru), 30_000, Flushes::Rare);
        compare(shape(1, ways, ReplacementPolicy::Lru), shape(16, 16, ReplacementPolicy::Lru), 30_000, Flushes::Rare);
    }
}

#[test]
fn trees_of_all_widths() {
    for ways in [1, 2, 4, 8, 16, 32, 64] {
        compare(
            shape(2, ways, ReplacementPolicy::TreePlru),
            shape(8, ways, ReplacementPolicy::TreePlru),
            30_000,
            Flushes::Rare,
        );
    }
}

#[test]
fn rotating_trees_behind_the_hashed_index() {
    let stlb = ArrayConfig { index: Index::Xor7, ..shape(128, 12, ReplacementPolicy::RotatingPlru4) };
    compare(shape(16, 4, ReplacementPolicy::TreePlru), stlb, 60_000, Flushes::Rare);
    compare(
        shape(2, 8, ReplacementPolicy::TreePlru),
        shape(4, 12, ReplacementPolicy::RotatingPlru4),
        60_000,
        Flushes::Rare,
    );
}

#[test]
fn stamps_may_run_out() {
    compare(shape(2, 4, ReplacementPolicy::Lru), shape(4, 8, ReplacementPolicy::Lru), 1_500_000, Flushes::Constant);
    compare(
        shape(1, 20, ReplacementPolicy::Lru),
        shape(4, 12, ReplacementPolicy::RotatingPlru4),
        300_000,
        Flushes::Constant,
    );
}

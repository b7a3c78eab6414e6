//! The arrays against the one table of scopes, entry by entry: random instructions on pages of all sizes, global ones
//! and cached paths, with room for everything.

use tlbkit::{Cr3, Invlpgb, Invpcid, Pcid, PhysAddr, Stride, Tables, VirtAddr};
use tlbkit_arch::addr::TOP_LEVEL;
use tlbkit_arch::store::Store;
use tlbkit_arch::{CurrentTag, Instruction, Path, SplitMix64, Translation, span_start, stride};

use super::model::execute;
use super::*;

const ROOT: u64 = 0x1000;
const TAGS: u16 = 3;
const OPERATIONS: u32 = 20_000;

/// Where pages are mapped, at which level, and whether they are global. Some share tables.
const PAGES: [(u64, u32, bool); 9] = [
    (0x50_0000, 1, false),
    (0x50_1000, 1, false),
    (0x70_0000, 1, false),
    (0x4000_0000, 2, false),
    (0x4020_0000, 2, false),
    (0x8000_0000, 3, false),
    (0xffff_8000_0000_0000, 1, true),
    (0xffff_8000_0000_1000, 1, false),
    (0xffff_8000_0020_0000, 2, true),
];

/// The arrays, and what they should hold by the table: paths with the tables that they lead to.
struct Pair {
    memory: Memory,
    mmu: Mmu,
    store: Store<(), PhysAddr>,
    loaded: Pcid,
}

impl Pair {
    fn new() -> Self {
        let memory = Memory::default();
        for (n, (va, level, is_global)) in (1..).zip(PAGES) {
            let global = if is_global { GLOBAL } else { 0 };
            memory.map(ROOT, va, n << 30, PageSize::ALL[level as usize - 1], OPEN | global);
        }
        let mut mmu = Mmu::new(roomy());
        load(&mut mmu, ROOT, 1);
        Self { memory, mmu, store: Store::default(), loaded: Pcid(1) }
    }

    fn read(&mut self, (start, leaf, is_global): (u64, u32, bool), offset: u64) {
        let va = VirtAddr(start + offset);
        read(&mut self.mmu, &self.memory, va.0);
        if self.store.hit(self.loaded, va).is_some() {
            return;
        }
        let known = (1..TOP_LEVEL).find(|&level| self.store.path(self.loaded, level, va).is_some());
        for level in (leaf..known.unwrap_or(TOP_LEVEL)).rev() {
            let table = PhysAddr(self.memory.entry_at(ROOT, 4, va.0, level) & !0xfff);
            let path = Path { pcid: self.loaded, start: span_start(va, level + 1), level };
            self.store.paths.push((path, table));
        }
        let held = Translation { pcid: self.loaded, start: span_start(va, leaf), stride: stride(leaf), is_global };
        self.store.translations.push((held, ()));
    }

    fn execute(&mut self, instruction: Instruction) {
        self.store.execute(instruction, CurrentTag::Loaded(self.loaded));
        execute(&mut self.mmu, instruction);
        if let Instruction::WriteCr3(cr3) = instruction {
            self.loaded = cr3.pcid();
        }
    }

    /// Both hold the same.
    fn check(&self, step: u32, did: &str) {
        for (start, leaf, is_global) in PAGES {
            let va = VirtAddr(start);
            let held = |is_meant: &dyn Fn(&Translation) -> bool| {
                self.store.translations.iter().any(|(held, ())| held.covers(va) && is_meant(held))
            };
            let global = self.mmu.holds_global(va, 1, Stride::Page4K);
            assert_eq!(global, held(&|held| held.is_global), "step {step}, {did}: {va:?}, global: {is_global}");
            for pcid in (1..=TAGS).map(Pcid) {
                let tagged = self.mmu.holds(pcid, va, 1, Stride::Page4K);
                assert_eq!(tagged, held(&|held| held.pcid == pcid && !held.is_global), "step {step}, {did}: {va:?}");
                for level in leaf..TOP_LEVEL {
                    let table = PhysAddr(self.memory.entry_at(ROOT, 4, start, level) & !0xfff);
                    let leads_there = self.store.paths.iter().any(|(path, to)| path.pcid == pcid && *to == table);
                    let found = self.mmu.holds_path(pcid, table);
                    assert_eq!(found, leads_there, "step {step}, {did}: {pcid:?}, level {level} of {va:?}");
                }
            }
        }
    }
}

fn broadcast(random: &mut SplitMix64, first: VirtAddr, pcid: Pcid) -> Invlpgb {
    let (stride, pages) = match random.below(3) {
        0 => (Stride::Page1G, 1),
        1 => (Stride::Page2M, 1 + random.below(4) as u32),
        _ => (Stride::Page4K, 1 + random.below(4) as u32),
    };
    match random.below(8) {
        0 => Invlpgb::Single(pcid),
        1 => Invlpgb::All,
        2 => Invlpgb::AllAndGlobals,
        3 => Invlpgb::PagesOfAll { first, pages, stride },
        4 | 5 => Invlpgb::Pages { pcid, first, pages, stride, tables: Tables::Freed },
        _ => Invlpgb::Pages { pcid, first, pages, stride, tables: Tables::Kept },
    }
}

#[test]
fn the_arrays_hold_what_the_table_of_scopes_leaves() {
    let mut pair = Pair::new();
    let mut random = SplitMix64::new(7);
    for step in 0..OPERATIONS {
        let page = PAGES[random.below(PAGES.len() as u64) as usize];
        let offset = random.below(stride(page.1).bytes());
        let (va, tag) = (VirtAddr(page.0 + offset), Pcid(1 + random.below(u64::from(TAGS)) as u16));
        let instruction = match random.below(32) {
            0 | 1 => Instruction::Invlpg(va),
            2 | 3 => Instruction::Invpcid(Invpcid::Address(tag, va)),
            4 => Instruction::Invpcid(Invpcid::Single(tag)),
            5 => Instruction::Invpcid(if step % 4 == 0 { Invpcid::AllAndGlobals } else { Invpcid::All }),
            6 => Instruction::WriteCr3(Cr3::flushing(PhysAddr(ROOT), tag)),
            7..=10 => Instruction::WriteCr3(Cr3::keeping(PhysAddr(ROOT), tag)),
            11 if step % 4 == 0 => Instruction::TogglePge,
            12 => Instruction::Invlpg(VirtAddr(va.0 ^ 1 << 50)),
            13 | 14 => Instruction::Invlpgb(broadcast(&mut random, va, tag)),
            _ => {
                pair.read(page, offset);
                pair.check(step, "a read");
                continue;
            }
        };
        pair.execute(instruction);
        pair.check(step, &format!("{instruction:?}"));
    }
}

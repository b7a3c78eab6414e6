//! Each row of the table of flush scopes: what goes and what stays.

use tlbkit::{Cr3, Invpcid, Pcid, PhysAddr, Stride, VirtAddr};

use super::*;
use crate::mmu::{GeneralProtection, Loss, LossCause, MmuCounters, Pcide};

const ROOT: u64 = 0x1000;
/// Two pages of one page table, one far away, and two globals.
const NEAR: u64 = 0x10_0000;
const NEXT: u64 = 0x10_1000;
const FAR: u64 = 0x70_0000_0000;
const GLOBAL_PAGE: u64 = 0xffff_8000_0000_0000;
const GLOBAL_NEXT: u64 = 0xffff_8000_0000_1000;

/// What one CPU holds, as letters: near, next, far; lower case for tag 1, upper case for tag 2; `g`, `h` for the
/// globals; `<` a path of tag 1 to the near table, `>` to the far one, `{` and `}` the same for tag 2.
struct Bench {
    memory: Memory,
    mmu: Mmu,
}

const FULL: &str = "nxf NXF gh <> {}";

impl Bench {
    /// Everything cached under tags 1 and 2; tag 1 is loaded.
    fn new() -> Self {
        let memory = Memory::default();
        for (page, va) in [NEAR, NEXT, FAR].into_iter().enumerate() {
            memory.map(ROOT, va, (page as u64 + 1) << 24, PageSize::Small, OPEN);
        }
        for va in [GLOBAL_PAGE, GLOBAL_NEXT] {
            memory.map(ROOT, va, 9 << 24, PageSize::Small, OPEN | GLOBAL);
        }
        let mut mmu = Mmu::new(roomy());
        for pcid in [2, 1] {
            load(&mut mmu, ROOT, pcid);
            for va in [NEAR, NEXT, FAR, GLOBAL_PAGE, GLOBAL_NEXT] {
                read(&mut mmu, &memory, va);
            }
        }
        let bench = Self { memory, mmu };
        assert_eq!(bench.held(), FULL);
        bench
    }

    fn held(&self) -> String {
        let page = |pcid, va| self.mmu.holds(Pcid(pcid), VirtAddr(va), 1, Stride::Page4K);
        let global = |va| self.mmu.holds_global(VirtAddr(va), 1, Stride::Page4K);
        let path = |pcid, va| {
            let table = self.memory.entry_at(ROOT, 4, va, 1) & !0xfff;
            self.mmu.holds_path(Pcid(pcid), PhysAddr(table))
        };
        let letters = |list: &[(char, bool)]| list.iter().map(|&(c, held)| if held { c } else { '-' }).collect();
        let groups: [String; 5] = [
            letters(&[('n', page(1, NEAR)), ('x', page(1, NEXT)), ('f', page(1, FAR))]),
            letters(&[('N', page(2, NEAR)), ('X', page(2, NEXT)), ('F', page(2, FAR))]),
            letters(&[('g', global(GLOBAL_PAGE)), ('h', global(GLOBAL_NEXT))]),
            letters(&[('<', path(1, NEAR)), ('>', path(1, FAR))]),
            letters(&[('{', path(2, NEAR)), ('}', path(2, FAR))]),
        ];
        groups.join(" ")
    }

    fn after(mut self, act: impl FnOnce(&mut Mmu)) -> String {
        act(&mut self.mmu);
        self.held()
    }
}

#[test]
fn invlpg_takes_the_page_and_all_paths_of_the_loaded_tag() {
    let after = Bench::new().after(|mmu| mmu.invlpg(VirtAddr(NEAR + 0xabc)));
    assert_eq!(after, "-xf NXF gh -- {}");
}

#[test]
fn invlpg_takes_a_global_page_too() {
    let after = Bench::new().after(|mmu| mmu.invlpg(VirtAddr(GLOBAL_PAGE)));
    assert_eq!(after, "nxf NXF -h -- {}");
}

#[test]
fn invlpg_of_a_non_canonical_address_does_nothing() {
    let after = Bench::new().after(|mmu| mmu.invlpg(VirtAddr(NEAR | 1 << 50)));
    assert_eq!(after, FULL);
}

#[test]
fn cr3_write_flushes_the_new_tag_only() {
    let after = Bench::new().after(|mmu| mmu.write_cr3(Cr3::flushing(PhysAddr(ROOT), Pcid(2))));
    assert_eq!(after, "nxf --- gh <> --");
}

#[test]
fn cr3_write_of_the_loaded_tag_flushes_it() {
    let after = Bench::new().after(|mmu| mmu.write_cr3(Cr3::flushing(PhysAddr(ROOT), Pcid(1))));
    assert_eq!(after, "--- NXF gh -- {}");
}

#[test]
fn cr3_write_with_bit_63_keeps_everything() {
    let after = Bench::new().after(|mmu| load(mmu, ROOT, 2));
    assert_eq!(after, FULL);
}

#[test]
fn invpcid_0_takes_one_page_and_its_path() {
    let after = Bench::new().after(|mmu| mmu.invpcid(Invpcid::Address(Pcid(2), VirtAddr(NEAR))).unwrap());
    assert_eq!(after, "nxf -XF gh <> -}");
    let after = Bench::new().after(|mmu| mmu.invpcid(Invpcid::Address(Pcid(1), VirtAddr(GLOBAL_PAGE))).unwrap());
    assert_eq!(after, FULL, "globals stay; their own path is not among those shown");
}

#[test]
fn invpcid_1_takes_one_tag() {
    let after = Bench::new().after(|mmu| mmu.invpcid(Invpcid::Single(Pcid(2))).unwrap());
    assert_eq!(after, "nxf --- gh <> --");
}

#[test]
fn invpcid_2_takes_everything() {
    let after = Bench::new().after(|mmu| mmu.invpcid(Invpcid::AllAndGlobals).unwrap());
    assert_eq!(after, "--- --- -- -- --");
}

#[test]
fn invpcid_3_leaves_the_globals() {
    let after = Bench::new().after(|mmu| mmu.invpcid(Invpcid::All).unwrap());
    assert_eq!(after, "--- --- gh -- --");
}

#[test]
fn toggling_pge_takes_everything() {
    assert_eq!(Bench::new().after(Mmu::toggle_pge), "--- --- -- -- --");
}

#[test]
fn clearing_pcide_takes_everything() {
    assert_eq!(Bench::new().after(|mmu| mmu.set_pcide(Pcide::Off).unwrap()), "--- --- -- -- --");
}

#[test]
fn without_pcids_a_cr3_write_leaves_only_globals_and_ignores_bit_63() {
    let Bench { memory, .. } = Bench::new();
    let mut mmu = Mmu::new(MmuConfig { pcid: false, ..roomy() });
    for va in [NEAR, GLOBAL_PAGE] {
        load(&mut mmu, ROOT, 7);
        read(&mut mmu, &memory, va);
    }
    assert_eq!(mmu.pcid(), Pcid(0));
    assert!(!mmu.holds(Pcid(0), VirtAddr(NEAR), 1, Stride::Page4K), "the second write flushed");
    load(&mut mmu, ROOT, 0);
    assert!(mmu.holds_global(VirtAddr(GLOBAL_PAGE), 1, Stride::Page4K));
    assert!(!mmu.holds_any(Pcid(0)));
}

#[test]
fn operands_that_the_processor_refuses_drop_nothing() {
    let mut bench = Bench::new();
    let wild = VirtAddr(1 << 50);
    let refused = bench.mmu.invpcid(Invpcid::Address(Pcid(1), wild));
    assert_eq!(refused, Err(GeneralProtection::Address(wild)));
    let refused = bench.mmu.invpcid(Invpcid::Single(Pcid(4096)));
    assert_eq!(refused, Err(GeneralProtection::PcidTooLarge(Pcid(4096))));
    assert_eq!(bench.held(), FULL);
    let mut off = Mmu::new(MmuConfig { pcid: false, ..roomy() });
    assert_eq!(off.invpcid(Invpcid::Single(Pcid(1))), Err(GeneralProtection::PcidWhileOff(Pcid(1))));
    assert_eq!(off.invpcid(Invpcid::Single(Pcid(0))), Ok(()));
    load(&mut off, ROOT, 3);
    assert!(matches!(off.set_pcide(Pcide::On), Err(GeneralProtection::PcidePreset(_))));
}

#[test]
fn a_stale_entry_translates_until_it_is_flushed() {
    let Bench { memory, mut mmu } = Bench::new();
    let before = read(&mut mmu, &memory, NEAR).0;
    memory.set(memory.entry_at(ROOT, 4, NEAR, 1), 0);
    assert_eq!(read(&mut mmu, &memory, NEAR).0, before);
    mmu.invlpg(VirtAddr(NEAR));
    assert!(access(&mut mmu, &memory, NEAR, Access::Read, Privilege::User).is_err());
}

#[test]
fn losses_are_counted_by_cause_and_collateral_apart() {
    let mut mmu = Bench::new().mmu;
    mmu.counters = MmuCounters::default();
    mmu.invlpg(VirtAddr(NEAR));
    mmu.write_cr3(Cr3::flushing(PhysAddr(ROOT), Pcid(1)));
    mmu.invpcid(Invpcid::Address(Pcid(2), VirtAddr(FAR))).unwrap();
    mmu.toggle_pge();
    let lost = mmu.counters().lost;
    let both = |entries| Loss { l1: entries, stlb: entries };
    assert_eq!(lost[LossCause::Invlpg], both(1));
    assert_eq!(lost[LossCause::Cr3], both(2));
    assert_eq!(lost[LossCause::Invpcid], both(1));
    assert_eq!(lost[LossCause::Pge], both(4), "near and next of tag 2, two globals");
    assert_eq!(mmu.counters().collateral, both(2 + 4));
}

#[test]
fn a_walk_for_what_a_flush_took_is_a_refill() {
    let Bench { memory, mut mmu } = Bench::new();
    mmu.write_cr3(Cr3::flushing(PhysAddr(ROOT), Pcid(1)));
    mmu.counters = MmuCounters::default();
    read(&mut mmu, &memory, NEAR);
    assert_eq!(mmu.counters().refills, 1);
    mmu.invlpg(VirtAddr(NEXT));
    read(&mut mmu, &memory, NEXT);
    mmu.invlpg(VirtAddr(NEAR));
    read(&mut mmu, &memory, NEAR);
    let counters = mmu.counters();
    assert_eq!((counters.refills, counters.walks), (2, 3), "next was lost in the CR3 write; near was asked for");
}

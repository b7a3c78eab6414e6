//! The walker: rights, A and D bits, page sizes, paging-structure caches, costs.

use std::sync::Arc;

use tlbkit::{Cr3, Pcid, PhysAddr, VirtAddr};

use super::*;
use crate::mmu::{FaultKind, Levels, Source};

const ROOT: u64 = 0x1000;
const VA: u64 = 0x7fff_1234_5000;
const PA: u64 = 0x5_6000;

fn ready(flags: u64) -> (Memory, Mmu) {
    let memory = Memory::default();
    memory.map(ROOT, VA, PA, PageSize::Small, flags);
    let mut mmu = Mmu::new(roomy());
    load(&mut mmu, ROOT, 1);
    (memory, mmu)
}

fn leaf(memory: &Memory) -> u64 {
    memory.get(memory.entry_at(ROOT, 4, VA, 1))
}

fn set_leaf(memory: &Memory, value: u64) {
    memory.set(memory.entry_at(ROOT, 4, VA, 1), value);
}

#[test]
fn sizes_translate_with_their_offsets() {
    let memory = Memory::default();
    memory.map(ROOT, 0x4000_0000, 0x8000_0000, PageSize::Huge, OPEN);
    memory.map(ROOT, 0x8020_0000, 0x0060_0000, PageSize::Large, OPEN);
    memory.map(ROOT, VA, PA, PageSize::Small, OPEN);
    let mut mmu = Mmu::new(roomy());
    load(&mut mmu, ROOT, 1);
    for round in 0..2 {
        for (va, pa, references) in
            [(0x4123_4567, 0x8123_4567, 2), (0x8023_4567, 0x0063_4567, 2), (VA + 0xabc, PA + 0xabc, 4)]
        {
            let (found, cost) = read(&mut mmu, &memory, va);
            assert_eq!(found, pa);
            let walked = if va == 0x8023_4567 { 2 } else { references };
            assert_eq!(u64::from(cost.references), if round == 0 { walked } else { 0 }, "{va:#x}");
        }
    }
    assert_eq!(mmu.counters().walks, 3);
}

#[test]
fn a_walk_sets_accessed_everywhere_and_dirty_for_stores_only() {
    let (memory, mut mmu) = ready(OPEN);
    read(&mut mmu, &memory, VA);
    for level in 1..=4 {
        let entry = memory.get(memory.entry_at(ROOT, 4, VA, level));
        assert_eq!(entry & (ACCESSED | DIRTY), ACCESSED, "level {level}");
    }
    access(&mut mmu, &memory, VA, Access::Write, Privilege::User).unwrap();
    assert_ne!(leaf(&memory) & DIRTY, 0);
    assert_eq!(mmu.counters().walks, 2, "the first store had to set D");
    let again = access(&mut mmu, &memory, VA, Access::Write, Privilege::User).unwrap();
    assert_eq!(again.cost.source, Source::L1);
}

#[test]
fn a_dirty_page_needs_no_second_walk() {
    let (memory, mut mmu) = ready(OPEN | DIRTY);
    read(&mut mmu, &memory, VA);
    let store = access(&mut mmu, &memory, VA, Access::Write, Privilege::User).unwrap();
    assert_eq!(store.cost.source, Source::L1);
}

#[test]
fn rights_are_those_of_all_levels_together() {
    let refuses = |level: u32, clear: u64, set: u64, tried: Access, mode: Privilege| {
        let (memory, mut mmu) = ready(OPEN);
        let at = memory.entry_at(ROOT, 4, VA, level);
        memory.set(at, memory.get(at) & !clear | set);
        let fault = access(&mut mmu, &memory, VA, tried, mode).err()?;
        assert_eq!(memory.get(memory.entry_at(ROOT, 4, VA, 1)) & DIRTY, 0);
        assert_eq!((fault.access, fault.mode), (tried, mode));
        Some(fault.kind)
    };
    let protection = Some(FaultKind::Protection);
    for level in 1..=4 {
        assert_eq!(refuses(level, WRITE, 0, Access::Write, Privilege::User), protection);
        assert_eq!(refuses(level, WRITE, 0, Access::Write, Privilege::Kernel), protection, "CR0.WP");
        assert_eq!(refuses(level, WRITE, 0, Access::Read, Privilege::User), None);
        assert_eq!(refuses(level, USER, 0, Access::Read, Privilege::User), protection);
        assert_eq!(refuses(level, USER, 0, Access::Read, Privilege::Kernel), None);
        assert_eq!(refuses(level, 0, NO_EXECUTE, Access::Execute, Privilege::User), protection);
        assert_eq!(refuses(level, 0, NO_EXECUTE, Access::Read, Privilege::User), None);
        assert_eq!(refuses(level, PRESENT, 0, Access::Write, Privilege::User), Some(FaultKind::NotPresent));
    }
}

#[test]
fn a_store_to_a_cached_read_only_page_asks_the_tables() {
    let (memory, mut mmu) = ready(OPEN & !WRITE);
    read(&mut mmu, &memory, VA);
    set_leaf(&memory, leaf(&memory) | WRITE);
    let store = access(&mut mmu, &memory, VA, Access::Write, Privilege::User).unwrap();
    assert_eq!((store.pa, store.cost.source), (PhysAddr(PA), Source::Walk));
    assert_eq!(mmu.live_entries(), (1, 1), "the old entry was replaced");
}

#[test]
fn a_large_page_is_asked_about_again_too() {
    let large = VA & !0x1f_ffff;
    let small_only = vec![ArrayConfig::lru(&[PageSize::Small], 64, 4)];
    for (config, live) in [(roomy(), (1, 1)), (MmuConfig { stlb: small_only, ..roomy() }, (1, 0))] {
        let memory = Memory::default();
        memory.map(ROOT, large, 0x4000_0000, PageSize::Large, OPEN & !WRITE);
        let mut mmu = Mmu::new(config);
        load(&mut mmu, ROOT, 1);
        read(&mut mmu, &memory, VA);
        memory.map(ROOT, large, 0x8000_0000, PageSize::Large, OPEN);
        let store = access(&mut mmu, &memory, VA, Access::Write, Privilege::User).unwrap();
        assert_eq!((store.pa.0, store.cost.source), (0x8000_0000 + (VA & 0x1f_ffff), Source::Walk));
        assert_eq!(mmu.live_entries(), live, "the old entry was replaced");
    }
}

#[test]
fn a_fault_drops_the_entry_and_the_path() {
    let (memory, mut mmu) = ready(OPEN & !WRITE);
    read(&mut mmu, &memory, VA);
    let table = PhysAddr(memory.entry_at(ROOT, 4, VA, 1) & !0xfff);
    assert!(mmu.holds_path(Pcid(1), table));
    assert!(access(&mut mmu, &memory, VA, Access::Write, Privilege::User).is_err());
    assert_eq!(mmu.live_entries(), (0, 0));
    assert!(!mmu.holds_path(Pcid(1), table));
    assert_eq!(mmu.counters().faults, 1);
}

#[test]
fn a_stale_writable_entry_still_takes_stores() {
    let (memory, mut mmu) = ready(OPEN);
    access(&mut mmu, &memory, VA, Access::Write, Privilege::User).unwrap();
    set_leaf(&memory, leaf(&memory) & !WRITE);
    assert!(access(&mut mmu, &memory, VA, Access::Write, Privilege::User).is_ok());
}

#[test]
fn non_canonical_addresses_fault_without_a_walk() {
    let (memory, mut mmu) = ready(OPEN);
    read(&mut mmu, &memory, VA);
    for wild in [VA | 1 << 63, VA | 1 << 57, VA | 1 << 48, 1 << 47] {
        let fault = access(&mut mmu, &memory, wild, Access::Read, Privilege::User).unwrap_err();
        assert_eq!(fault.kind, FaultKind::NonCanonical, "{wild:#x}");
    }
    assert_eq!(mmu.counters().walks, 1);
}

#[test]
fn five_levels_reach_57_bits() {
    let memory = Memory::default();
    let high = 0x00ab_cdef_1234_5000;
    let at = memory.entry_at(ROOT, 5, high, 1);
    memory.set(at, PA | OPEN);
    let mut mmu = Mmu::new(MmuConfig { levels: Levels::Five, ..roomy() });
    load(&mut mmu, ROOT, 1);
    let (pa, cost) = read(&mut mmu, &memory, high);
    assert_eq!((pa, cost.references), (PA, 5));
    assert!(access(&mut mmu, &memory, high | 1 << 57, Access::Read, Privilege::User).is_err());
}

#[test]
fn the_deepest_cached_path_shortens_the_walk() {
    let (memory, mut mmu) = ready(OPEN);
    for step in [0x1000, 0x20_0000, 0x4000_0000] {
        memory.map(ROOT, VA - step, PA, PageSize::Small, OPEN);
    }
    assert_eq!(read(&mut mmu, &memory, VA).1.references, 4);
    assert_eq!(read(&mut mmu, &memory, VA - 0x1000).1.references, 1, "a PDE is cached");
    assert_eq!(read(&mut mmu, &memory, VA - 0x20_0000).1.references, 2, "a PDPTE");
    assert_eq!(read(&mut mmu, &memory, VA - 0x4000_0000).1.references, 3, "a PML4E");
    mmu.invlpg(VirtAddr(0));
    memory.map(ROOT, VA - 0x2000, PA, PageSize::Small, OPEN);
    assert_eq!(read(&mut mmu, &memory, VA - 0x2000).1.references, 4, "INVLPG of any page drops all paths");
}

#[test]
fn a_stale_path_leads_through_the_old_table() {
    let (memory, mut mmu) = ready(OPEN);
    memory.map(ROOT, VA - 0x1000, PA + 0x1000, PageSize::Small, OPEN);
    read(&mut mmu, &memory, VA);
    memory.set(memory.entry_at(ROOT, 4, VA, 2), 0);
    assert_eq!(read(&mut mmu, &memory, VA - 0x1000).0, PA + 0x1000, "the freed table is still walked");
    mmu.write_cr3(Cr3::flushing(PhysAddr(ROOT), Pcid(1)));
    assert!(access(&mut mmu, &memory, VA - 0x1000, Access::Read, Privilege::User).is_err());
}

#[test]
fn paths_belong_to_tags_and_have_so_much_room() {
    let (memory, mut mmu) = ready(OPEN);
    read(&mut mmu, &memory, VA);
    load(&mut mmu, ROOT, 2);
    assert_eq!(read(&mut mmu, &memory, VA).1.references, 4);
    let path = PathCaches { pml4e: 0, pdpte: 0, pde: 2 };
    let mut mmu = Mmu::new(MmuConfig { path, ..roomy() });
    load(&mut mmu, ROOT, 1);
    let walk = |mmu: &mut Mmu, table: u64, page: u64| {
        let va = table << 21 | page << 12;
        memory.map(ROOT, va, PA, PageSize::Small, OPEN);
        read(mmu, &memory, va).1.references
    };
    let references: Vec<_> = [(1, 0), (2, 0), (1, 1), (3, 0), (1, 2), (2, 2)]
        .into_iter()
        .map(|(table, page)| walk(&mut mmu, table, page))
        .collect();
    assert_eq!(references, [4, 4, 1, 4, 1, 4], "two places, least recently used");
}

#[test]
fn a_fraction_of_a_percent_of_overlap_counts() {
    let cycles = |percent| {
        let (memory, _) = ready(OPEN);
        let mut config = roomy();
        config.costs.leaf_cold_cycles = 10_000.0;
        config.costs.overlap_percent = percent;
        let mut mmu = Mmu::new(config);
        load(&mut mmu, ROOT, 1);
        let hit = mmu.translate(VirtAddr(VA), Access::Read, Privilege::User, Overlap::Independent, &memory);
        hit.unwrap().cost.cycles
    };
    assert_eq!((cycles(62.0), cycles(62.5)), (6201, 6251), "10,003 cycles of latency");
}

#[test]
fn costs_add_up_and_fractions_are_carried() {
    let (memory, _) = ready(OPEN);
    memory.map(ROOT, VA - 0x1000, PA, PageSize::Small, OPEN);
    let mut config = roomy();
    config.costs.walk_start_cycles = 1.0;
    config.costs.leaf_cold_cycles = 50.0;
    config.costs.leaf_hot_cycles = 10.0;
    config.costs.upper_cold_cycles = 20.0;
    config.costs.overlap_percent = 50.0;
    config.costs.hot_lines = 1024;
    config.costs.nested_references = 2.0;
    config.costs.nested_reference_cycles = 1.5;
    config.costs.stlb_independent_cycles = 2.5;
    let config = Arc::new(config);
    let mut mmu = Mmu::new(Arc::clone(&config));
    load(&mut mmu, ROOT, 1);
    let cost = read(&mut mmu, &memory, VA).1;
    assert_eq!((cost.references, cost.cycles), (12, 1 + 3 * 20 + 50 + 4 * 3));
    let cost = read(&mut mmu, &memory, VA - 0x1000).1;
    assert_eq!((cost.references, cost.cycles), (3, 1 + 10 + 3), "same line of the table");
    assert_eq!(mmu.counters().walk_cycles, 123 + 14);
    assert_eq!(mmu.counters().walk_references, 15);
    let overlapped = |mmu: &mut Mmu, va| {
        mmu.translate(VirtAddr(va), Access::Read, Privilege::User, Overlap::Independent, &memory).unwrap().cost.cycles
    };
    mmu.write_cr3(Cr3::flushing(PhysAddr(ROOT), Pcid(1)));
    // Uppers have no separate hot cost here: one cycle each by default.
    assert_eq!(overlapped(&mut mmu, VA), (1 + 3 + 10 + 4 * 3) / 2);
    let mut second = Mmu::new(MmuConfig { l1_keeps_pcids: Some(0), ..(*config).clone() });
    let mut hits = Vec::new();
    for round in 0..6 {
        load(&mut second, ROOT, 1 + round % 2);
        hits.push(overlapped(&mut second, VA));
    }
    assert_eq!(hits[2..], [3, 2, 3, 2], "two and a half cycles on average; the walks left a half");
}

//! What this CPU does beyond the architecture: few remembered tags, pages in pieces; and what queries see of it.

use std::mem::size_of_val;

use tlbkit::{Cr3, Pcid, PhysAddr, Stride, VirtAddr};
use tlbkit_machine::Machine;

use super::*;
use crate::mmu::{Fracturing, Loss, LossCause, Source};

const ROOT: u64 = 0x1000;
const VA: u64 = 0x4000_0000;
const MIB2: u64 = 2 << 20;

fn one_page() -> Memory {
    let memory = Memory::default();
    memory.map(ROOT, VA, 0x7000_0000, PageSize::Small, OPEN);
    memory
}

/// Loads each tag without a flush and touches the page under it; says where the answers came from.
fn touch_under(mmu: &mut Mmu, memory: &Memory, tags: &[u16]) -> Vec<Source> {
    let mut touch = |&tag: &u16| {
        load(mmu, ROOT, tag);
        read(mmu, memory, VA).1.source
    };
    tags.iter().map(&mut touch).collect()
}

#[test]
fn one_tag_more_than_the_second_level_remembers_forgets_the_oldest() {
    let memory = one_page();
    let mut mmu = Mmu::new(MmuConfig { stlb_pcids: Some(4), l1_keeps_pcids: Some(0), ..roomy() });
    touch_under(&mut mmu, &memory, &[1, 2, 3, 4]);
    assert_eq!(touch_under(&mut mmu, &memory, &[1, 2, 3, 4]), [Source::Stlb; 4]);
    touch_under(&mut mmu, &memory, &[1, 5]);
    assert!(!mmu.holds_any(Pcid(2)), "2 was loaded longest ago");
    assert_eq!(touch_under(&mut mmu, &memory, &[1, 3]), [Source::Stlb; 2]);
    assert_eq!(mmu.counters().lost[LossCause::Residency].stlb, 1);
    assert_eq!(mmu.counters().collateral, Loss::default(), "no flush was asked for");
}

#[test]
fn a_forgotten_tag_loses_its_paths() {
    let memory = one_page();
    let table = PhysAddr(memory.entry_at(ROOT, 4, VA, 1) & !0xfff);
    let mut mmu = Mmu::new(MmuConfig { stlb_pcids: Some(1), ..roomy() });
    touch_under(&mut mmu, &memory, &[1]);
    assert!(mmu.holds_path(Pcid(1), table));
    touch_under(&mut mmu, &memory, &[2]);
    assert!(!mmu.holds_path(Pcid(1), table));
}

#[test]
fn a_ring_of_five_tags_never_hits_where_four_are_remembered() {
    let memory = one_page();
    let mut mmu = Mmu::new(MmuConfig { stlb_pcids: Some(4), ..roomy() });
    let ring = [1, 2, 3, 4, 5];
    touch_under(&mut mmu, &memory, &ring);
    assert_eq!(touch_under(&mut mmu, &memory, &[1, 2, 3, 4, 5, 1]), {
        // The first level forgets nothing here, so it is the one that answers.
        [Source::L1; 6]
    });
    let mut mmu = Mmu::new(MmuConfig { stlb_pcids: Some(4), l1_keeps_pcids: Some(0), ..roomy() });
    touch_under(&mut mmu, &memory, &ring);
    assert_eq!(touch_under(&mut mmu, &memory, &ring), [Source::Walk; 5]);
}

#[test]
fn the_first_level_keeps_so_many_other_tags() {
    let memory = one_page();
    let sources = |keeps, tags: &[u16]| {
        let mut mmu = Mmu::new(MmuConfig { l1_keeps_pcids: keeps, ..roomy() });
        touch_under(&mut mmu, &memory, &[1, 2, 3]);
        touch_under(&mut mmu, &memory, tags)
    };
    assert_eq!(sources(Some(0), &[2, 3]), [Source::Stlb; 2]);
    assert_eq!(sources(Some(1), &[2, 3, 1]), [Source::L1, Source::L1, Source::Stlb]);
    assert_eq!(sources(None, &[1, 2, 3]), [Source::L1; 3]);
}

#[test]
fn the_first_level_keeps_its_tag_and_the_globals_over_cr3_writes() {
    let memory = one_page();
    memory.map(ROOT, VA + 0x1000, 0x7100_0000, PageSize::Small, OPEN | GLOBAL);
    let mut mmu = Mmu::new(MmuConfig { l1_keeps_pcids: Some(0), ..roomy() });
    touch_under(&mut mmu, &memory, &[1]);
    read(&mut mmu, &memory, VA + 0x1000);
    assert_eq!(touch_under(&mut mmu, &memory, &[1]), [Source::L1]);
    load(&mut mmu, ROOT, 2);
    assert_eq!(read(&mut mmu, &memory, VA + 0x1000).1.source, Source::L1);
}

#[test]
fn what_is_alive_outlives_the_renumbering_of_stamps() {
    let memory = one_page();
    memory.map(ROOT, VA + 0x1000, 0x7100_0000, PageSize::Small, OPEN | GLOBAL);
    let mut mmu = Mmu::new(roomy());
    load(&mut mmu, ROOT, 2);
    read(&mut mmu, &memory, VA);
    read(&mut mmu, &memory, VA + 0x1000);
    for _ in 0..140_000 {
        mmu.write_cr3(Cr3::flushing(PhysAddr(ROOT), Pcid(1)));
        assert_eq!(read(&mut mmu, &memory, VA).1.source, Source::Walk);
    }
    assert_eq!(mmu.live_entries(), (3, 3));
    assert!(mmu.holds_global(VirtAddr(VA + 0x1000), 1, Stride::Page4K));
    let table = PhysAddr(memory.entry_at(ROOT, 4, VA, 1) & !0xfff);
    assert!(mmu.holds_path(Pcid(2), table));
    assert_eq!(touch_under(&mut mmu, &memory, &[2]), [Source::L1]);
}

#[test]
fn fractured_pages_are_cached_in_pieces() {
    let memory = Memory::default();
    memory.map(ROOT, VA, 0x4000_0000, PageSize::Large, OPEN);
    let sources = |fracturing| {
        let mut mmu = Mmu::new(MmuConfig { fracturing, ..roomy() });
        load(&mut mmu, ROOT, 1);
        let first = read(&mut mmu, &memory, VA);
        assert_eq!(first.0, 0x4000_0000);
        let (pa, cost) = read(&mut mmu, &memory, VA + 0x5008);
        assert_eq!(pa, 0x4000_5008);
        (cost.source, mmu.live_entries())
    };
    assert_eq!(sources(Fracturing::Off), (Source::L1, (1, 1)));
    assert_eq!(sources(Fracturing::On), (Source::Walk, (2, 2)));
}

#[test]
fn one_invlpg_empties_a_fractured_tlb() {
    let memory = one_page();
    memory.map(ROOT, VA + MIB2, 0x4000_0000, PageSize::Large, OPEN);
    memory.map(ROOT, 0xffff_8000_0000_0000, 0x9000_0000, PageSize::Small, OPEN | GLOBAL);
    let after = |fracturing, warm: &[u64], flushed| {
        let mut mmu = Mmu::new(MmuConfig { fracturing, ..roomy() });
        load(&mut mmu, ROOT, 2);
        read(&mut mmu, &memory, VA);
        load(&mut mmu, ROOT, 1);
        for &va in warm {
            read(&mut mmu, &memory, va);
        }
        mmu.invlpg(VirtAddr(flushed));
        (mmu.live_entries().1, mmu.counters().lost[LossCause::Fracturing].stlb)
    };
    let warm = [VA, 0xffff_8000_0000_0000];
    assert_eq!(after(Fracturing::Off, &warm, VA), (2, 0));
    assert_eq!(after(Fracturing::On, &warm, VA), (0, 2), "other tags and globals go too");
    assert_eq!(after(Fracturing::On, &warm, VA + 0x9000), (0, 3), "any INVLPG, whatever it names");
    assert_eq!(after(Fracturing::On, &[VA + MIB2], VA + 0x9000), (0, 2), "pieces go like any entry");
    assert_eq!(after(Fracturing::On, &warm, 1 << 63), (3, 0), "but not one of an address that is not canonical");
}

#[test]
fn a_size_without_an_array_is_cached_in_pieces_that_one_invlpg_removes() {
    let memory = Memory::default();
    memory.map(ROOT, VA, 0x4000_0000, PageSize::Huge, OPEN);
    let two = [PageSize::Small, PageSize::Large];
    let arrays = |sets| vec![ArrayConfig::lru(&two, sets, 4)];
    let mut mmu = Mmu::new(MmuConfig { l1: arrays(16), stlb: arrays(64), ..roomy() });
    load(&mut mmu, ROOT, 1);
    assert_eq!(read(&mut mmu, &memory, VA + MIB2 + 8).0, 0x4000_0000 + MIB2 + 8);
    assert_eq!(read(&mut mmu, &memory, VA + 5 * MIB2).1.source, Source::Walk);
    assert_eq!(mmu.live_entries(), (2, 2));
    mmu.invlpg(VirtAddr(VA));
    assert_eq!(mmu.live_entries(), (0, 0), "all pieces of the page");
}

#[test]
fn queries_see_ranges_of_any_stride() {
    let memory = one_page();
    memory.map(ROOT, VA + 4 * MIB2, 0x4000_0000, PageSize::Large, OPEN);
    let mut mmu = Mmu::new(roomy());
    load(&mut mmu, ROOT, 1);
    read(&mut mmu, &memory, VA);
    read(&mut mmu, &memory, VA + 4 * MIB2);
    let holds = |va, pages, stride| mmu.holds(Pcid(1), VirtAddr(va), pages, stride);
    assert!(holds(VA, 1, Stride::Page4K) && !holds(VA + 0x1000, 1, Stride::Page4K));
    assert!(holds(VA - 0x3000, 4, Stride::Page4K) && !holds(VA - 0x3000, 3, Stride::Page4K));
    assert!(holds(VA - 0x100_0000, 0x1001, Stride::Page4K) && !holds(VA - 0x100_0000, 0x1000, Stride::Page4K));
    assert!(holds(VA + 4 * MIB2 + 0x9000, 1, Stride::Page4K), "inside a large page");
    assert!(holds(VA + 3 * MIB2, 2, Stride::Page2M) && !holds(VA + MIB2, 3, Stride::Page2M));
    assert!(holds(VA, 1, Stride::Page1G) && !holds(VA, 0, Stride::Page1G));
    assert!(!mmu.holds(Pcid(2), VirtAddr(VA), 1, Stride::Page4K) && mmu.holds_any(Pcid(1)));
}

#[test]
fn an_idle_cpu_is_small() {
    let mmu = Mmu::new(MmuConfig::of(&Machine::builtin("sapphire-rapids").unwrap()));
    assert!(size_of_val(&mmu) < 4096, "{} bytes without arrays", size_of_val(&mmu));
}

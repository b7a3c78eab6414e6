//! The table of scopes, row by row against what the manuals say, on a CPU that holds something of everything.

use tlbkit::{Cr3, Invlpgb, Invpcid, Pcid, PhysAddr, Stride, Tables, VirtAddr};
use tlbkit_arch::store::Store;
use tlbkit_arch::{CurrentTag, Instruction, Path, Translation};

const ROOT: PhysAddr = PhysAddr(0x1000);
/// A base page, the one behind it, a page of 2 MiB under another page directory, and one of 1 GiB.
const NEAR: VirtAddr = VirtAddr(0x50_0000);
const NEXT: VirtAddr = VirtAddr(0x50_1000);
const LARGE: VirtAddr = VirtAddr(0x70_0000_0000);
const HUGE: VirtAddr = VirtAddr(0x71_0000_0000);
const KERNEL: VirtAddr = VirtAddr(0xffff_8000_0000_0000);
const KERNEL_LARGE: VirtAddr = VirtAddr(0xffff_8000_0020_0000);

/// Tag 1 in lower case, tag 2 in upper case: near, next, large, huge. Global ones as `g` and `G`, the second 2 MiB.
/// Paths of both tags: to the table of base pages (`a`, `A`) and the page directory (`b`, `B`) of near, and to the page
/// directory of large (`d`, `D`).
const FULL: &str = "nxlh NXLH gG abd ABD";

fn page(pcid: u16, start: VirtAddr, stride: Stride) -> Translation {
    Translation { pcid: Pcid(pcid), start, stride, is_global: false }
}

fn full() -> Store<char, char> {
    let mut store = Store::default();
    for (pcid, pages, paths) in [(1, "nxlh", "abd"), (2, "NXLH", "ABD")] {
        let starts = [(NEAR, 1), (NEXT, 1), (LARGE, 2), (HUGE, 3)];
        let held = starts.map(|(start, level)| page(pcid, start, tlbkit_arch::stride(level)));
        store.translations.extend(held.into_iter().zip(pages.chars()));
        let held = [(NEAR, 1), (NEAR, 2), (LARGE, 2)].map(|(start, level)| Path { pcid: Pcid(pcid), start, level });
        store.paths.extend(held.into_iter().zip(paths.chars()));
    }
    // Fetched under tag 2, which must not matter.
    for (start, stride, name) in [(KERNEL, Stride::Page4K, 'g'), (KERNEL_LARGE, Stride::Page2M, 'G')] {
        store.translations.push((Translation { is_global: true, ..page(2, start, stride) }, name));
    }
    store
}

/// What is left, in the order of [`FULL`].
fn left(store: &Store<char, char>) -> String {
    let is_held = |name: char| {
        store.translations.iter().any(|(_, held)| *held == name) || store.paths.iter().any(|(_, held)| *held == name)
    };
    FULL.chars().map(|name| if name == ' ' || is_held(name) { name } else { '-' }).collect()
}

fn after_under(current: CurrentTag, instruction: Instruction) -> String {
    let mut store = full();
    assert_eq!(left(&store), FULL);
    store.execute(instruction, current);
    left(&store)
}

/// Executed under tag 1.
fn after(instruction: Instruction) -> String {
    after_under(CurrentTag::Loaded(Pcid(1)), instruction)
}

fn inside(page: VirtAddr, offset: u64) -> VirtAddr {
    VirtAddr(page.0 + offset)
}

#[test]
fn c_30_invlpg_takes_the_page_global_ones_too_and_all_paths_of_the_loaded_tag() {
    assert_eq!(after(Instruction::Invlpg(inside(NEAR, 0xfff))), "-xlh NXLH gG --- ABD");
    assert_eq!(after(Instruction::Invlpg(inside(LARGE, 0x1f_f000))), "nx-h NXLH gG --- ABD");
    assert_eq!(after(Instruction::Invlpg(inside(LARGE, 0x20_0000))), "nxlh NXLH gG --- ABD");
    assert_eq!(after(Instruction::Invlpg(inside(HUGE, 0x3fff_ffff))), "nxl- NXLH gG --- ABD");
    assert_eq!(after(Instruction::Invlpg(KERNEL)), "nxlh NXLH -G --- ABD");
    assert_eq!(after(Instruction::Invlpg(inside(KERNEL_LARGE, 0x1000))), "nxlh NXLH g- --- ABD");
}

#[test]
fn invlpg_of_an_address_that_is_not_canonical_does_nothing() {
    assert_eq!(after(Instruction::Invlpg(VirtAddr(1 << 47))), FULL);
    assert_eq!(after(Instruction::Invlpg(VirtAddr((1 << 47) - 1))), "nxlh NXLH gG --- ABD");
}

#[test]
fn c_32_a_cr3_write_takes_the_new_tag_and_with_bit_63_nothing() {
    let write = |cr3: fn(PhysAddr, Pcid) -> Cr3, pcid| after(Instruction::WriteCr3(cr3(ROOT, Pcid(pcid))));
    assert_eq!(write(Cr3::flushing, 2), "nxlh ---- gG abd ---");
    assert_eq!(write(Cr3::flushing, 1), "---- NXLH gG --- ABD");
    assert_eq!(write(Cr3::keeping, 2), FULL);
}

#[test]
fn without_tags_a_cr3_write_takes_all_but_globals_and_ignores_bit_63() {
    for cr3 in [Cr3::flushing(ROOT, Pcid(0)), Cr3::keeping(ROOT, Pcid(0)), Cr3::flushing(ROOT, Pcid(7))] {
        let mut store = full();
        store.translations.iter_mut().for_each(|(held, _)| held.pcid = Pcid(0));
        store.paths.iter_mut().for_each(|(held, _)| held.pcid = Pcid(0));
        store.execute(Instruction::WriteCr3(cr3), CurrentTag::Off);
        assert_eq!(left(&store), "---- ---- gG --- ---");
    }
}

#[test]
fn c_31_invpcid_by_type() {
    let address = |pcid, va| after(Instruction::Invpcid(Invpcid::Address(Pcid(pcid), va)));
    assert_eq!(address(2, inside(NEAR, 0x234)), "nxlh -XLH gG abd --D");
    assert_eq!(address(2, inside(LARGE, 0x1f_f000)), "nxlh NX-H gG abd AB-", "any address names a large page");
    assert_eq!(address(1, inside(LARGE, 1 << 21)), "nxlh NXLH gG ab- ABD", "the same page directory, another page");
    assert_eq!(address(1, KERNEL), FULL, "global ones stay");
    let invpcid = |what| after(Instruction::Invpcid(what));
    assert_eq!(invpcid(Invpcid::Single(Pcid(2))), "nxlh ---- gG abd ---");
    assert_eq!(invpcid(Invpcid::AllAndGlobals), "---- ---- -- --- ---");
    assert_eq!(invpcid(Invpcid::All), "---- ---- gG --- ---");
}

#[test]
fn c_33_changing_pge_and_clearing_pcide_take_everything() {
    assert_eq!(after(Instruction::TogglePge), "---- ---- -- --- ---");
    assert_eq!(after(Instruction::ClearPcide), "---- ---- -- --- ---");
}

#[test]
fn a_page_fault_takes_what_is_held_for_its_address() {
    assert_eq!(after(Instruction::PageFault(NEAR)), "-xlh NXLH gG --d ABD");
    assert_eq!(after(Instruction::PageFault(KERNEL)), "nxlh NXLH -G abd ABD");
}

#[test]
fn c_36_a_broadcast_takes_the_named_pages_of_the_named_tag() {
    let broadcast = |first, pages, stride, tables| {
        after(Instruction::Invlpgb(Invlpgb::Pages { pcid: Pcid(2), first, pages, stride, tables }))
    };
    let base = Stride::Page4K;
    assert_eq!(broadcast(NEAR, 2, base, Tables::Freed), "nxlh --LH gG abd --D", "the paths of its addresses");
    assert_eq!(broadcast(NEAR, 1, base, Tables::Kept), "nxlh -XLH gG abd ABD");
    assert_eq!(broadcast(inside(NEAR, 0x1000), 2, base, Tables::Kept), "nxlh N-LH gG abd ABD");
    let before = VirtAddr(NEAR.0 - (2 << 21));
    assert_eq!(broadcast(before, 2, Stride::Page2M, Tables::Kept), FULL);
    let three = broadcast(before, 3, Stride::Page2M, Tables::Kept);
    assert_eq!(three, "nxlh -XLH gG abd ABD", "a stride covers no more than a page");
    assert_eq!(broadcast(inside(LARGE, 0x1f_f000), 2, base, Tables::Kept), "nxlh NX-H gG abd ABD");
    assert_eq!(broadcast(KERNEL, 513, base, Tables::Kept), FULL, "global ones stay");
}

#[test]
fn c_36_a_broadcast_takes_of_every_tag_what_it_is_told_to() {
    let broadcast = |what| after(Instruction::Invlpgb(what));
    let pages = |first, pages| broadcast(Invlpgb::PagesOfAll { first, pages, stride: Stride::Page4K });
    assert_eq!(pages(KERNEL, 513), "nxlh NXLH -- abd ABD");
    assert_eq!(pages(NEAR, 1), "-xlh -XLH gG abd ABD");
    assert_eq!(broadcast(Invlpgb::Single(Pcid(2))), "nxlh ---- gG abd ---");
    assert_eq!(broadcast(Invlpgb::All), "---- ---- gG --- ---");
    assert_eq!(broadcast(Invlpgb::AllAndGlobals), "---- ---- -- --- ---");
}

#[test]
fn a_global_translation_serves_every_tag_and_a_path_only_its_own() {
    let store = full();
    assert_eq!(store.hit(Pcid(9), inside(KERNEL_LARGE, 0x5000)).map(|held| held.1), Some('G'));
    assert_eq!(store.hit(Pcid(9), NEAR), None);
    assert_eq!(store.hit(Pcid(2), inside(NEAR, 8)).map(|held| held.1), Some('N'));
    assert_eq!(store.path(Pcid(2), 1, NEXT).map(|held| held.1), Some('A'));
    assert_eq!(store.path(Pcid(1), 2, NEXT).map(|held| held.1), Some('b'));
    assert_eq!(store.path(Pcid(1), 1, inside(NEAR, 1 << 21)), None, "another table of base pages");
    assert_eq!(store.path(Pcid(9), 1, NEAR), None);
}

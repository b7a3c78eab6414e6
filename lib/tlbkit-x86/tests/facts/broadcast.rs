//! INVLPGB by what a CPU makes of it: which translations all the instructions of one call name together, for each size
//! of page and each count at the edge of what one instruction takes.
#![cfg(target_arch = "x86_64")]

use tlbkit::{Pcid, Scope, Stride, VirtAddr};
use tlbkit_x86::{Broadcast, Invlpgb};

const PCID: Pcid = Pcid(0xfff);
const STRIDES: [Stride; 3] = [Stride::Page4K, Stride::Page2M, Stride::Page1G];
/// More than one instruction can name, by the width of its count.
const WIDEST: u32 = 1 << 16;

fn plan(pages_max: u32, va: u64, pages: u64, mapped: Stride, scope: Scope) -> Vec<Invlpgb> {
    let mut all = Vec::new();
    Broadcast { pages_max }.plan(PCID, VirtAddr(va), pages, mapped, scope, |one| all.push(one));
    all
}

/// The addresses that one instruction names: the manual's reading of RAX and ECX.
fn named(one: &Invlpgb) -> impl Iterator<Item = u64> {
    let (first, step) = (one.rax & !0xfff, if one.ecx >> 31 == 1 { 1u64 << 21 } else { 1 << 12 });
    (0..=u64::from(one.ecx & 0xffff)).map(move |n| first.wrapping_add(n * step))
}

#[test]
fn c_36_every_page_is_named_once_and_nothing_else_for_each_stride_and_count() {
    let starts = [0, 0x7f12_3456_7000, 0x7fff_c000_0000, 0xffff_8000_0000_0000, 0xffff_ff12_3456_7abc];
    for (mapped, pages_max) in STRIDES.into_iter().flat_map(|mapped| [1, 2, 8, 64].map(|most| (mapped, most))) {
        let most = u64::from(pages_max);
        for (va, pages) in starts.iter().flat_map(|&va| [0, 1, most - 1, most, most + 1, 3 * most + 1].map(|n| (va, n)))
        {
            let plan = plan(pages_max, va, pages, mapped, Scope::Local);
            let got: Vec<u64> = plan.iter().flat_map(named).collect();
            let first = va & !(mapped.bytes() - 1);
            let all: Vec<u64> = (0..pages).map(|n| first.wrapping_add(n * mapped.bytes())).collect();
            assert_eq!(got, all, "{mapped:?}, {pages} pages from {va:#x}, {pages_max} an instruction");
            let least = if mapped == Stride::Page1G { pages } else { pages.div_ceil(most) };
            assert_eq!(plan.len() as u64, least, "{mapped:?}, {pages} pages, {pages_max} an instruction");
        }
    }
}

#[test]
fn c_36_no_instruction_names_more_pages_than_the_cpu_takes() {
    for (mapped, pages_max) in STRIDES.into_iter().flat_map(|mapped| [0, 1, 7, WIDEST].map(|most| (mapped, most))) {
        for one in plan(pages_max, 0, 200_000, mapped, Scope::Local) {
            assert!(named(&one).count() as u32 <= pages_max.max(1), "{mapped:?}, {pages_max}: {one:x?}");
            assert_eq!(one.ecx & 0x7fff_0000, 0, "reserved bits: {one:x?}");
            assert_eq!(one.ecx >> 31 == 1, mapped == Stride::Page2M, "{mapped:?}: {one:x?}");
        }
    }
}

/// The count has 16 bits: a CPU that is said to take more would be given the rest of it as something else.
#[test]
fn c_36_a_count_that_the_instruction_cannot_hold_is_cut_to_what_it_can() {
    for pages_max in [WIDEST + 1, u32::MAX] {
        let plan = plan(pages_max, 0, u64::from(WIDEST) + 1, Stride::Page4K, Scope::Local);
        assert_eq!(plan.iter().map(|one| one.ecx).collect::<Vec<_>>(), [0xffff, 0]);
        assert_eq!(plan[1].rax & !0xfff, u64::from(WIDEST) << 12);
    }
}

#[test]
fn c_36_each_instruction_says_that_address_tag_and_asid_count_and_whether_globals_go() {
    for mapped in STRIDES {
        for (scope, flags) in [(Scope::Local, 0b0111), (Scope::Global, 0b1111)] {
            for one in plan(8, 0x7f12_3456_7000, 20, mapped, scope) {
                assert_eq!(one.rax & 0xfff, flags, "{mapped:?} {scope:?}");
                assert_eq!(one.edx, u32::from(PCID.0) << 16, "the host's own ASID is 0");
            }
        }
    }
}

//! Random maps, unmaps and changes of permissions against a list of what each page must be: what adjoins and is alike
//! is one region, and nothing else is.

use crate::common::Machine;
use std::collections::BTreeMap;
use std::ops::Range;
use tlbkit::{PAGE_BYTES, Policy};
use tlbkit_pmap::{Backing, Protection, Region, USER_BASE};

/// What a page is, and which one of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    backing: Backing,
    protection: Protection,
    file: Option<(u32, u64)>,
}

impl Page {
    /// The page at `va` of a region.
    fn of(region: &Region, va: u64) -> Self {
        let has_file = matches!(region.backing, Backing::FilePrivate | Backing::FileShared);
        let file = has_file.then(|| (region.file, region.file_page(va)));
        Self { backing: region.backing, protection: region.protection, file }
    }

    fn next(self) -> Self {
        Self { file: self.file.map(|(file, page)| (file, page + 1)), ..self }
    }
}

type Pages = BTreeMap<u64, Page>;

/// The addresses around `va` whose pages continue one another.
fn whole(pages: &Pages, va: u64) -> Range<u64> {
    let is_joined = |after: u64| pages.get(&(after - PAGE_BYTES)).map(|page| page.next()) == pages.get(&after).copied();
    let mut range = va..va + PAGE_BYTES;
    while is_joined(range.start) {
        range.start -= PAGE_BYTES;
    }
    while pages.contains_key(&range.end) && is_joined(range.end) {
        range.end += PAGE_BYTES;
    }
    range
}

#[test]
fn what_adjoins_and_is_alike_is_one_region() {
    let mut random = 1_u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (random >> 33) % n
    };
    for _ in 0..50 {
        let m = Machine::new(1, Policy::default());
        let vm = m.space();
        m.run(0, vm);
        let mut pages = Pages::new();
        for _ in 0..50 {
            let (va, count) = (USER_BASE + below(30) * PAGE_BYTES, 1 + below(5));
            let addresses = |first| (0..count).map(move |page| first + page * PAGE_BYTES);
            let protection = [Protection::Read, Protection::ReadWrite][below(2) as usize];
            match below(4) {
                0 => {
                    vm.unmap(&m.cpu(0), m.mem, va, count).unwrap();
                    addresses(va).for_each(|va| _ = pages.remove(&va));
                }
                1 => {
                    vm.protect(&m.cpu(0), m.mem, va, count, protection).unwrap();
                    addresses(va).for_each(|va| _ = pages.entry(va).and_modify(|page| page.protection = protection));
                }
                _ => {
                    let (private, shared) = (Backing::FilePrivate, Backing::FileShared);
                    let backings = [Backing::AnonPrivate, Backing::AnonShared, private, shared, private, shared];
                    let n = below(6);
                    let region = Region::new(count, backings[n as usize], protection);
                    // Of two files, each page at its own place or at another one.
                    let file = if n < 2 { 0 } else { 1 + below(2) as u32 };
                    let region = Region { first: va, file, file_first: va / PAGE_BYTES + below(2), ..region };
                    let free = |first: &u64| addresses(*first).all(|va| !pages.contains_key(&va));
                    let lowest = (va..).step_by(PAGE_BYTES as usize).find(free).unwrap();
                    let region = Region { first: vm.map_region(&m.cpu(0), region).unwrap(), ..region };
                    assert_eq!(region.first, lowest);
                    addresses(lowest).for_each(|va| _ = pages.insert(va, Page::of(&region, va)));
                }
            }
            for va in (0..60).map(|page| USER_BASE + page * PAGE_BYTES) {
                let found = vm.region_at(va);
                assert_eq!(found.map(|region| Page::of(&region, va)), pages.get(&va).copied(), "{va:#x}");
                if let Some(region) = found {
                    assert_eq!(region.range(), whole(&pages, va), "{va:#x}");
                }
            }
        }
        m.end(0, vm);
        assert_eq!(m.used(), 0);
    }
}

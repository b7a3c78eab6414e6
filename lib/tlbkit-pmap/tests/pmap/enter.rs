//! Frames mapped by hand: what was there before is gone from every CPU first, and is given back.

use crate::common::{Machine, on_every_preset};
use tlbkit::*;
use tlbkit_arch::{addr::TOP_LEVEL, entry_at};
use tlbkit_pmap::{Backing, Error, Frame, Memory, Protection, Pte, Purpose, Region, USER_END, Vm, pte};

const PAGE: u64 = 4096;
const BITS: u64 = Pte::PRESENT | Pte::WRITE | Pte::USER | Pte::NO_EXECUTE | Pte::ACCESSED | Pte::DIRTY;

/// A frame whose first word is `value`.
fn frame(m: &'static Machine, shift: u8, value: u64) -> Frame {
    let frame = m.mem.alloc(shift, Purpose::Data).unwrap();
    m.mem.store(frame.at, value);
    frame
}

fn enter(m: &'static Machine, vm: &'static Vm<'static>, va: u64, frame: Frame) -> Result<u32, Error> {
    vm.enter(&m.cpu(0), m.mem, va, frame, BITS)
}

fn region(m: &'static Machine, vm: &'static Vm<'static>) -> u64 {
    vm.map_region(&m.cpu(0), Region::new(512, Backing::AnonPrivate, Protection::ReadWrite).large()).unwrap()
}

/// On each preset: a space with a region of one large page, which ends after `body`.
fn in_a_region(body: impl Fn(&'static Machine, &'static Vm<'static>, u64)) {
    on_every_preset(|m| {
        let vm = m.space();
        body(m, vm, region(m, vm));
        m.end(0, vm);
    });
}

/// Where a page of `va` lies, as the page tables say.
fn found(m: &'static Machine, vm: &'static Vm<'static>, va: u64) -> Option<u64> {
    vm.extract(&m.cpu(0), m.mem, va).map(|(at, _)| at.0)
}

#[test]
fn a_frame_takes_the_place_of_another_which_is_given_back() {
    in_a_region(|m, vm, va| {
        m.run(0, vm);
        m.mem.log.borrow_mut().clear();
        assert_eq!(enter(m, vm, va, frame(m, 12, 7)), Ok(3), "a table at each level below the first");
        assert!(m.mem.log.borrow().is_empty(), "nothing was there, so nothing is flushed");
        assert_eq!((m.read(0, vm, va), m.read(1, vm, va)), (Ok(7), Ok(7)));
        let before = m.used();
        m.plan(move |_| assert!(!m.is_mapped(vm, va), "no new frame while CPU 1 may still use the old one"));
        assert_eq!(enter(m, vm, va, frame(m, 12, 8)), Ok(0));
        assert!(m.meanwhile.borrow().is_empty(), "CPU 0 had to wait for CPU 1");
        assert_eq!((m.read(0, vm, va), m.read(1, vm, va)), (Ok(8), Ok(8)));
        assert_eq!(m.used(), before, "one frame came and one went");
    });
}

/// A page without any permission may have lost it a moment ago.
#[test]
fn c_28_a_frame_takes_the_place_of_one_that_is_not_present_once_nobody_uses_that() {
    let m = Machine::new(2, Policy::default());
    let tables = m.bare_tables();
    let enter = |cpu, va, value| tables.enter(&m.cpu(cpu), m.mem, va, frame(m, 12, value), BITS).unwrap();
    enter(0, PAGE, 7);
    (0..2).for_each(|cpu| m.run_space(cpu, tables.space()));
    assert_eq!(m.kernel_read(1, PAGE), Some(7));
    m.plan(move |_| {
        assert!(tables.extract(&m.cpu(1), m.mem, PAGE).is_none(), "CPU 0 has not flushed yet");
        enter(1, PAGE, 8);
        assert_eq!(m.kernel_read(1, PAGE), Some(8));
    });
    tables.protect(&m.cpu(0), m.mem, PAGE..2 * PAGE, Protection::None).unwrap();
    assert!(m.meanwhile.borrow().is_empty(), "CPU 0 had to wait");
}

/// Another CPU finds what was retired there, and would not find the frame.
#[test]
fn no_frame_is_entered_where_pages_were_retired() {
    let m = Machine::new(2, Policy::default());
    let vm = m.space();
    let periods = GracePeriods::new(Box::leak(Box::new([const { Passed::new() }; 2])));
    let va = vm.map(&m.cpu(0), 2, Backing::AnonPrivate, Protection::ReadWrite).unwrap();
    m.write(0, vm, va, 1).unwrap();
    m.read(1, vm, va).unwrap();
    let retired = vm.unmap_and_retire(&m.cpu(0), m.mem, &periods, va, 1).unwrap().expect("CPU 1 uses it");
    let before = m.used();
    for (va, shift) in [(va, 12), (va + 5 * PAGE, 21)] {
        assert_eq!(enter(m, vm, va, frame(m, shift, 7)), Err(Error::Withheld { va }));
    }
    assert_eq!(m.used(), before, "they were put");
    assert_eq!(enter(m, vm, va + PAGE, frame(m, 12, 7)), Ok(0), "beside it");
    retired.finish(&m.cpu(0), m.mem, &periods, vm);
    assert_eq!(enter(m, vm, va, frame(m, 12, 8)), Ok(0));
    assert_eq!(m.read(1, vm, va), Ok(8));
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

#[test]
fn a_small_frame_cuts_the_large_page_in_its_way() {
    in_a_region(|m, vm, va| {
        assert_eq!(enter(m, vm, va, frame(m, 21, 4)), Ok(2));
        assert_eq!(m.read(1, vm, va), Ok(4));
        let before = m.used();
        assert_eq!(enter(m, vm, va, frame(m, 21, 1)), Ok(0), "a large one takes the place of a large one");
        assert_eq!((m.used(), m.read(1, vm, va)), (before, Ok(1)));
        m.write(1, vm, va + 9 * PAGE, 2).unwrap();
        m.run(0, vm);
        assert_eq!(enter(m, vm, va, frame(m, 12, 3)), Ok(1), "the table that the pieces need");
        assert_eq!((m.read(1, vm, va), m.read(1, vm, va + 9 * PAGE)), (Ok(3), Ok(2)));
    });
}

#[test]
fn without_memory_for_a_table_the_frame_is_given_back() {
    on_every_preset(|m| {
        let vm = m.space();
        let frame = frame(m, 12, 1);
        m.mem.left.set(Some(0));
        assert_eq!(enter(m, vm, region(m, vm), frame), Err(Error::OutOfMemory));
        m.mem.left.set(None);
        m.end(0, vm);
    });
}

#[test]
#[should_panic(expected = "a page table lies at")]
fn a_large_frame_does_not_bury_a_page_table() {
    let m = Machine::new(1, Policy::preset("tlbkit").unwrap());
    let vm = m.space();
    let va = region(m, vm);
    enter(m, vm, va, frame(m, 12, 1)).unwrap();
    let _ = enter(m, vm, va, frame(m, 21, 2));
}

/// The page tables alone: nobody has cut the large pages at the borders before.
#[test]
fn of_a_large_page_goes_what_was_named_and_no_more() {
    let m = Machine::new(1, Policy::default());
    let tables = m.bare_tables();
    let is_mapped = |page: u64| tables.extract(&m.cpu(0), m.mem, page * PAGE).is_some();
    for (first, range, taken, kept) in [(512, 512..515, 514, 515), (1024, 1533..1536, 1533, 1532)] {
        tables.enter(&m.cpu(0), m.mem, first * PAGE, frame(m, 21, 1), BITS).unwrap();
        tables.remove(&m.cpu(0), m.mem, range.start * PAGE..range.end * PAGE).unwrap();
        assert!(!is_mapped(taken) && is_mapped(kept), "{range:?}");
    }
}

/// The kernel's tables are shared: what is changed in them is no affair of one space, and of its flush.
#[test]
fn nothing_is_mapped_found_or_taken_out_beyond_the_user_half() {
    let m = Machine::new(2, Policy::default());
    let window = m.kernel.map(&m.cpu(0), m.mem, [frame(m, 12, 7).at]).unwrap().unwrap();
    // The kernel's lowest addresses are mapped as well: their tables are those of the first one beyond.
    let kernels = |va| entry_at(m.kernel.root(), VirtAddr(va), TOP_LEVEL);
    m.mem.store(kernels(USER_END), m.mem.load(kernels(window.va)));
    let vm = m.space();
    let before = m.used();
    for va in [window.va, USER_END, !0xfff] {
        assert_eq!(enter(m, vm, va, frame(m, 12, 1)), Err(Error::BadRange { va, pages: 1 }), "{va:#x}");
        assert_eq!(found(m, vm, va), None);
    }
    assert_eq!(m.used(), before, "the frames are given back");
    let large = USER_END - (1 << 21);
    enter(m, vm, large, frame(m, 21, 2)).unwrap();
    assert!(found(m, vm, USER_END - PAGE).is_some(), "the last pages are within");
    let (cpu, tables) = (m.cpu(0), m.bare_tables());
    let bad = [(window.va, window.va + PAGE), (USER_END - PAGE, USER_END + PAGE), (2 * PAGE, PAGE), (5, PAGE + 5)];
    for (start, end) in bad {
        let taken = tables.remove(&cpu, m.mem, start..end);
        assert!(matches!(taken, Err(Error::BadRange { va, .. }) if va == start), "{start:#x} to {end:#x}: {taken:?}");
        assert_eq!(tables.protect(&cpu, m.mem, start..end, Protection::Read), taken);
    }
    assert_eq!(m.kernel_read(1, window.va), Some(7), "the kernel's page is where it was");
}

#[test]
fn what_is_found_is_the_base_frame_of_the_address_and_nothing_that_is_not_present() {
    in_a_region(|m, vm, va| {
        let large = frame(m, 21, 1);
        let at = large.at.0;
        enter(m, vm, va, large).unwrap();
        let found = |page: u64| found(m, vm, va + page * PAGE + 5);
        assert_eq!([0, 3, 511].map(found), [0, 3, 511].map(|page| Some(at + page * PAGE)));
        vm.protect(&m.cpu(0), m.mem, va, 512, Protection::None).unwrap();
        assert_eq!([0, 3, 511].map(found), [None; 3]);
    });
}

#[test]
fn the_same_frame_again_is_given_back_once_and_nobody_is_told() {
    in_a_region(|m, vm, va| {
        let first = frame(m, 12, 7);
        let at = first.at;
        m.mem.share(at);
        enter(m, vm, va, first).unwrap();
        m.run(0, vm);
        assert_eq!(m.read(1, vm, va), Ok(7));
        let before = m.cpus[1].interrupts.get();
        assert_eq!(enter(m, vm, va, Frame { at, shift: 12 }), Ok(0));
        assert_eq!((m.cpus[1].interrupts.get() - before, m.mem.references(at)), (0, 1));
    });
}

/// What a driver has entered read-only in a writable region, to learn of the first store.
#[test]
fn a_shared_frame_that_was_entered_read_only_is_written_in_place() {
    in_a_region(|m, vm, va| {
        let first = frame(m, 12, 7);
        let at = first.at;
        m.mem.share(at);
        vm.enter(&m.cpu(0), m.mem, va, first, BITS & !Pte::WRITE | pte::SHARED).unwrap();
        m.write(1, vm, va, 8).unwrap();
        assert_eq!(m.mem.load(at), 8);
        m.mem.put(Frame { at, shift: 12 });
    });
}

#[test]
fn a_large_page_that_nobody_shares_is_cut_where_it_lies() {
    in_a_region(|m, vm, va| {
        let large = frame(m, 21, 1);
        let at = large.at.0;
        enter(m, vm, va, large).unwrap();
        vm.unmap(&m.cpu(0), m.mem, va + 100 * PAGE, 1).unwrap();
        let found = |page: u64| found(m, vm, va + page * PAGE);
        assert_eq!([99, 100].map(found), [Some(at + 99 * PAGE), None]);
    });
}

/// A page that others hold is cut as a copy, which needs a frame, and then a table.
#[test]
fn a_cut_of_a_shared_large_page_that_finds_no_memory_leaves_nothing_behind() {
    let m = Machine::new(1, Policy::default());
    let vm = m.space();
    let va = region(m, vm);
    let large = frame(m, 21, 1);
    let at = large.at;
    m.mem.share(at);
    enter(m, vm, va, large).unwrap();
    let before = m.used();
    for left in 0..2 {
        m.mem.left.set(Some(left));
        assert_eq!(vm.unmap(&m.cpu(0), m.mem, va, 1), Err(Error::OutOfMemory));
        m.mem.left.set(None);
        assert_eq!(m.used(), before, "{left} frames");
    }
    m.mem.put(Frame { at, shift: 21 });
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

/// What the borders need is had before anything is taken.
#[test]
fn an_unmap_that_finds_no_memory_to_cut_a_large_page_takes_nothing() {
    on_every_preset(|m| {
        let vm = m.space();
        let two = Region::new(1024, Backing::AnonPrivate, Protection::ReadWrite).large();
        let va = vm.map_region(&m.cpu(0), two).unwrap();
        enter(m, vm, va, frame(m, 12, 1)).unwrap();
        enter(m, vm, va + 512 * PAGE, frame(m, 21, 2)).unwrap();
        m.mem.left.set(Some(0));
        assert_eq!(vm.unmap(&m.cpu(0), m.mem, va, 600), Err(Error::OutOfMemory));
        m.mem.left.set(None);
        assert!(m.is_mapped(vm, va) && m.is_mapped(vm, va + 512 * PAGE));
        m.end(0, vm);
    });
}

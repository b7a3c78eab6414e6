//! What a program sees of its memory, and that every frame comes back.

use crate::common::memory::Event;
use crate::common::{Machine, on_every_preset};
use Backing::{AnonPrivate, AnonShared, FilePrivate, FileShared};
use Protection::{Read, ReadWrite};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tlbkit::*;
use tlbkit_arch::entry_at;
use tlbkit_pmap::{Access, Backing, ChildFill, Error, Fault, MAX_REGIONS, Memory, Protection, Pte, Region, USER_BASE};
use tlbkit_pmap::{USER_END, Vm, pte};

pub(crate) const PAGE: u64 = 4096;

pub(crate) fn anon(m: &'static Machine, vm: &'static Vm<'static>, pages: u64) -> u64 {
    vm.map(&m.cpu(0), pages, AnonPrivate, ReadWrite).unwrap()
}

#[test]
fn a_page_reads_zero_then_what_was_written() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 4);
        assert_eq!(m.read(0, vm, va), Ok(0));
        assert!(vm.extract(&m.cpu(0), m.mem, va).unwrap().1.has(pte::ZERO));
        m.write(0, vm, va, 7).unwrap();
        assert_eq!((m.read(0, vm, va), m.read(1, vm, va)), (Ok(7), Ok(7)));
        assert_eq!(m.read(0, vm, va + 4 * PAGE), Err(Fault::Bad));
        m.end(0, vm);
    });
}

#[test]
fn inv_1_inv_9_an_unmapped_frame_is_freed_after_the_flush_on_every_cpu() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 700);
        for page in 0..700 {
            m.write(0, vm, va + page * PAGE, page + 1).unwrap();
            assert_eq!(m.read(1, vm, va + page * PAGE), Ok(page + 1));
        }
        m.mem.log.borrow_mut().clear();
        vm.unmap(&m.cpu(0), m.mem, va, 700).unwrap();
        let log = m.mem.log.borrow().clone();
        let first = |event| log.iter().position(|seen| *seen == event).unwrap();
        assert!(first(Event::Flushed) < first(Event::Freed { is_table: false }), "freed before any flush");
        assert!(first(Event::Flushed) < first(Event::Freed { is_table: true }));
        assert!(m.cpus[1].interrupts.get() > 0, "CPU 1 runs the space");
        assert_eq!((m.read(1, vm, va), m.read(0, vm, va + 699 * PAGE)), (Err(Fault::Bad), Err(Fault::Bad)));
        m.end(0, vm);
    });
}

#[test]
fn dontneed_gives_zeros_on_every_cpu_and_keeps_shared_memory() {
    on_every_preset(|m| {
        let vm = m.space();
        let (private, shared) = (anon(m, vm, 2), vm.map(&m.cpu(0), 2, AnonShared, ReadWrite).unwrap());
        for va in [private, private + PAGE, shared] {
            m.write(0, vm, va, 5).unwrap();
            assert_eq!(m.read(1, vm, va), Ok(5));
        }
        vm.dontneed(&m.cpu(0), m.mem, private, 4).unwrap();
        assert_eq!((m.read(1, vm, private), m.read(0, vm, private + PAGE)), (Ok(0), Ok(0)));
        assert_eq!(m.read(1, vm, shared), Ok(5));
        m.end(0, vm);
    });
}

#[test]
fn protection_narrows_on_every_cpu_and_widens_without_a_flush() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 3);
        m.write(1, vm, va + PAGE, 9).unwrap();
        let protect = |protection| vm.protect(&m.cpu(0), m.mem, va + PAGE, 1, protection).unwrap();
        m.run(0, vm);
        protect(Read);
        assert_eq!(m.write(1, vm, va + PAGE, 10), Err(Fault::Bad));
        protect(Protection::None);
        assert_eq!(m.read(1, vm, va + PAGE), Err(Fault::Bad));
        m.mem.log.borrow_mut().clear();
        protect(Read);
        assert_eq!(m.read(1, vm, va + PAGE), Ok(9));
        protect(ReadWrite);
        assert!(m.mem.log.borrow().is_empty(), "C-40: widening needs no flush");
        assert_eq!(m.read(1, vm, va + PAGE), Ok(9));
        m.write(1, vm, va + PAGE, 10).unwrap();
        m.end(0, vm);
    });
}

#[test]
fn fork_copies_on_write_and_the_last_holder_copies_nothing() {
    on_every_preset(|m| {
        let (vm, child) = (m.space(), m.space());
        let va = anon(m, vm, 2);
        m.write(0, vm, va, 1).unwrap();
        m.write(1, vm, va, 2).unwrap();
        m.run(0, vm);
        let forked = vm.fork(&m.cpu(0), m.mem, child, ChildFill::ByPolicy).unwrap();
        assert_eq!((forked.entries, forked.table_frames), (1, 3));
        // CPU 1 held a writable entry: it must fault, and its store must not reach the child.
        m.write(1, vm, va, 3).unwrap();
        assert_eq!((m.read(0, vm, va), m.read(0, child, va)), (Ok(3), Ok(2)));
        m.run(0, child);
        let before = m.mem.log.borrow().len();
        let fault = child.fault(&m.cpu(0), m.mem, va, tlbkit_pmap::Access::Write);
        assert_eq!(fault, Fault::Mapped { zeroed: 0, copied: 0, table_frames: 0 });
        assert_eq!(m.mem.log.borrow().len(), before, "only wider: no flush");
        m.write(0, child, va, 4).unwrap();
        assert_eq!(m.read(1, vm, va), Ok(3));
        m.end(0, child);
        m.end(1, vm);
    });
}

#[test]
fn protection_never_makes_a_shared_private_page_writable() {
    on_every_preset(|m| {
        let (vm, child) = (m.space(), m.space());
        let va = anon(m, vm, 1);
        m.write(0, vm, va, 1).unwrap();
        vm.protect(&m.cpu(0), m.mem, va, 1, Read).unwrap();
        vm.fork(&m.cpu(0), m.mem, child, ChildFill::DirectMap).unwrap();
        vm.protect(&m.cpu(0), m.mem, va, 1, Protection::None).unwrap();
        vm.protect(&m.cpu(0), m.mem, va, 1, ReadWrite).unwrap();
        assert_eq!(m.read(0, vm, va), Ok(1));
        m.write(0, vm, va, 2).unwrap();
        assert_eq!(m.read(1, child, va), Ok(1));
        m.end(1, child);
        m.end(0, vm);
    });
}

#[test]
fn shared_memory_is_one_before_and_after_fork() {
    on_every_preset(|m| {
        let (vm, child) = (m.space(), m.space());
        let va = vm.map(&m.cpu(0), 3, AnonShared, ReadWrite).unwrap();
        let hidden = vm.map(&m.cpu(0), 1, AnonShared, Protection::None).unwrap();
        m.write(0, vm, va, 1).unwrap();
        vm.fork(&m.cpu(0), m.mem, child, ChildFill::DirectMap).unwrap();
        m.write(1, child, va + PAGE, 2).unwrap();
        m.write(1, child, va, 3).unwrap();
        assert_eq!((m.read(0, vm, va), m.read(0, vm, va + PAGE)), (Ok(3), Ok(2)));
        assert_eq!(m.read(0, vm, hidden), Err(Fault::Bad));
        m.end(1, child);
        m.end(0, vm);
    });
}

#[test]
fn a_file_is_shared_until_a_private_mapping_writes() {
    on_every_preset(|m| {
        let vm = m.space();
        let first = Region { file: 3, file_first: 10, ..Region::new(2, FilePrivate, ReadWrite) };
        let private = vm.map_region(&m.cpu(0), first).unwrap();
        let shared = vm.map_region(&m.cpu(0), Region { backing: FileShared, ..first }).unwrap();
        m.write(0, vm, shared + PAGE, 8).unwrap();
        assert_eq!(m.mem.load(m.mem.file_page(3, 11)), 8);
        assert_eq!(m.read(1, vm, private + PAGE), Ok(8));
        m.mem.store(m.mem.file_page(3, 10), 6);
        vm.fault(&m.cpu(1), m.mem, private, Access::Write);
        assert_eq!(m.read(1, vm, private), Ok(6), "a copy of it");
        m.write(0, vm, private + PAGE, 9).unwrap();
        assert_eq!((m.read(1, vm, private + PAGE), m.read(1, vm, shared + PAGE)), (Ok(9), Ok(8)));
        vm.dontneed(&m.cpu(0), m.mem, private, 2).unwrap();
        assert_eq!(m.read(1, vm, private + PAGE), Ok(8));
        m.end(0, vm);
    });
}

/// The window of 16 pages is cut by the region's end, and a store's fault maps its page alone.
#[test]
fn a_load_of_a_file_maps_the_pages_around_and_a_store_to_one_of_them_copies_it() {
    on_every_preset(|m| {
        m.mem.around.set(Some(16));
        let vm = m.space();
        let file = Region { file: 3, ..Region::new(20, FilePrivate, ReadWrite) };
        let va = vm.map_region(&m.cpu(0), file).unwrap();
        let mapped = |page| vm.extract(&m.cpu(0), m.mem, va + page * PAGE).map(|(_, pte)| pte);
        let is_mapped = |pages: &[u64]| pages.iter().map(|&page| mapped(page).is_some()).collect::<Vec<_>>();
        m.write(0, vm, va + 3 * PAGE, 9).unwrap();
        assert_eq!(is_mapped(&[2, 3, 4]), [false, true, false]);
        m.read(0, vm, va + 17 * PAGE).unwrap();
        assert_eq!(is_mapped(&[15, 16, 17, 18, 19, 20]), [false, true, true, true, true, false]);
        m.read(1, vm, va + 5 * PAGE).unwrap();
        assert_eq!(is_mapped(&[0, 4, 15]), [true; 3]);
        assert!(!mapped(4).unwrap().has(Pte::WRITE) && mapped(3).unwrap().has(Pte::WRITE), "3 is there already");
        // CPU 1 keeps the file's page until the copy's flush.
        let before = m.read(1, vm, va + 4 * PAGE).unwrap();
        m.write(0, vm, va + 4 * PAGE, 7).unwrap();
        assert_eq!((m.read(1, vm, va + 4 * PAGE), m.mem.load(m.mem.file_page(3, 4))), (Ok(7), before));
        m.end(0, vm);
    });
}

/// The pages of a larger window would get the entries of others in the one table that is looked at.
#[test]
fn a_window_of_more_than_a_table_is_refused() {
    let pages_around = |pages| {
        let m = Machine::new(1, PRESETS[0].policy);
        m.mem.around.set(Some(pages));
        let vm = m.space();
        let va = vm.map(&m.cpu(0), 1024, FilePrivate, ReadWrite).unwrap();
        let read = catch_unwind(AssertUnwindSafe(|| m.read(0, vm, va + 5 * PAGE).unwrap()));
        let said = read.map_err(|panic| panic.downcast::<String>().map(|text| *text).unwrap_or_default());
        said.map(|_| (0..1024).filter(|page| m.is_mapped(vm, va + page * PAGE)).count())
    };
    let refused = |pages| Err(format!("fault_around {pages}: must be a power of two, at most 512"));
    assert_eq!([1, 2, 512].map(pages_around), [Ok(1), Ok(2), Ok(512)]);
    assert_eq!([3, 1024].map(pages_around), [3, 1024].map(refused));
}

/// The entry is what the region allows and the access has done.
#[test]
fn a_fault_maps_a_page_with_these_bits() {
    let m = Machine::new(1, Policy::default());
    let vm = m.space();
    m.run(0, vm);
    let (read, write) = (Pte::PRESENT | Pte::USER | Pte::NO_EXECUTE | Pte::ACCESSED, Pte::WRITE | Pte::DIRTY);
    for (backing, protection, access, bits) in [
        (AnonPrivate, ReadWrite, Access::Read, read | pte::ZERO),
        (AnonPrivate, ReadWrite, Access::Write, read | write),
        (AnonShared, Read, Access::Read, read | pte::SHARED),
        (AnonShared, ReadWrite, Access::Read, read | pte::SHARED | Pte::WRITE),
        (FilePrivate, ReadWrite, Access::Read, read | pte::COW),
        (FilePrivate, ReadWrite, Access::Write, read | write),
        (FileShared, ReadWrite, Access::Write, read | write | pte::SHARED),
    ] {
        m.mem.around.set(Some(if backing == FilePrivate { 1 } else { 16 }));
        let va = vm.map(&m.cpu(0), 2, backing, protection).unwrap();
        assert!(matches!(vm.fault(&m.cpu(0), m.mem, va, access), Fault::Mapped { .. }));
        let (at, found) = vm.extract(&m.cpu(0), m.mem, va).unwrap();
        assert_eq!(found.0, at.0 | bits, "{backing:?} {protection:?} {access:?}");
        assert_eq!(m.is_mapped(vm, va + PAGE), backing == FileShared && access == Access::Read, "{backing:?}");
    }
    m.end(0, vm);
}

/// Another CPU was faster, or this one has cached what is gone.
#[test]
fn a_fault_that_finds_what_it_needs_changes_nothing() {
    let m = Machine::new(1, Policy::default());
    let (vm, child) = (m.space(), m.space());
    let va = anon(m, vm, 1);
    m.write(0, vm, va, 1).unwrap();
    let fault = |access| vm.fault(&m.cpu(0), m.mem, va, access);
    assert_eq!(fault(Access::Write), Fault::Spurious);
    vm.fork(&m.cpu(0), m.mem, child, ChildFill::DirectMap).unwrap();
    assert_eq!(fault(Access::Read), Fault::Spurious, "a load needs no copy");
    assert!(matches!(fault(Access::Write), Fault::Mapped { copied: 1, .. }));
    m.end(0, child);
    m.end(0, vm);
}

/// What is shared stays as it is; what is private is written by nobody from then on, until it is copied or nobody else
/// has it. The child has accessed nothing.
#[test]
fn a_fork_leaves_parent_and_child_pages_with_these_bits() {
    let m = Machine::new(1, Policy::default());
    let (vm, child) = (m.space(), m.space());
    let (base, touched, dirty) = (Pte::PRESENT | Pte::USER | Pte::NO_EXECUTE, Pte::ACCESSED, Pte::DIRTY);
    let pages = [
        (AnonPrivate, Access::Read, touched | pte::ZERO, pte::ZERO),
        (AnonPrivate, Access::Write, touched | dirty | pte::COW, pte::COW),
        (AnonShared, Access::Write, touched | dirty | pte::SHARED | Pte::WRITE, pte::SHARED | Pte::WRITE),
        (FileShared, Access::Read, touched | pte::SHARED | Pte::WRITE, pte::SHARED | Pte::WRITE),
        (FilePrivate, Access::Read, touched | pte::COW, pte::COW),
    ];
    m.run(0, vm);
    let pages = pages.map(|(backing, access, own, childs)| {
        let va = vm.map(&m.cpu(0), 1, backing, ReadWrite).unwrap();
        assert!(matches!(vm.fault(&m.cpu(0), m.mem, va, access), Fault::Mapped { .. }));
        (va, own, childs)
    });
    vm.fork(&m.cpu(0), m.mem, child, ChildFill::DirectMap).unwrap();
    let bits = |vm: &Vm<'static>, va| vm.extract(&m.cpu(0), m.mem, va).unwrap().1.bits();
    for (va, own, childs) in pages {
        assert_eq!((bits(vm, va), bits(child, va)), (base | own, base | childs), "{va:#x}");
    }
    m.run(0, child);
    for (va, ..) in [pages[0], pages[1], pages[4]] {
        assert!(matches!(child.fault(&m.cpu(0), m.mem, va, Access::Write), Fault::Mapped { .. }));
        assert_eq!(bits(child, va), base | touched | dirty | Pte::WRITE, "{va:#x}");
    }
    m.end(0, child);
    m.end(0, vm);
}

#[test]
fn a_large_page_is_mapped_where_it_fits_into_private_memory_and_cpus_share_their_tables() {
    let m = Machine::new(1, Policy::default());
    let is_large = |vm: &'static Vm<'static>, region: Region, cut: u64, page: u64| {
        let va = vm.map_region(&m.cpu(0), region.large()).unwrap();
        vm.unmap(&m.cpu(0), m.mem, va, cut).unwrap();
        m.write(0, vm, va + page * PAGE, 1).unwrap();
        let bits = vm.extract(&m.cpu(0), m.mem, va + page * PAGE).unwrap().1.bits();
        let base = Pte::PRESENT | Pte::USER | Pte::NO_EXECUTE | Pte::ACCESSED | Pte::WRITE | Pte::DIRTY;
        assert_eq!(bits & !(Pte::LARGE | pte::SHARED), base);
        bits & Pte::LARGE != 0
    };
    let (vm, apart) = (m.space(), m.converted_space());
    let region = |pages| Region::new(pages, AnonPrivate, ReadWrite);
    assert!(is_large(vm, region(512), 0, 5));
    assert!(!is_large(vm, region(512), 3, 5), "the region begins behind the page");
    assert!(!is_large(vm, region(700), 0, 600), "it ends before the page");
    assert!(!is_large(vm, Region { backing: AnonShared, ..region(512) }, 0, 5));
    assert!(!is_large(apart, region(512), 0, 5));
    m.end(0, vm);
    m.end(0, apart);
}

#[test]
fn a_large_page_is_cut_with_its_old_translation_gone_first() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = vm.map_region(&m.cpu(0), Region::new(1024, AnonPrivate, ReadWrite).large()).unwrap();
        for page in 0..1024 {
            m.write(page as u32 % 2, vm, va + page * PAGE, page + 1).unwrap();
        }
        assert!(vm.extract(&m.cpu(0), m.mem, va).unwrap().1.has(Pte::LARGE));
        vm.unmap(&m.cpu(0), m.mem, va + 100 * PAGE, 3).unwrap();
        vm.protect(&m.cpu(0), m.mem, va + 50 * PAGE, 1, Read).unwrap();
        assert_eq!(m.write(0, vm, va + 50 * PAGE, 0), Err(Fault::Bad));
        for page in 0..1024 {
            let expected = if (100..103).contains(&page) { Err(Fault::Bad) } else { Ok(page + 1) };
            assert_eq!(m.read(0, vm, va + page * PAGE), expected);
            assert_eq!(m.read(1, vm, va + page * PAGE), expected);
        }
        assert!(vm.extract(&m.cpu(0), m.mem, va + 512 * PAGE).unwrap().1.has(Pte::LARGE));
        m.end(0, vm);
    });
}

#[test]
fn a_large_page_shared_by_fork_is_copied_whole_or_cut_as_a_copy() {
    on_every_preset(|m| {
        let (vm, child) = (m.space(), m.space());
        let va = vm.map_region(&m.cpu(0), Region::new(512, AnonPrivate, ReadWrite).large()).unwrap();
        m.write(0, vm, va + 7 * PAGE, 1).unwrap();
        vm.fork(&m.cpu(0), m.mem, child, ChildFill::ByPolicy).unwrap();
        vm.dontneed(&m.cpu(0), m.mem, va, 1).unwrap();
        m.write(0, vm, va + 7 * PAGE, 2).unwrap();
        assert_eq!(m.read(1, child, va + 7 * PAGE), Ok(1));
        m.write(1, child, va + 8 * PAGE, 3).unwrap();
        assert_eq!((m.read(0, vm, va + 8 * PAGE), m.read(0, vm, va + 7 * PAGE)), (Ok(0), Ok(2)));
        m.end(1, child);
        m.end(0, vm);
    });
}

#[test]
fn exec_empties_the_space_that_runs() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 600);
        (0..600).for_each(|page| m.write(0, vm, va + page * PAGE, 1).unwrap());
        vm.clear(&m.cpu(0), m.mem);
        assert_eq!(m.read(0, vm, va), Err(Fault::Bad));
        assert_eq!(anon(m, vm, 1), USER_BASE);
        assert_eq!(m.read(0, vm, va), Ok(0));
        m.end(0, vm);
    });
}

/// The page that was there has no frame, and its table may have been kept.
#[test]
fn a_page_that_was_never_written_is_gone_after_exec_on_the_cpu_and_on_one_that_is_idle() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 1);
        (0..2).for_each(|cpu| assert_eq!(m.read(cpu, vm, va), Ok(0)));
        m.idle(1);
        m.run(0, vm);
        vm.clear(&m.cpu(0), m.mem);
        m.mem.store(m.mem.file_page(0, 0), 7);
        assert_eq!(vm.map(&m.cpu(0), 1, FilePrivate, ReadWrite), Ok(va));
        assert_eq!((m.read(0, vm, va), m.read(1, vm, va)), (Ok(7), Ok(7)));
        m.end(0, vm);
    });
}

#[test]
fn running_out_of_memory_leaks_nothing() {
    on_every_preset(|m| {
        for left in 0..12 {
            let (vm, child) = (m.space(), m.space());
            let va = anon(m, vm, 3);
            m.mem.left.set(Some(left));
            let _ = m.write(0, vm, va, 1);
            let _ = m.read(0, vm, va + PAGE);
            m.run(0, vm);
            let forked = vm.fork(&m.cpu(0), m.mem, child, ChildFill::DirectMap);
            let _ = m.write(0, vm, va, 2);
            assert!(forked.is_ok() || left < 7, "{left} frames are enough");
            m.mem.left.set(None);
            m.end(0, child);
            m.end(0, vm);
        }
    });
}

#[test]
fn a_program_cannot_name_the_kernels_pages_nor_parts_of_pages() {
    on_every_preset(|m| {
        let vm = m.space();
        m.run(0, vm);
        let frame = m.mem.file_page(1, 0);
        m.mem.store(frame, 6);
        let window = m.kernel.map(&m.cpu(0), m.mem, [frame]).unwrap().unwrap();
        for (va, pages) in
            [(window.va, 1), (0, USER_END / PAGE + 1), (PAGE, u64::MAX), (u64::MAX - PAGE + 1, 1), (1, 1)]
        {
            let bad = Err(Error::BadRange { va, pages });
            assert_eq!(vm.unmap(&m.cpu(0), m.mem, va, pages), bad);
            assert_eq!(vm.protect(&m.cpu(0), m.mem, va, pages, Protection::None), bad);
            assert_eq!(vm.dontneed(&m.cpu(0), m.mem, va, pages), bad);
        }
        assert_eq!(vm.unmap(&m.cpu(0), m.mem, 0, USER_END / PAGE), Ok(()));
        assert_eq!(m.kernel_read(0, window.va), Some(6));
        m.kernel.unmap(&m.cpu(0), m.mem, window);
        m.end(0, vm);
    });
}

#[test]
fn what_cannot_be_mapped_is_refused_with_the_reason() {
    let m = Machine::new(1, Policy::default());
    let vm = m.space();
    let map = |pages, protection| vm.map(&m.cpu(0), pages, AnonPrivate, protection);
    for pages in [0, USER_END / PAGE, u64::MAX] {
        assert_eq!(map(pages, ReadWrite), Err(Error::NoRoom { pages }));
    }
    let all = USER_END / PAGE - USER_BASE / PAGE;
    assert_eq!((map(all + 1, Read), map(all, Read)), (Err(Error::NoRoom { pages: all + 1 }), Ok(USER_BASE)));
    vm.unmap(&m.cpu(0), m.mem, USER_BASE, all).unwrap();
    // Neighbours that differ, so that none joins the one before.
    for n in 0..MAX_REGIONS {
        assert!(map(1, if n % 2 == 0 { Protection::Read } else { ReadWrite }).is_ok());
    }
    assert_eq!(map(1, Protection::Read), Err(Error::TooManyRegions));
    m.end(0, vm);
}

#[test]
fn kernel_windows_are_flushed_everywhere_before_their_frames_go() {
    on_every_preset(|m| {
        let vm = m.space();
        let (a, b) = (m.mem.file_page(1, 0), m.mem.file_page(1, 1));
        m.mem.store(b, 6);
        m.run(1, vm);
        let window = m.kernel.map(&m.cpu(0), m.mem, [a, b]).unwrap().unwrap();
        let va = window.va + PAGE;
        assert_eq!((m.kernel_read(0, va), m.kernel_read(1, va)), (Some(6), Some(6)));
        assert_eq!(m.mem.references(b), 2);
        m.kernel.unmap(&m.cpu(0), m.mem, window);
        m.deliver(1);
        assert_eq!((m.kernel_read(0, va), m.kernel_read(1, va)), (None, None));
        assert_eq!(m.mem.references(b), 1);
        let again = m.kernel.map(&m.cpu(0), m.mem, [a]).unwrap().unwrap();
        assert_eq!(again.va + PAGE, va);
        m.kernel.unmap(&m.cpu(0), m.mem, again);
        m.end(1, vm);
    });
}

#[test]
fn under_isolation_the_user_half_translates_the_same_user_addresses_and_no_kernel_ones() {
    let m = Machine::new(1, Policy::preset("linux-4.15-pti").unwrap());
    let vm = m.space();
    let va = anon(m, vm, 1);
    m.write(0, vm, va, 1).unwrap();
    let root = vm.space().root().0;
    let entry = |half: u64, n: u64| m.mem.load(PhysAddr(root + half * PAGE + n * 8));
    assert_ne!(entry(0, 0), 0);
    assert!((0..256).all(|n| entry(1, n) == entry(0, n)));
    assert!((256..512).any(|n| entry(0, n) != 0) && (256..512).all(|n| entry(1, n) == 0));
    vm.unmap(&m.cpu(0), m.mem, va, 1).unwrap();
    assert_eq!((entry(0, 0), entry(1, 0)), (0, 0), "tables that are gone are gone from both");
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

/// A program's page is reached through tables that forbid nothing, the kernel's through tables that forbid programs.
#[test]
fn every_table_on_the_way_allows_what_the_page_allows() {
    let page = Pte::PRESENT | Pte::WRITE | Pte::ACCESSED | Pte::DIRTY | Pte::NO_EXECUTE;
    for (preset, global) in [("tlbkit", Pte::GLOBAL), ("linux-4.15-pti", 0)] {
        let m = Machine::new(1, Policy::preset(preset).unwrap());
        let vm = m.space();
        let va = anon(m, vm, 1);
        m.write(0, vm, va, 1).unwrap();
        let window = m.kernel.map(&m.cpu(0), m.mem, [m.mem.file_page(1, 0)]).unwrap().unwrap();
        for (root, va, is_users) in [(vm.space().root(), va, true), (m.kernel.root(), window.va, false)] {
            let mut table = root;
            for level in [4, 3, 2] {
                let pte = Pte(m.mem.load(entry_at(table, VirtAddr(va), level)));
                assert!(pte.has(Pte::PRESENT) && pte.has(Pte::WRITE), "level {level} of {va:#x}: {:#x}", pte.0);
                assert_eq!(pte.has(Pte::USER), is_users, "level {level} of {va:#x}: {:#x}", pte.0);
                table = pte.frame();
            }
            let last = Pte(m.mem.load(entry_at(table, VirtAddr(va), 1)));
            assert_eq!(last.bits(), page | if is_users { Pte::USER } else { global }, "{preset}: {va:#x}");
        }
    }
}

#[test]
fn a_table_is_freed_where_no_region_needs_it() {
    let m = Machine::new(1, Policy::default());
    let vm = m.space();
    let pages = Stride::Page2M.bytes() / PAGE;
    let table = |protection| vm.map(&m.cpu(0), pages, AnonPrivate, protection).unwrap();
    let [first, last] = [table(ReadWrite), table(Read)];
    m.write(0, vm, first, 1).unwrap();
    m.read(0, vm, last).unwrap();
    let before = m.used();
    vm.unmap(&m.cpu(0), m.mem, first + PAGE, pages - 1).unwrap();
    assert_eq!(m.used(), before, "a page of it is left");
    vm.unmap(&m.cpu(0), m.mem, first, 1).unwrap();
    assert_eq!(m.used(), before - 2, "the page, and its table, though there is a region behind it");
    m.end(0, vm);
}

/// What is not retired is flushed as by any munmap: shared pages, what is withheld already, and more than there is room
/// to withhold.
#[test]
fn an_munmap_waits_where_its_pages_cannot_be_retired() {
    let m = Machine::new(2, Policy::default());
    let vm = m.space();
    let periods = GracePeriods::new(Box::leak(Box::new([const { Passed::new() }; 2])));
    let retire_on = |cpu, va| vm.unmap_and_retire(&m.cpu(cpu), m.mem, &periods, va, 1).unwrap();
    let retire = |va| retire_on(0, va);
    let shared = vm.map(&m.cpu(0), 1, AnonShared, ReadWrite).unwrap();
    let alone = anon(m, vm, 1);
    m.write(0, vm, alone, 1).unwrap();
    assert!(retire(alone).is_none(), "no other CPU uses the space");
    assert_eq!(anon(m, vm, 1), alone, "so nothing is withheld");
    m.write(0, vm, shared, 1).unwrap();
    m.read(1, vm, shared).unwrap();
    m.write(0, vm, alone, 1).unwrap();
    let meanwhile = || assert!(retire_on(1, alone).is_none(), "another call takes pages out");
    vm.dontneed_with(&m.cpu(0), m.mem, alone, 1, meanwhile).unwrap();
    assert_eq!(anon(m, vm, 1), alone, "nor then");
    vm.unmap(&m.cpu(0), m.mem, alone, 1).unwrap();
    assert!(retire(shared).is_none(), "a store of another space would be lost");
    let none = vm.unmap_and_retire(&m.cpu(0), m.mem, &periods, USER_END - PAGE, 0).unwrap();
    assert!(none.is_none(), "of no page, which takes no room");
    let first = anon(m, vm, MAX_REGIONS as u64 + 1);
    let pages = (0..=MAX_REGIONS as u64).map(|n| first + n * PAGE);
    pages.clone().for_each(|va| m.write(0, vm, va, 1).unwrap());
    m.read(1, vm, first).unwrap();
    let mut retired: Vec<_> = pages.clone().take(1).filter_map(retire).collect();
    assert_eq!(retired.len(), 1);
    assert!(retire(first).is_none(), "its addresses are withheld, and nothing is there");
    retired.extend(pages.clone().skip(1).filter_map(retire));
    assert_eq!(retired.len(), MAX_REGIONS, "the last one found no room");
    assert!(pages.clone().all(|va| m.read(0, vm, va) == Err(Fault::Bad)));
    assert!(anon(m, vm, 1) >= first + MAX_REGIONS as u64 * PAGE, "nothing is mapped where pages are withheld");
    retired.into_iter().for_each(|one| one.finish(&m.cpu(0), m.mem, &periods, vm));
    assert_eq!(anon(m, vm, 1), first, "and there it is again");
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

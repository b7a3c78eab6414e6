//! Two CPUs in one space: what the locks let happen at once, and what is looked at again under them.

use crate::common::{Machine, on_every_preset};
use tlbkit_pmap::{
    Access, Backing, ChildFill, Error, Fault, Frame, Memory, Protection, Pte, Region, TableLock, Vm, pte,
};
use tlbkit_testkit::words;

/// What one last-level table maps.
const SPAN: u64 = 512 * 4096;

fn anon(m: &'static Machine, vm: &'static Vm<'static>, pages: u64) -> u64 {
    vm.map(&m.cpu(0), pages, Backing::AnonPrivate, Protection::ReadWrite).unwrap()
}

/// A child that shares all frames with `vm`.
fn fork(m: &'static Machine, vm: &'static Vm<'static>) -> &'static Vm<'static> {
    let child = m.space();
    m.run(0, vm);
    vm.fork(&m.cpu(0), m.mem, child, ChildFill::DirectMap).unwrap();
    child
}

fn during_alloc(m: &'static Machine, other: impl FnOnce() + 'static) {
    *m.mem.during_alloc.borrow_mut() = Some(Box::new(other));
}

#[test]
fn of_two_first_stores_to_a_page_one_maps_it_and_neither_is_lost() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 1);
        during_alloc(m, move || m.write(1, vm, va, 7).unwrap());
        m.write(0, vm, va, 8).unwrap();
        assert_eq!((m.read(0, vm, va), m.read(1, vm, va)), (Ok(8), Ok(8)), "one frame for both");
        m.end(0, vm);
    });
}

#[test]
fn of_two_stores_that_break_the_same_copy_neither_is_lost() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 1);
        m.write(0, vm, va, 1).unwrap();
        let child = fork(m, vm);
        during_alloc(m, move || m.write(1, vm, va, 7).unwrap());
        assert_eq!(vm.fault(&m.cpu(0), m.mem, va, Access::Write), Fault::Spurious);
        assert_eq!((m.read(0, vm, va), m.read(1, vm, va), m.read(0, child, va)), (Ok(7), Ok(7), Ok(1)));
        m.end(0, vm);
        m.end(0, child);
    });
}

#[test]
fn a_page_given_back_while_it_is_copied_stays_so_long_and_is_not_brought_back() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 1);
        m.write(0, vm, va, 1).unwrap();
        let child = fork(m, vm);
        during_alloc(m, move || {
            m.run(1, vm);
            vm.dontneed(&m.cpu(1), m.mem, va, 1).unwrap();
            assert_eq!(m.read(1, vm, va), Ok(0));
            m.end(1, child);
        });
        assert_eq!(vm.fault(&m.cpu(0), m.mem, va, Access::Write), Fault::Spurious);
        assert_eq!(m.read(0, vm, va), Ok(0));
        m.end(0, vm);
    });
}

#[test]
fn a_fault_does_not_wait_for_the_lock_of_another_table() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 40 * 512);
        m.write(0, vm, va, 1).unwrap();
        let child = fork(m, vm);
        assert_eq!(m.read(1, vm, va), Ok(1));
        m.run(0, vm);
        m.plan(move |_| {
            assert!(!m.is_mapped(vm, va), "CPU 0 replaces the page, holds the lock of its table and waits for CPU 1");
            for span in 1..32 {
                m.write(1, vm, va + span * SPAN, 2).unwrap();
            }
        });
        m.write(0, vm, va, 3).unwrap();
        assert!(m.meanwhile.borrow().is_empty(), "CPU 0 had to wait");
        m.end(0, vm);
        m.end(0, child);
    });
}

/// Locks for a space whose threads are many.
fn lent(locks: usize) -> &'static [TableLock] {
    Box::leak((0..locks).map(|_| TableLock::new()).collect())
}

/// The tables are 33 apart, so that of the 32 locks that a space has they would have one.
#[test]
fn locks_that_are_lent_take_the_place_of_the_spaces_own() {
    let m = Machine::new(2, tlbkit::Policy::default());
    let vm = m.space_by(|tlb, mem, kernel, token, set| {
        Vm::new(tlb, mem, kernel, token, set).map(|vm| vm.with_table_locks(lent(64)))
    });
    let va = anon(m, vm, 40 * 512);
    m.read(0, vm, va).unwrap();
    m.read(1, vm, va).unwrap();
    m.plan(move |_| {
        assert!(!m.is_mapped(vm, va), "CPU 0 replaces the page, holds the lock of its table and waits for CPU 1");
        m.write(1, vm, va + 33 * SPAN, 2).unwrap();
    });
    m.write(0, vm, va, 3).unwrap();
    assert!(m.meanwhile.borrow().is_empty(), "CPU 0 had to wait");
    m.end(0, vm);
}

#[test]
#[should_panic(expected = "3 locks: no power of two")]
fn locks_that_are_no_power_of_two_are_refused_and_none_changes_nothing() {
    let m = Machine::new(1, tlbkit::Policy::default());
    let with = |locks| {
        let vm = Vm::new(&m.tlb, m.mem, m.kernel, tlbkit::SpaceToken(9), words(1)).unwrap();
        let vm: &'static Vm<'static> = Box::leak(Box::new(vm.with_table_locks(lent(locks))));
        m.write(0, vm, anon(m, vm, 1), 1).unwrap();
    };
    [0, 4, 3].into_iter().for_each(with);
}

/// A large page, written by both CPUs, whose frame something else holds too, such as a device that reads it.
fn held_large_page(m: &'static Machine, vm: &'static Vm<'static>) -> (u64, Frame) {
    let region = Region::new(512, Backing::AnonPrivate, Protection::ReadWrite).large();
    // The second of two: its address has a bit that the first one's has not.
    vm.map_region(&m.cpu(0), region).unwrap();
    let va = vm.map_region(&m.cpu(0), region).unwrap();
    m.write(0, vm, va, 2).unwrap();
    m.write(1, vm, va, 2).unwrap();
    let (at, pte) = vm.extract(&m.cpu(0), m.mem, va).unwrap();
    assert!(pte.has(Pte::LARGE | Pte::WRITE));
    m.mem.share(at);
    (va, Frame { at, shift: 21 })
}

#[test]
fn a_store_to_a_large_page_that_is_being_cut_reaches_the_copy() {
    on_every_preset(|m| {
        let vm = m.space();
        let (va, frame) = held_large_page(m, vm);
        m.run(0, vm);
        m.plan(move |_| {
            m.write(1, vm, va, 42).unwrap();
            // Now nobody else holds what the copy is made of.
            m.mem.put(frame);
        });
        vm.protect(&m.cpu(0), m.mem, va + 4096, 1, Protection::Read).unwrap();
        assert!(m.meanwhile.borrow().is_empty(), "CPU 1 was told");
        assert_eq!((m.read(0, vm, va), m.read(1, vm, va)), (Ok(42), Ok(42)));
        m.end(0, vm);
    });
}

/// The entry is taken by an exchange: what was read of it before is old by then.
#[test]
fn a_large_page_that_becomes_dirty_while_it_is_cut_is_dirty_in_pieces() {
    on_every_preset(|m| {
        let vm = m.space();
        let region = Region::new(512, Backing::AnonPrivate, Protection::ReadWrite).large();
        let va = vm.map_region(&m.cpu(0), region).unwrap();
        m.read(0, vm, va).unwrap();
        let (at, pte) = vm.extract(&m.cpu(0), m.mem, va).unwrap();
        assert!(pte.has(Pte::LARGE | Pte::WRITE) && !pte.has(Pte::DIRTY));
        m.mem.share(at);
        during_alloc(m, move || m.set_dirty(vm, va));
        vm.protect(&m.cpu(0), m.mem, va + 4096, 1, Protection::Read).unwrap();
        let (_, piece) = vm.extract(&m.cpu(0), m.mem, va).unwrap();
        assert!(piece.has(Pte::DIRTY) && !piece.has(Pte::LARGE));
        m.mem.put(Frame { at, shift: 21 });
        m.end(0, vm);
    });
}

#[test]
fn a_large_page_of_shared_memory_is_not_cut_while_others_hold_it() {
    on_every_preset(|m| {
        let vm = m.space();
        let (va, private) = held_large_page(m, vm);
        vm.dontneed(&m.cpu(0), m.mem, va, 512).unwrap();
        m.mem.share(private.at);
        let bits = Pte::PRESENT | Pte::USER | Pte::WRITE | pte::SHARED | Pte::ACCESSED | Pte::DIRTY;
        vm.enter(&m.cpu(0), m.mem, va, Frame { at: private.at, shift: 21 }, bits).unwrap();
        let refused = vm.protect(&m.cpu(0), m.mem, va + 4096, 1, Protection::Read);
        assert_eq!(refused, Err(Error::SharedLargePage { va: va + 4096 }));
        m.write(1, vm, va + 4096, 5).unwrap();
        assert_eq!(m.mem.load(tlbkit::PhysAddr(private.at.0 + 4096)), 5, "still the shared frame, still writable");
        m.mem.put(private);
        assert_eq!(vm.protect(&m.cpu(0), m.mem, va + 4096, 1, Protection::Read), Ok(()), "and then it is");
        assert_eq!(m.read(1, vm, va + 4096), Ok(5));
        vm.dontneed(&m.cpu(0), m.mem, va, 512).unwrap();
        m.end(0, vm);
    });
}

#[test]
fn no_large_page_comes_into_the_way_of_what_is_given_back_in_part() {
    on_every_preset(|m| {
        let vm = m.space();
        let region = Region::new(1024, Backing::AnonPrivate, Protection::ReadWrite).large();
        let va = vm.map_region(&m.cpu(0), region).unwrap();
        m.write(0, vm, va, 1).unwrap();
        let border = va + 600 * 4096;
        vm.dontneed(&m.cpu(0), m.mem, va, 600).unwrap();
        m.write(1, vm, border, 2).unwrap();
        assert!(
            !vm.extract(&m.cpu(0), m.mem, border).unwrap().1.has(Pte::LARGE),
            "it could have come half-way through"
        );
        m.end(0, vm);
    });
}

/// The second of two large pages: an address that is rounded down wrongly names the first.
#[test]
fn the_old_translation_of_a_large_page_is_gone_before_its_pieces_are_flushed() {
    let m = Machine::new(2, tlbkit::Policy::default());
    let vm = m.space();
    let region = Region::new(1024, Backing::AnonPrivate, Protection::ReadWrite).large();
    let va = vm.map_region(&m.cpu(0), region).unwrap();
    let second = (va..).step_by(SPAN as usize).find(|at| at & SPAN != 0).unwrap();
    let piece = second + 5 * 4096;
    m.write(0, vm, second, 1).unwrap();
    m.read(1, vm, second).unwrap();
    assert!(m.holds_large(1, piece));
    m.plan(move |_| {
        // CPU 0 waits for the flush of the cut. When it waits again, it is for the piece that goes.
        m.deliver(1);
        m.plan(move |_| assert!(!m.holds_large(1, piece)));
    });
    vm.unmap(&m.cpu(0), m.mem, piece, 1).unwrap();
    assert!(m.meanwhile.borrow().is_empty(), "it has waited twice");
    m.end(0, vm);
}

/// Policies that flush when all is taken out. Others wait for each page, with the locks held.
fn on_gathering_presets(test: impl Fn(&'static Machine)) {
    on_every_preset(|m| {
        if !m.cpu(0).tlb().policy().history.sends_at_once() {
            test(m);
        }
    });
}

#[test]
fn a_fault_elsewhere_goes_on_beside_the_flush_of_an_unmap() {
    on_gathering_presets(|m| {
        let vm = m.space();
        let (ends, stays) = (anon(m, vm, 1), anon(m, vm, 1));
        m.write(0, vm, ends, 1).unwrap();
        m.write(1, vm, ends, 2).unwrap();
        m.plan(move |_| m.write(1, vm, stays, 7).unwrap());
        vm.unmap(&m.cpu(0), m.mem, ends, 1).unwrap();
        assert!(m.meanwhile.borrow().is_empty(), "CPU 0 has waited for the flush");
        assert_eq!((m.read(0, vm, stays), m.read(0, vm, ends)), (Ok(7), Err(Fault::Bad)));
        m.end(0, vm);
    });
}

#[test]
fn a_region_is_mapped_and_ends_beside_the_flush_of_pages_given_back_elsewhere() {
    on_gathering_presets(|m| {
        let vm = m.space();
        let given = anon(m, vm, 1);
        m.write(0, vm, given, 1).unwrap();
        m.write(1, vm, given, 2).unwrap();
        m.plan(move |_| {
            let other = anon(m, vm, 1);
            m.write(1, vm, other, 7).unwrap();
            vm.unmap(&m.cpu(1), m.mem, other, 1).unwrap();
        });
        vm.dontneed(&m.cpu(0), m.mem, given, 1).unwrap();
        assert!(m.meanwhile.borrow().is_empty(), "CPU 0 has waited for the flush");
        assert_eq!(m.read(1, vm, given), Ok(0));
        m.end(0, vm);
    });
}

//! CPUs with upper page tables of their own: which CPU a table is hooked for, who is interrupted, and how a space is
//! converted.

use crate::common::Machine;
use crate::space::{PAGE, anon};
use Backing::{AnonPrivate, AnonShared};
use Protection::ReadWrite;
use tlbkit::*;
use tlbkit_pmap::{Access, Backing, ChildFill, Error, Fault, Protection, Region};

/// Where CPUs have upper page tables of their own, a fault hooks the page's table in those of its CPU alone.
#[test]
fn what_one_cpu_has_hooked_is_in_its_directory_alone_and_goes_without_an_interrupt() {
    let m = Machine::new(2, Policy::default());
    let vm = m.converted_space();
    let va = anon(m, vm, 1);
    m.run(1, vm);
    m.write(0, vm, va, 1).unwrap();
    let is_mapped = |cpu| m.is_mapped_below(vm.root_on(m.mem, CpuId(cpu)), va);
    assert_eq!([0, 1].map(is_mapped), [true, false]);
    vm.unmap(&m.cpu(0), m.mem, va, 1).unwrap();
    assert_eq!(m.interrupts(0), 0);
    let va = anon(m, vm, 1);
    let fault = |cpu| vm.fault(&m.cpu(cpu), m.mem, va, Access::Read);
    assert_eq!(fault(0), Fault::Mapped { zeroed: 0, copied: 0, table_frames: 0 }, "the table was kept");
    assert_eq!(fault(1), Fault::Mapped { zeroed: 0, copied: 0, table_frames: 3 }, "and is hooked, below a new root");
    assert_eq!(fault(1), Fault::Spurious);
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

/// A space is converted by one flush; a CPU gets a root in its first fault there, and none that faults nowhere.
#[test]
fn a_space_is_converted_by_one_flush_and_each_cpu_takes_a_root_when_it_faults() {
    let m = Machine::new(3, Policy::default());
    let vm = m.space();
    let va = anon(m, vm, 1);
    m.write(1, vm, va, 1).unwrap();
    m.idle(1);
    m.write(0, vm, va, 1).unwrap();
    let (used, sent) = (m.used(), m.interrupts(0));
    vm.give_directories(&m.cpu(0), m.mem).unwrap();
    assert_eq!((m.used() - used, m.interrupts(0) - sent), (2, 1), "the lazy CPU leaves the shared tables");
    vm.give_directories(&m.cpu(0), m.mem).unwrap();
    assert_eq!((m.used() - used, m.interrupts(0) - sent), (2, 1), "once");
    let roots = || [0, 1, 2].map(|cpu| vm.root_on(m.mem, CpuId(cpu)));
    let [empty, ..] = roots();
    assert!(roots() == [empty; 3] && empty != vm.space().root() && !m.is_mapped_below(empty, va));
    m.run(1, vm);
    m.write(0, vm, va, 2).unwrap();
    let [own, ..] = roots();
    assert!(roots() == [own, empty, empty] && m.is_mapped_below(own, va) && !m.is_mapped_below(empty, va));
    m.run(2, vm);
    vm.unmap(&m.cpu(0), m.mem, va, 1).unwrap();
    assert_eq!(m.interrupts(0) - sent, 1, "CPU 1 has used it before, and is no sharer");
    assert_eq!(m.read(1, vm, va), Err(Fault::Bad));
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

#[test]
fn a_space_that_has_had_large_pages_is_not_converted() {
    let m = Machine::new(1, Policy::default());
    let parent = m.space();
    let va = parent.map_region(&m.cpu(0), Region::new(512, AnonPrivate, ReadWrite).large()).unwrap();
    m.write(0, parent, va, 1).unwrap();
    let child = m.space();
    parent.fork(&m.cpu(0), m.mem, child, ChildFill::DirectMap).unwrap();
    for vm in [parent, child] {
        assert_eq!(vm.give_directories(&m.cpu(0), m.mem), Err(Error::HadLargePages));
        assert_eq!((m.read(0, vm, va), vm.has_directories(m.cpu(0).hardware())), (Ok(1), false));
        m.end(0, vm);
    }
    assert_eq!(m.used(), 0);
}

/// Without memory a space stays as it is, or the CPU's fault says so.
#[test]
fn a_space_is_converted_later_if_no_frame_is_left() {
    let m = Machine::new(1, Policy::default());
    let vm = m.space();
    let va = anon(m, vm, 1);
    m.write(0, vm, va, 1).unwrap();
    let used = m.used();
    for left in [0, 1] {
        m.mem.left.set(Some(left));
        assert_eq!(vm.give_directories(&m.cpu(0), m.mem), Err(Error::OutOfMemory));
        assert_eq!((m.used(), m.read(0, vm, va), vm.has_directories(m.cpu(0).hardware())), (used, Ok(1), false));
    }
    m.mem.left.set(Some(2));
    vm.give_directories(&m.cpu(0), m.mem).unwrap();
    assert_eq!(m.read(0, vm, va), Err(Fault::OutOfMemory));
    m.mem.left.set(None);
    assert_eq!(m.read(0, vm, va), Ok(1));
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

#[test]
fn a_sweep_over_tables_reaches_the_sharers_of_each() {
    let m = Machine::new(3, Policy::default());
    let vm = m.converted_space();
    let va = anon(m, vm, 3 * 512);
    let page = |cpu: u32| va + u64::from(cpu) * Stride::Page2M.bytes();
    (0..3).for_each(|cpu| m.write(cpu, vm, page(cpu), 1).unwrap());
    vm.dontneed(&m.cpu(0), m.mem, va, 3 * 512).unwrap();
    (0..3).for_each(|cpu| assert_eq!(m.read(cpu, vm, page(cpu)), Ok(0), "CPU {cpu}"));
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

/// A table that was kept when its pages went is freed when memory is low, by an operation on other pages.
#[test]
fn a_table_that_another_cpu_has_hooked_goes_with_an_interrupt_whoever_frees_it() {
    let m = Machine::new(2, Policy::default());
    let vm = m.converted_space();
    let va = anon(m, vm, 1024);
    let other = va + Stride::Page2M.bytes();
    m.write(1, vm, other, 1).unwrap();
    m.write(0, vm, va, 1).unwrap();
    vm.unmap(&m.cpu(0), m.mem, other, 512).unwrap();
    assert_eq!(m.read(1, vm, other), Err(Fault::Bad), "it has walked to the table again");
    m.mem.is_low.set(true);
    let before = m.interrupts(0);
    vm.unmap(&m.cpu(0), m.mem, va, 512).unwrap();
    assert_eq!(m.interrupts(0) - before, 1);
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

/// Nobody else can hold what the other call has taken out.
#[test]
fn an_overlap_reaches_the_sharers_of_the_tables_that_were_looked_at_alone() {
    let m = Machine::new(3, Policy::default());
    let vm = m.converted_space();
    let va = anon(m, vm, 1024);
    for (cpu, va) in [(2, va + Stride::Page2M.bytes()), (1, va), (0, va)] {
        m.write(cpu, vm, va, 1).unwrap();
    }
    let before = m.cpus[2].interrupts.get();
    let madvise = || vm.dontneed(&m.cpu(1), m.mem, va, 512).unwrap();
    vm.dontneed_with(&m.cpu(0), m.mem, va, 1, madvise).unwrap();
    assert_eq!(m.cpus[2].interrupts.get(), before);
    assert_eq!((m.read(0, vm, va), m.read(1, vm, va)), (Ok(0), Ok(0)));
    m.end(0, vm);
}

/// Where there never was a table nobody can hold anything, as long as none was taken out anywhere.
#[test]
fn an_overlap_over_addresses_without_a_table_reaches_all_once_a_table_was_taken_out() {
    let m = Machine::new(3, Policy::default());
    let vm = m.converted_space();
    let va = anon(m, vm, 5 * 512);
    let [far, last] = [3, 4].map(|table| va + table * Stride::Page2M.bytes());
    let overlap = || {
        for (cpu, va) in [(2, far), (1, va), (0, va)] {
            m.write(cpu, vm, va, 1).unwrap();
        }
        let before = m.cpus[2].interrupts.get();
        let madvise = || vm.dontneed(&m.cpu(1), m.mem, va, 3 * 512).unwrap();
        vm.dontneed_with(&m.cpu(0), m.mem, va, 1, madvise).unwrap();
        m.cpus[2].interrupts.get() - before
    };
    assert_eq!(overlap(), 0);
    m.write(0, vm, last, 1).unwrap();
    m.mem.is_low.set(true);
    vm.unmap(&m.cpu(0), m.mem, last, 512).unwrap();
    m.mem.is_low.set(false);
    assert_eq!(overlap(), 1);
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

/// The munmap finds a page gone whose flush is still owed, and flushes in the middle for a shared page: the flush for
/// the page that was gone goes to the sharers of the tables before it, too.
#[test]
fn an_overlap_reaches_the_sharers_of_tables_that_were_looked_at_before_a_flush() {
    let m = Machine::new(3, Policy::parse("tlbkit:shared_dirty=under-lock").unwrap());
    let vm = m.converted_space();
    let pages = Stride::Page2M.bytes() / PAGE;
    let map = |backing| vm.map(&m.cpu(0), pages, backing, ReadWrite).unwrap();
    let [first, shared, last] = [AnonPrivate, AnonShared, AnonPrivate].map(map);
    assert_eq!([shared, last], [first + pages * PAGE, first + 2 * pages * PAGE], "a table each");
    for (cpu, va) in [(2, first), (0, first), (1, shared), (1, last)] {
        m.write(cpu, vm, va, 1).unwrap();
    }
    let mut found = None;
    let munmap = || {
        vm.unmap(&m.cpu(1), m.mem, first, 3 * pages).unwrap();
        found = Some(m.read(2, vm, first));
    };
    vm.dontneed_with(&m.cpu(0), m.mem, first, 1, munmap).unwrap();
    assert_eq!(found, Some(Err(Fault::Bad)), "the munmap was over");
    m.end(0, vm);
    assert_eq!(m.used(), 0);
}

//! What an operation asks the protocol for: one request where one will do, and all that it owes.

use crate::common::{Machine, on_every_preset};
use std::collections::BTreeSet;
use tlbkit::*;
use tlbkit_pmap::{
    Access, Backing, ChildFill, Error, Eviction, Fault, KernelMap, Memory, Protection, Pte, Purpose, Region, Vm,
    WINDOW_PAGES, Withdrawal,
};
use tlbkit_testkit::words;

const PAGE: u64 = 4096;
const BITS: u64 = Pte::PRESENT | Pte::WRITE | Pte::USER;

fn anon(m: &'static Machine, vm: &'static Vm<'static>, pages: u64) -> u64 {
    vm.map(&m.cpu(0), pages, Backing::AnonPrivate, Protection::ReadWrite).unwrap()
}

/// Policies that flush after a sweep. The others flush under the tables' lock: there no sweep meets another's.
fn batched() -> impl Iterator<Item = Policy> {
    PRESETS.iter().map(|preset| preset.policy).filter(|policy| !policy.history.sends_at_once())
}

#[test]
fn c_28_a_sweep_that_finds_an_entry_gone_whose_flush_is_to_come_flushes_too() {
    for policy in batched() {
        let m = Machine::new(2, policy);
        let vm = m.space();
        let va = anon(m, vm, 2);
        m.write(0, vm, va, 5).unwrap();
        assert_eq!(m.read(1, vm, va), Ok(5));
        m.plan(move |_| {
            assert!(!m.is_mapped(vm, va), "CPU 0 has unhooked the page and waits for CPU 1");
            vm.dontneed(&m.cpu(1), m.mem, va, 2).unwrap();
            assert_eq!(m.read(1, vm, va), Ok(0), "what the call promised");
        });
        vm.dontneed(&m.cpu(0), m.mem, va, 2).unwrap();
        assert!(m.meanwhile.borrow().is_empty(), "CPU 0 had to wait");
        m.end(0, vm);
        assert_eq!(m.used(), 0);
    }
}

#[test]
fn c_28_a_sweep_alone_that_finds_nothing_flushes_nothing() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 2);
        m.write(0, vm, va, 5).unwrap();
        vm.dontneed(&m.cpu(0), m.mem, va, 2).unwrap();
        m.mem.log.borrow_mut().clear();
        vm.dontneed(&m.cpu(0), m.mem, va, 2).unwrap();
        assert!(m.mem.log.borrow().is_empty());
        m.end(0, vm);
    });
}

/// What it costs others that CPU 1 gives a page back while CPU 0, which gives back another, waits for it: full flushes
/// of CPU 0, and interrupts of CPU 2, which holds the space lazily.
fn cost_of_an_overlap(policy: Policy, backing: Backing) -> (u32, u32) {
    let m = Machine::new(3, policy);
    let vm = m.space();
    // In page tables of their own: an early flush holds a table's lock.
    let va = vm.map(&m.cpu(0), 2 * 512, backing, Protection::ReadWrite).unwrap();
    let [mine, other] = [va, va + 512 * PAGE];
    m.run(2, vm);
    m.idle(2);
    m.write(0, vm, mine, 5).unwrap();
    m.write(1, vm, other, 6).unwrap();
    let costs = move || (m.full_flushes(0), m.cpus[2].interrupts.get());
    let alone = costs();
    vm.dontneed(&m.cpu(1), m.mem, other, 1).unwrap();
    assert_eq!(costs(), alone, "nobody else was at work");
    m.write(1, vm, other, 6).unwrap();
    let seen = std::rc::Rc::new(std::cell::Cell::new((0, 0)));
    let cost = seen.clone();
    m.plan(move |_| {
        let before = costs();
        vm.dontneed(&m.cpu(1), m.mem, other, 1).unwrap();
        let after = costs();
        cost.set((after.0 - before.0, after.1 - before.1));
    });
    vm.dontneed(&m.cpu(0), m.mem, mine, 1).unwrap();
    assert!(m.meanwhile.borrow().is_empty(), "CPU 0 had to wait");
    m.end(0, vm);
    seen.get()
}

#[test]
fn c_28_sweeps_that_overlap_flush_everything_under_linux_6_18_and_their_range_under_others() {
    for backing in [Backing::AnonPrivate, Backing::FileShared] {
        let cost = |text| cost_of_an_overlap(Policy::parse(text).unwrap(), backing);
        assert_eq!(cost("linux-6.18"), (1, 1), "{backing:?}: as if tables had been freed");
        assert_eq!(cost("linux-4.20:nested=everything"), (1, 1), "{backing:?}");
        assert_eq!([cost("linux-6.18:nested=range"), cost("linux-4.20"), cost("tlbkit")], [(0, 0); 3], "{backing:?}");
    }
}

/// Interrupts of CPU 1 when CPU 0 gives back two pages of two page tables that both have accessed.
fn interrupts_for_two_tables(policy: Policy, backing: Backing, access: Access) -> u32 {
    let m = Machine::new(2, policy);
    let vm = m.space();
    let va = vm.map(&m.cpu(0), 2 * 512, backing, Protection::ReadWrite).unwrap();
    for at in [va, va + 512 * PAGE] {
        (0..2).for_each(|cpu| match access {
            Access::Read => _ = m.read(cpu, vm, at).unwrap(),
            Access::Write => m.write(cpu, vm, at, 5).unwrap(),
        });
    }
    let before = m.cpus[1].interrupts.get();
    vm.dontneed(&m.cpu(0), m.mem, va, 2 * 512).unwrap();
    let sent = m.cpus[1].interrupts.get() - before;
    m.end(0, vm);
    sent
}

#[test]
fn c_42_dirty_pages_of_a_shared_file_are_flushed_table_by_table_by_linux_since_3_15() {
    let presets = [("linux-3.14", 1), ("linux-4.13", 2), ("linux-4.20", 2), ("linux-6.18", 2), ("tlbkit", 1)];
    for (name, of_shared) in presets {
        let sent = |backing, access| interrupts_for_two_tables(Policy::preset(name).unwrap(), backing, access);
        assert_eq!(sent(Backing::FileShared, Access::Write), of_shared, "{name}");
        assert_eq!(sent(Backing::FileShared, Access::Read), 1, "{name}: they are clean");
        assert_eq!(sent(Backing::AnonPrivate, Access::Write), 1, "{name}: nobody writes them back");
    }
}

/// Exec takes out all that there is as if it were one range, and the tables with it. One more for each table is needed
/// where dirty pages of a shared file are flushed under its lock, and one for all tables by who sends each at once.
#[test]
fn exec_flushes_the_whole_user_half_once() {
    let full_flushes = |name, backing| {
        let m = Machine::new(1, Policy::preset(name).unwrap());
        let vm = m.space();
        let va = vm.map(&m.cpu(0), 3 * 512, backing, Protection::ReadWrite).unwrap();
        (0..3).for_each(|table| m.write(0, vm, va + table * 512 * PAGE, 5).unwrap());
        let before = (m.full_flushes(0), m.flushes());
        vm.clear(&m.cpu(0), m.mem);
        assert_eq!(m.flushes() - before.1, (m.full_flushes(0) - before.0) as usize, "{name}: no page by itself");
        let full = m.full_flushes(0) - before.0;
        m.end(0, vm);
        full
    };
    for (name, private, shared) in [("tlbkit", 1, 1), ("linux-6.18", 1, 4), ("netbsd-5.0", 2, 2)] {
        let full = [Backing::AnonPrivate, Backing::FileShared].map(|backing| full_flushes(name, backing));
        assert_eq!(full, [private, shared], "{name}");
    }
}

/// How often each operation has CPU 0 flush, and why.
#[test]
fn each_flush_is_counted_under_its_reason() {
    let m = Machine::new(1, Policy::parse("netbsd-5.0:stats=on").unwrap());
    let (vm, cpu) = (m.space(), m.cpu(0));
    let stats = cpu.stats().unwrap();
    let count = |place| Reason::ALL.map(|reason| stats.events(reason, place));
    let counted = |what: &dyn Fn()| {
        let before = [Place::Local, Place::Kernel].map(count);
        what();
        let after = [Place::Local, Place::Kernel].map(count);
        let more = |reason: Reason| (0..2).map(|at| after[at][reason as usize] - before[at][reason as usize]).sum();
        Reason::ALL.into_iter().map(|reason| (reason, more(reason))).filter(|(_, n)| *n > 0).collect::<Vec<_>>()
    };
    let va = anon(m, vm, 2);
    let write = || m.write(0, vm, va, 1).unwrap();
    let protect = |protection| vm.protect(&cpu, m.mem, va, 1, protection).unwrap();
    write();
    assert_eq!(counted(&|| protect(Protection::Read)), [(Reason::WriteProtect, 1)]);
    protect(Protection::ReadWrite);
    let child = m.space();
    assert_eq!(counted(&|| _ = vm.fork(&cpu, m.mem, child, ChildFill::DirectMap).unwrap()), [(Reason::Fork, 1)]);
    assert_eq!(counted(&write), [(Reason::CopyOnWrite, 1)]);
    assert_eq!(counted(&|| _ = vm.age(&cpu, m.mem, va, 1).unwrap()), [(Reason::WriteProtect, 1)]);
    let frame = m.mem.alloc(12, Purpose::Data).unwrap();
    let frame = std::cell::Cell::new(Some(frame));
    let enter = || _ = vm.enter(&cpu, m.mem, va, frame.take().unwrap(), BITS).unwrap();
    assert_eq!(counted(&enter), [(Reason::Enter, 1)]);
    assert_eq!(counted(&|| vm.dontneed(&cpu, m.mem, va, 1).unwrap()), [(Reason::RemovePte, 1)]);
    write();
    let unmap = || vm.unmap(&cpu, m.mem, va, 2).unwrap();
    assert_eq!(counted(&unmap), [(Reason::RemovePte, 1), (Reason::FreeTable, 3)]);
    let window = || m.kernel.unmap(&cpu, m.mem, m.kernel.map(&cpu, m.mem, [m.mem.file_page(1, 0)]).unwrap().unwrap());
    assert_eq!(counted(&window), [(Reason::KernelRemove, 1)]);
    anon(m, vm, 1);
    write();
    assert_eq!(counted(&|| vm.clear(&cpu, m.mem)), [(Reason::RemoveAll, 1), (Reason::FreeTable, 1)]);
    anon(m, vm, 1);
    write();
    let [away, freed] = [(Reason::RemoveAll, 1), (Reason::FreeTable, 1)];
    assert_eq!(counted(&|| vm.exit(&cpu, m.mem)), [away, freed, (Reason::ForeignTables, 1)]);
}

/// A page that is flushed before the lock is let go is flushed before it is missed: nothing is left for the end.
#[test]
fn an_early_flush_leaves_nothing_for_the_end() {
    let m = Machine::new(1, Policy::preset("linux-6.18").unwrap());
    let vm = m.space();
    let va = vm.map(&m.cpu(0), 1, Backing::FileShared, Protection::ReadWrite).unwrap();
    m.write(0, vm, va, 5).unwrap();
    m.mem.log.borrow_mut().clear();
    vm.dontneed(&m.cpu(0), m.mem, va, 1).unwrap();
    assert_eq!(m.flushes(), 1);
    m.end(0, vm);
}

#[test]
fn inv_9_what_is_withdrawn_is_put_back_when_it_is_finished() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 600);
        let at = |page: u64| va + page * PAGE;
        (0..70).chain(510..514).for_each(|page| m.write(0, vm, at(page), 5).unwrap());
        assert_eq!(m.read(1, vm, at(0)), Ok(5));
        let used = m.used();
        let [mut most, of_one_table] =
            [(0, 70), (510, 4)].map(|(page, pages)| Withdrawal::take(&m.cpu(0), m.mem, vm, at(page), pages));
        let left: Vec<_> = (0..70).chain(510..514).filter(|&page| m.is_mapped(vm, at(page))).collect();
        assert_eq!(left, (64..70).chain(512..514).collect::<Vec<_>>(), "64 at most, and of one table");
        assert_eq!(m.used(), used, "other CPUs may still use them");
        while !most.is_done(&m.cpu(0)) {
            m.deliver(1);
        }
        most.finish(&m.cpu(0), m.mem);
        assert_eq!((m.used(), m.read(1, vm, at(0))), (used - 64, Ok(0)));
        of_one_table.finish(&m.cpu(0), m.mem);
        let large = vm.map_region(&m.cpu(0), Region::new(512, Backing::AnonPrivate, Protection::ReadWrite).large());
        let large = large.unwrap();
        m.write(0, vm, large, 5).unwrap();
        Withdrawal::take(&m.cpu(0), m.mem, vm, large, 512).finish(&m.cpu(0), m.mem);
        assert!(m.is_mapped(vm, large), "base pages alone");
        m.end(0, vm);
        assert_eq!(m.used(), 0);
    });
}

#[test]
fn a_whole_kernel_window_goes_with_one_request() {
    on_every_preset(|m| {
        let vm = m.space();
        m.run(1, vm);
        let frames = || (0..WINDOW_PAGES).map(|page| m.mem.file_page(1, page));
        frames().zip(1..).for_each(|(at, value)| m.mem.store(at, value));
        let window = m.kernel.map(&m.cpu(0), m.mem, frames()).unwrap().unwrap();
        let pages = (0..WINDOW_PAGES).map(|page| window.va + page * PAGE).collect::<Vec<_>>();
        for (&va, value) in pages.iter().zip(1..) {
            assert_eq!((m.kernel_read(0, va), m.kernel_read(1, va)), (Some(value), Some(value)));
        }
        let before = m.cpus[1].interrupts.get();
        m.kernel.unmap(&m.cpu(0), m.mem, window);
        assert_eq!(m.cpus[1].interrupts.get() - before, 1);
        assert!(pages.iter().all(|&va| m.kernel_read(0, va).is_none() && m.kernel_read(1, va).is_none()));
        assert!(frames().all(|at| m.mem.references(at) == 1));
        m.end(1, vm);
    });
}

/// How many full flushes it takes to write-protect `region`.
fn full_flushes_to_protect(policy: Policy, region: Region) -> u32 {
    full_flushes(policy, region, |m, vm, va| {
        vm.protect(&m.cpu(0), m.mem, va, region.pages, Protection::Read).unwrap();
    })
}

/// Retires pages that no other CPU uses.
fn retire(m: &'static Machine, vm: &'static Vm<'static>, va: u64, pages: u64) {
    let periods = GracePeriods::new(Box::leak(Box::new([const { Passed::new() }; 1])));
    assert!(vm.unmap_and_retire(&m.cpu(0), m.mem, &periods, va, pages).unwrap().is_none());
}

/// How many full flushes `take` makes once the first page of `region` is in use; then it is not any more.
fn full_flushes(policy: Policy, region: Region, take: impl Fn(&'static Machine, &'static Vm<'static>, u64)) -> u32 {
    let m = Machine::new(1, policy);
    let vm = m.space();
    let va = vm.map_region(&m.cpu(0), region).unwrap();
    m.write(0, vm, va, 1).unwrap();
    let before = m.full_flushes(0);
    take(m, vm, va);
    assert_eq!(m.write(0, vm, va, 2), Err(Fault::Bad));
    m.full_flushes(0) - before
}

#[test]
fn linux_3_13_flushes_everything_where_it_finds_a_large_page_and_3_14_does_not_look() {
    let preset = |name| Policy::preset(name).unwrap();
    let small = Region::new(512, Backing::AnonPrivate, Protection::ReadWrite);
    assert_eq!(full_flushes_to_protect(preset("linux-3.13"), small.large()), 1);
    assert_eq!(full_flushes_to_protect(preset("linux-3.13"), small), 0);
    assert_eq!(full_flushes_to_protect(preset("linux-3.14"), small.large()), 0);
    // The rule counts what the space has mapped: one page of one page is everything, as a page of many is not.
    assert_eq!(full_flushes_to_protect(preset("linux-3.14"), Region { pages: 1, ..small }), 1);
    // An munmap counts them as well if it is retired.
    let retire = |region| full_flushes(preset("linux-3.14"), region, |m, vm, va| retire(m, vm, va, 1));
    assert_eq!([1, 512].map(|pages| retire(Region { pages, ..small })), [1, 0]);
    // And what it has left is what the next one counts: a page, and what else there is.
    let unmap = |m: &'static Machine, vm: &'static Vm<'static>, va, pages| {
        vm.unmap(&m.cpu(0), m.mem, va, pages).unwrap();
    };
    for take in [self::retire, unmap] {
        for (more, full) in [(0, 1), (512, 0)] {
            let then_protect = |m: &'static Machine, vm: &'static Vm<'static>, va| {
                let last = va + 511 * PAGE;
                m.write(0, vm, last, 1).unwrap();
                if more > 0 {
                    vm.map(&m.cpu(0), more, Backing::AnonShared, Protection::Read).unwrap();
                }
                take(m, vm, va, 511);
                vm.protect(&m.cpu(0), m.mem, last, 1, Protection::Read).unwrap();
            };
            assert_eq!(full_flushes(preset("linux-3.14"), small, then_protect), full);
        }
    }
    let fork = |m: &'static Machine, vm: &'static Vm<'static>, va| {
        let child = m.space();
        vm.fork(&m.cpu(0), m.mem, child, ChildFill::DirectMap).unwrap();
        m.write(0, child, va, 1).unwrap();
        let before = m.full_flushes(0);
        child.protect(&m.cpu(0), m.mem, va, 1, Protection::Read).unwrap();
        assert_eq!(m.full_flushes(0) - before, 0, "a child has as many as its parent");
        vm.clear(&m.cpu(0), m.mem);
    };
    full_flushes(preset("linux-3.14"), small, fork);
    let exec = |m: &'static Machine, vm: &'static Vm<'static>, va| {
        vm.clear(&m.cpu(0), m.mem);
        let before = m.full_flushes(0);
        assert_eq!(anon(m, vm, 1), va);
        m.write(0, vm, va, 1).unwrap();
        vm.protect(&m.cpu(0), m.mem, va, 1, Protection::Read).unwrap();
        assert_eq!(m.full_flushes(0) - before, 1, "exec leaves nothing to count");
    };
    full_flushes(preset("linux-3.14"), small, exec);
}

/// What lies between the pages that a madvise gives back is looked at while it has the regions: then it may be gone,
/// with its tables.
#[test]
fn a_madvise_around_a_large_page_flushes_everything_where_the_rule_looks() {
    let rule = |walk| RangeRule::FamilyShift(FamilyShift { shift: 0, entries: 4096, walk });
    for (walk, full) in [(LargePageWalk::Walk, 1), (LargePageWalk::Skip, 0)] {
        let m = Machine::new(2, Policy { range: rule(walk), ..Policy::preset("linux-3.13").unwrap() });
        let vm = m.space();
        let map = |backing| vm.map(&m.cpu(0), 512, backing, Protection::ReadWrite).unwrap();
        let [first, shared, last] = [Backing::AnonPrivate, Backing::AnonShared, Backing::AnonPrivate].map(map);
        let frame = m.mem.alloc(21, Purpose::Data).unwrap();
        vm.enter(&m.cpu(0), m.mem, shared, frame, BITS).unwrap();
        for va in [shared - PAGE, last] {
            m.write(0, vm, va, 1).unwrap();
        }
        let before = m.full_flushes(0);
        m.mem.log.borrow_mut().clear();
        let munmap = || {
            assert!(m.mem.log.borrow().is_empty(), "the flush comes when the kernel's locks are dropped");
            vm.unmap(&m.cpu(1), m.mem, shared, 512).unwrap();
        };
        vm.dontneed_with(&m.cpu(0), m.mem, first, 3 * 512, munmap).unwrap();
        assert_eq!(m.full_flushes(0) - before, full, "{walk:?}");
        m.end(0, vm);
        assert_eq!(m.used(), 0);
    }
}

#[test]
fn an_eviction_takes_base_pages_as_long_as_there_is_room_and_puts_them_when_it_is_finished() {
    on_every_preset(|m| {
        let vm = m.space();
        let large = vm.map_region(&m.cpu(0), Region::new(512, Backing::AnonPrivate, Protection::ReadWrite).large());
        let (large, va) = (large.unwrap(), anon(m, vm, 70));
        let at = |page: u64| va + page * PAGE;
        m.write(0, vm, large, 5).unwrap();
        m.read(0, vm, at(0)).unwrap();
        (1..70).for_each(|page| m.write(0, vm, at(page), 5).unwrap());
        assert_eq!(m.read(1, vm, at(1)), Ok(5));
        let used = m.used();
        let mut eviction = Eviction::new();
        eviction.take(&m.cpu(0), m.mem, vm, large, 512 + 70);
        let left: Vec<_> = (0..70).filter(|&page| m.is_mapped(vm, at(page))).collect();
        assert_eq!((left, m.used()), ((65..70).collect(), used), "the zero page takes no room");
        assert!(m.is_mapped(vm, large));
        eviction.finish(&m.cpu(0), m.mem);
        assert_eq!((m.used(), m.read(1, vm, at(1))), (used - 64, Ok(0)));
        m.end(0, vm);
    });
}

/// What is withdrawn is named, page for page: under a ceiling that it keeps to, nothing else is flushed.
#[test]
fn pages_that_are_withdrawn_are_flushed_one_by_one() {
    let m = Machine::new(1, Policy::default());
    let vm = m.space();
    let va = anon(m, vm, 8);
    (0..8).for_each(|page| m.write(0, vm, va + page * PAGE, 5).unwrap());
    let full = m.full_flushes(0);
    m.mem.log.borrow_mut().clear();
    Withdrawal::take(&m.cpu(0), m.mem, vm, va + 2 * PAGE, 3).finish(&m.cpu(0), m.mem);
    assert_eq!((m.full_flushes(0) - full, m.flushes()), (0, 3));
    m.end(0, vm);
}

/// The tables above a window need memory; and there is a last window.
#[test]
fn a_kernel_window_that_finds_no_memory_or_no_place_leaves_nothing_behind() {
    let m = Machine::new(1, Policy::default());
    let frame = m.mem.file_page(1, 0);
    let map = || m.kernel.map(&m.cpu(0), m.mem, [frame]);
    // The first table has been there from the beginning.
    let mut windows: Vec<_> = (0..512 / WINDOW_PAGES).map(|_| map().unwrap().unwrap()).collect();
    m.mem.left.set(Some(0));
    assert!(matches!(map(), Err(Error::OutOfMemory)));
    m.mem.left.set(None);
    windows.extend(std::iter::from_fn(|| map().unwrap()));
    assert_eq!(windows.len(), 64, "one word of them; the one that had no table is free again");
    let full = m.full_flushes(0);
    windows.into_iter().for_each(|window| m.kernel.unmap(&m.cpu(0), m.mem, window));
    assert_eq!(m.full_flushes(0), full, "each is flushed by itself");
    assert!(map().unwrap().is_some());
    let larger = KernelMap::new(m.mem, words(2)).unwrap();
    let windows = std::iter::from_fn(|| larger.map(&m.cpu(0), m.mem, []).unwrap());
    assert_eq!(windows.map(|window| window.va).collect::<BTreeSet<_>>().len(), 128, "all of both words");
}

/// Pages 1 to 7 are mapped by the fault at page 0; then CPU 1 uses page 1 alone.
#[test]
fn c_45_what_no_cpu_has_accessed_is_taken_out_without_a_flush_where_the_policy_says_so() {
    for (unaccessed, asked) in [(Unaccessed::Flushed, [1, 1, 1, 1, 1]), (Unaccessed::Spared, [0, 0, 0, 0, 1])] {
        let m = Machine::new(2, Policy { unaccessed, ..Policy::DEFAULT });
        m.mem.around.set(Some(8));
        let vm = m.space();
        let va = vm.map(&m.cpu(0), 8, Backing::FilePrivate, Protection::ReadWrite).unwrap();
        m.read(0, vm, va).unwrap();
        m.read(1, vm, va + PAGE).unwrap();
        let of = |change: &dyn Fn()| {
            let before = m.interrupts(0);
            change();
            m.interrupts(0) - before
        };
        let protect = || vm.protect(&m.cpu(0), m.mem, va + 2 * PAGE, 1, Protection::None).unwrap();
        let unmap = |page| vm.dontneed(&m.cpu(0), m.mem, va + page * PAGE, 1).unwrap();
        let zero = anon(m, vm, 1);
        (0..2).for_each(|cpu| assert_eq!(m.read(cpu, vm, zero), Ok(0)));
        assert_eq!(vm.age(&m.cpu(0), m.mem, zero, 1), Ok(1));
        let store = || m.write(0, vm, zero, 5).unwrap();
        let evict = || {
            let mut eviction = Eviction::new();
            eviction.take(&m.cpu(0), m.mem, vm, va + 4 * PAGE, 1);
            eviction.finish(&m.cpu(0), m.mem);
        };
        assert_eq!([of(&protect), of(&|| unmap(3)), of(&store), of(&evict), of(&|| unmap(1))], asked, "{unaccessed:?}");
        m.end(0, vm);
        assert!((0..8).all(|page| m.mem.references(m.mem.file_page(0, page)) == 1), "each was put");
    }
}

/// Page 1 is mapped again around page 2, while CPU 2 may still use what was there before.
#[test]
fn c_45_a_copy_of_an_unaccessed_page_is_flushed_while_the_page_before_it_may_be_cached() {
    let m = Machine::new(3, Policy { unaccessed: Unaccessed::Spared, ..Policy::DEFAULT });
    m.mem.around.set(Some(4));
    let vm = m.space();
    let va = vm.map(&m.cpu(0), 4, Backing::FilePrivate, Protection::ReadWrite).unwrap();
    let at = |page| va + page * PAGE;
    m.read(0, vm, at(0)).unwrap();
    m.read(2, vm, at(1)).unwrap();
    let copy = || {
        m.read(1, vm, at(2)).unwrap();
        assert!(m.is_mapped(vm, at(1)));
        m.write(1, vm, at(1), 9).unwrap();
        assert_eq!(m.read(2, vm, at(1)), Ok(9));
    };
    vm.dontneed_with(&m.cpu(0), m.mem, at(1), 2, copy).unwrap();
    m.end(0, vm);
}

#[test]
fn c_45_a_page_that_was_aged_shows_each_access_that_comes_later() {
    on_every_preset(|m| {
        let vm = m.space();
        let va = anon(m, vm, 3);
        (0..2).for_each(|page| m.write(0, vm, va + page * PAGE, 5).unwrap());
        m.read(1, vm, va).unwrap();
        let age = || vm.age(&m.cpu(0), m.mem, va, 3).unwrap();
        assert_eq!([age(), age()], [2, 0]);
        m.read(1, vm, va).unwrap();
        assert_eq!(age(), 1, "CPU 1 kept no translation");
        m.read(1, vm, va).unwrap();
        vm.protect(&m.cpu(0), m.mem, va, 1, Protection::None).unwrap();
        assert_eq!(age(), 0, "nobody can access it");
        m.end(0, vm);
    });
}

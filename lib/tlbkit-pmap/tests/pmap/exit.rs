//! What exit and foreign tables cost under the policies of document 002.

use crate::common::Machine;
use crate::common::memory::Event;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tlbkit::*;
use tlbkit_pmap::{Backing, ChildFill, Protection, Region, Vm};

struct Cost {
    interrupts: u32,
    full_flushes: u32,
    cr3_writes: u32,
}

/// A program on CPU 0 that has touched 20 pages, beside another one on CPU 1.
fn program(policy: Policy) -> (&'static Machine, &'static Vm<'static>) {
    let m = Machine::new(2, policy);
    let (vm, other) = (m.space(), m.space());
    m.run(1, other);
    let va = vm.map(&m.cpu(0), 20, Backing::AnonPrivate, Protection::ReadWrite).unwrap();
    (0..20).for_each(|page| m.write(0, vm, va + page * 4096, 1).unwrap());
    (m, vm)
}

fn cost_of(m: &'static Machine, f: impl FnOnce()) -> Cost {
    let now = || Cost {
        interrupts: m.cpus[1].interrupts.get(),
        full_flushes: m.full_flushes(0),
        cr3_writes: m.cr3_writes(0),
    };
    let before = now();
    f();
    m.deliver(1);
    let after = now();
    Cost {
        interrupts: after.interrupts - before.interrupts,
        full_flushes: after.full_flushes - before.full_flushes,
        cr3_writes: after.cr3_writes - before.cr3_writes,
    }
}

fn preset(name: &str) -> Policy {
    Policy::preset(name).unwrap()
}

fn exit(policy: Policy) -> Cost {
    let (m, vm) = program(policy);
    cost_of(m, || vm.exit(&m.cpu(0), m.mem))
}

#[test]
fn the_window_interrupts_every_cpu_at_exit_and_a_switch_nobody() {
    let (old, new) = (exit(preset("netbsd-5.0")), exit(preset("netbsd-5.0-batched")));
    assert_eq!(old.interrupts, 1);
    assert_eq!(new.interrupts, 0, "no shootdown at exit");
    assert_eq!(new.cr3_writes, new.full_flushes, "no switch: the only CR3 writes are flushes");
    assert_eq!((old.full_flushes, new.full_flushes), (2, 1), "the switch and the window, against the one that frees");
    let batched = exit(Policy::parse("netbsd-5.0-batched:foreign=window").unwrap());
    assert_eq!(batched.interrupts, 1, "a gather is flushed in the end");
}

#[test]
fn the_window_is_opened_for_each_region_that_exits() {
    let interrupts = |more: u32| {
        let (m, vm) = program(preset("netbsd-5.0"));
        // Files of their own, so that no region is joined to its neighbour.
        for file in 1..=more {
            let region = Region { file, ..Region::new(1, Backing::FilePrivate, Protection::Read) };
            vm.map_region(&m.cpu(0), region).unwrap();
        }
        cost_of(m, || vm.exit(&m.cpu(0), m.mem)).interrupts
    };
    assert_eq!([interrupts(0), interrupts(1), interrupts(4)], [1, 2, 5]);
}

#[test]
fn tables_kept_for_destroy_save_one_whole_flush_at_exit() {
    let full_flushes = |settings| exit(Policy::parse(settings).unwrap()).full_flushes;
    let at_once = full_flushes("netbsd-5.0:foreign=switch");
    let kept = full_flushes("netbsd-5.0:foreign=switch+tables=at-destroy");
    assert_eq!(at_once, kept + 1);
}

#[test]
fn tables_wait_for_destroy_unless_memory_is_low() {
    for is_low in [false, true] {
        let (m, vm) = program(preset("netbsd-5.0-batched"));
        m.mem.is_low.set(is_low);
        m.mem.log.borrow_mut().clear();
        vm.exit(&m.cpu(0), m.mem);
        let frees_tables = m.mem.log.borrow().contains(&Event::Freed { is_table: true });
        assert_eq!(frees_tables, is_low);
        m.idle(0);
        assert_eq!(vm.destroy(&m.cpu(0), m.mem), Destroyed::Now);
        assert_eq!(m.used(), 1, "the other program's root");
    }
}

#[test]
fn fork_by_window_interrupts_others_once_by_a_switch_it_switches_twice_and_by_direct_map_it_does_neither() {
    let cost = |name, fill| {
        let (m, vm) = program(preset(name));
        let child = m.space();
        let cost = cost_of(m, || assert!(vm.fork(&m.cpu(0), m.mem, child, fill).is_ok()));
        (cost.interrupts, cost.cr3_writes)
    };
    let by_policy = |name| {
        let [policy, map] = [ChildFill::ByPolicy, ChildFill::DirectMap].map(|fill| cost(name, fill));
        (policy.0 - map.0, policy.1 - map.1)
    };
    assert_eq!((by_policy("netbsd-5.0").0, by_policy("netbsd-5.0-batched")), (1, (0, 2)));
}

#[test]
fn a_batched_fork_flushes_once_and_an_unbatched_one_per_page() {
    let flushes = |policy| {
        let (m, vm) = program(policy);
        let child = m.space();
        m.mem.log.borrow_mut().clear();
        vm.fork(&m.cpu(0), m.mem, child, ChildFill::DirectMap).unwrap();
        m.mem.log.borrow().len()
    };
    assert_eq!(flushes(preset("netbsd-5.0")), 20);
    assert_eq!(flushes(preset("netbsd-5.0-batched")), 1);
}

#[test]
fn a_space_is_not_freed_before_it_is_emptied_nor_again() {
    let (m, vm) = program(preset("tlbkit"));
    let is_refused = |what: &dyn Fn()| {
        let used = m.used();
        let panic = catch_unwind(AssertUnwindSafe(what)).expect_err("refused");
        assert!(panic.downcast::<String>().is_ok_and(|text| text.contains("emptied once")));
        assert_eq!(m.used(), used, "nothing was freed");
    };
    is_refused(&|| vm.reclaim(m.mem));
    m.end(0, vm);
    is_refused(&|| vm.reclaim(m.mem));
}

#[test]
fn empty_entries_that_are_passed_over_stand_for_the_loads_of_a_walk_to_each() {
    let [walked, passed] = [false, true].map(|knows_empty| {
        let m = Machine::new(2, preset("linux-6.18"));
        m.mem.knows_empty.set(knows_empty);
        let (vm, cpu) = (m.space(), m.cpu(0));
        let va = vm.map(&cpu, 1500, Backing::AnonPrivate, Protection::ReadWrite).unwrap();
        let touched = [0, 3, 511, 700, 1201, 1499].map(|page| va + page * 4096);
        touched.iter().for_each(|&at| m.write(0, vm, at, 1).unwrap());
        vm.unmap(&cpu, m.mem, va + 4096, 1200).unwrap();
        let left = touched.map(|at| m.is_mapped(vm, at));
        vm.clear(&cpu, m.mem);
        m.end(0, vm);
        (left, m.mem.loads.get(), m.used())
    });
    assert_eq!(walked, passed);
    assert_eq!(walked.0, [true, false, false, false, true, true]);
}

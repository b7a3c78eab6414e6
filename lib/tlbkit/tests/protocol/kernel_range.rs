//! Kernel addresses: in every space, on every CPU that is online, whatever it runs.

use tlbkit::{Batching, CpuSetUpkeep, History, Isolation, Policy, Reason, Scope, Stride, VirtAddr};

use crate::machine::{Did, KERNEL, Owner, USER, World, cr3s, interrupted, invlpgs};

fn policy(isolation: Isolation) -> Policy {
    Policy { isolation, ..Policy::default() }
}

/// Four CPUs: running, lazy, in the kernel's tables, and the one that flushes; each has used the page everywhere.
fn four(policy: Policy) -> &'static World {
    let world = World::new(policy, 4);
    let (a, b) = (world.space(), world.space());
    for va in [KERNEL, KERNEL + 0x1000] {
        world.map_kernel(va);
    }
    for cpu in 0..4 {
        for load in [a, b] {
            world.switch(cpu, load);
            world.touch(cpu, KERNEL);
            world.touch_in_kernel(cpu, KERNEL);
        }
        world.load_kernel(cpu);
        world.touch_in_kernel(cpu, KERNEL);
    }
    world.switch(1, a);
    world.switch(2, b);
    world.lazy(2);
    world.forget_logs();
    world
}

/// The page is gone wherever each CPU goes next, user half included.
fn assert_gone_everywhere(world: &'static World) {
    for cpu in 0..4 {
        for space in [1, 0] {
            assert_eq!(world.touch_in_kernel(cpu, KERNEL), None);
            world.switch(cpu, space);
            assert_eq!(world.touch_in_kernel(cpu, KERNEL), None);
            assert_eq!(world.touch(cpu, KERNEL), None);
        }
        world.load_kernel(cpu);
        assert_eq!(world.touch_in_kernel(cpu, KERNEL), None);
    }
}

#[test]
fn c_08_a_kernel_page_goes_on_all_cpus_and_in_all_tags() {
    for isolation in [Isolation::Off, Isolation::On] {
        let world = four(policy(isolation));
        world.revoke(0, Owner::Kernel, &[KERNEL]);
        for cpu in 0..4 {
            assert_eq!(invlpgs(&world.log(cpu)), [KERNEL], "cpu{cpu}, {isolation:?}");
        }
        assert_gone_everywhere(world);
    }
}

/// The scope says which tags may hold a page, and not which CPUs.
#[test]
fn c_08_a_kernel_page_of_either_scope_goes_on_all_cpus() {
    for scope in [Scope::Global, Scope::NonGlobal] {
        let world = four(policy(Isolation::Off));
        let mut gather = world.gather(Owner::Kernel);
        gather.page(&world.cpu(0), VirtAddr(KERNEL), Stride::Page4K, scope, Reason::KernelRemove);
        world.finish(0, gather);
        for cpu in 0..4 {
            assert_eq!(invlpgs(&world.log(cpu)), [KERNEL], "cpu{cpu}, {scope:?}");
        }
    }
}

#[test]
fn a_kernel_page_that_is_not_global_goes_from_the_other_tags_too_whatever_is_named_beside_it() {
    use Scope::{Global, NonGlobal};
    let named: [(&[Scope], bool); 4] = [
        (&[Global, Global], true),
        (&[NonGlobal], false),
        (&[NonGlobal, Global], false),
        (&[Global, NonGlobal], false),
    ];
    for (scopes, keeps) in named {
        let world = four(policy(Isolation::Off));
        world.switch(0, 0);
        world.forget_logs();
        let mut gather = world.gather(Owner::Kernel);
        for (&scope, va) in scopes.iter().zip([KERNEL, KERNEL + 0x1000]) {
            gather.page(&world.cpu(0), VirtAddr(va), Stride::Page4K, scope, Reason::KernelRemove);
        }
        world.finish(0, gather);
        world.switch(0, 1);
        assert_eq!(cr3s(&world.log(0)).iter().map(|cr3| cr3.keeps()).collect::<Vec<_>>(), [keeps], "{scopes:?}");
        for keeps in [keeps, true] {
            world.load_kernel(0);
            assert_eq!(cr3s(&world.log(0))[0].keeps(), keeps, "{scopes:?}: the kernel's own tag is flushed once");
            world.switch(0, 1);
            world.forget_logs();
        }
    }
}

#[test]
fn all_others_are_interrupted_by_one_message() {
    let world = four(policy(Isolation::Off));
    world.revoke(0, Owner::Kernel, &[KERNEL]);
    assert!(world.log(0).contains(&Did::IpiToOthers));
}

#[test]
fn while_one_is_off_line_the_others_are_interrupted_one_by_one() {
    let world = four(policy(Isolation::Off));
    world.offline(2);
    world.forget_logs();
    world.revoke(0, Owner::Kernel, &[KERNEL]);
    let log = world.log(0);
    assert_eq!((interrupted(&log), log.contains(&Did::IpiToOthers)), (vec![1, 3], false));
}

#[test]
fn inv_1_a_kernel_table_is_freed_only_when_no_cpu_walks_it() {
    for isolation in [Isolation::Off, Isolation::On] {
        let world = four(policy(isolation));
        world.free_table(0, Owner::Kernel, KERNEL);
        assert_gone_everywhere(world);
    }
}

#[test]
#[cfg_attr(not(feature = "history"), ignore = "older kernels alone do this")]
fn inv_11_a_kernel_packet_that_overflows_flushes_globals_too() {
    let world =
        four(Policy { history: History { batching: Batching::Packet(1), ..History::NONE }, ..policy(Isolation::Off) });
    world.touch_in_kernel(1, KERNEL + 0x1000);
    world.revoke(0, Owner::Kernel, &[KERNEL, KERNEL + 0x1000]);
    assert_eq!(invlpgs(&world.log(1)), []);
    assert_gone_everywhere(world);
}

#[test]
fn large_kernel_pages_go_by_one_invlpg_each() {
    let world = four(policy(Isolation::Off));
    let large = KERNEL + (1 << 30);
    for n in 0..3u64 {
        world.memory.borrow_mut().map(Owner::Kernel, large + (n << 21), Stride::Page2M);
        assert!(world.touch(1, large + (n << 21) + 0x5000).is_some());
    }
    world.revoke(0, Owner::Kernel, &[large, large + (1 << 21), large + (2 << 21)]);
    assert_eq!(invlpgs(&world.log(1)), [large, large + (1 << 21), large + (2 << 21)]);
    assert_eq!(world.touch(1, large + USER % 4096), None);
}

/// The pages are named one by one, as global ones; a path to their table may be cached under any tag.
#[test]
fn inv_1_a_kernel_table_goes_from_every_tag_whatever_is_named_beside_it() {
    let world = four(policy(Isolation::Off));
    let mut gather = world.gather(Owner::Kernel);
    let table = world.memory.borrow_mut().unhook_table(Owner::Kernel, KERNEL).expect("a table");
    world.unhook(0, &mut gather, Owner::Kernel, &[KERNEL, KERNEL + 0x1000]);
    gather.tables_freed();
    gather.hold(table);
    world.finish(0, gather);
    assert_gone_everywhere(world);
}

/// CPU 0 alone is in the space's set, or CPU 2 too, lazily; all have used the entry, whatever they run.
#[test]
fn inv_11_a_global_entry_that_is_named_with_a_space_goes_on_every_cpu() {
    for lazily in [0, 1] {
        let world = four(Policy { cpu_set: CpuSetUpkeep::Exact, ..policy(Isolation::Off) });
        world.switch(1, 1);
        world.switch(2, lazily);
        world.lazy(2);
        world.switch(0, 0);
        world.enter_kernel(0);
        let mut gather = world.gather(Owner::Space(0));
        world.unhook(0, &mut gather, Owner::Kernel, &[KERNEL]);
        world.finish(0, gather);
        assert_gone_everywhere(world);
    }
}

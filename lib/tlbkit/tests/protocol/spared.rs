//! CPUs that are not disturbed: flushes of kernel addresses that wait until a CPU enters, and what a host flushes.

use tlbkit::{
    Batching, Broadcast, CpuId, Entered, Event, History, HostExtent, HostFlush, Isolation, KernelFlushes, Policy,
    Reason, Scope, Stride, TlbBatch, VirtAddr,
};

use crate::machine::{Did, KERNEL, MODERN, Owner, USER, World, interrupted};

/// CPUs 1 and 2 run a space and have used a page of it and two of the kernel; CPU 0 changes them. CPU 2 is disturbed.
fn three(policy: Policy) -> &'static World {
    let world = World::new(policy, 3);
    let space = world.space();
    world.map(space, USER);
    (0..2).for_each(|n| _ = world.map_kernel(KERNEL + n * 0x1000));
    for cpu in 0..3 {
        world.switch(cpu, space);
        world.touch(cpu, USER);
        (0..2).for_each(|n| _ = world.touch_in_kernel(cpu, KERNEL + n * 0x1000));
        world.cpus[cpu].kernel_flushes.set(KernelFlushes::AtEntry);
    }
    world.forget_logs();
    world
}

fn defer(world: &'static World, cpu: usize) {
    world.quiet(cpu, |cpu, irqs| cpu.defer_kernel_flushes(irqs));
}

fn enter(world: &'static World, cpu: usize) -> Entered {
    world.quiet(cpu, |cpu, irqs| cpu.do_deferred_flushes(irqs))
}

/// CPU 0 takes a page of the kernel away, and frees nothing: CPU 1 may hold it until it enters.
fn take_kernel_page(world: &'static World, n: u64, scope: Scope) {
    let mut gather = world.gather(Owner::Kernel);
    let page = world.memory.borrow_mut().unhook(Owner::Kernel, KERNEL + n * 0x1000).expect("a page");
    let (at, why) = (VirtAddr(KERNEL + n * 0x1000), Reason::KernelRemove);
    gather.unmap(&world.cpu(0), at, page.stride, scope, why, page.stamp);
    let _nothing = gather.flush(&world.cpu(0));
}

/// Who was interrupted: both, if CPU 0 interrupted all others.
fn told(log: &[Did]) -> Vec<u32> {
    if log.contains(&Did::IpiToOthers) { vec![1, 2] } else { interrupted(log) }
}

/// How many CPUs were spared until their entry, and by the host, in all words of the set.
fn spared(log: &[Did]) -> (u32, u32) {
    let of_word = |did: &Did| match *did {
        Did::Event(Event::Spared { until_entry, by_host }) => {
            assert_ne!(until_entry + by_host, 0, "it says that nobody was spared");
            (until_entry, by_host)
        }
        _ => (0, 0),
    };
    log.iter().map(of_word).fold((0, 0), |all, more| (all.0 + more.0, all.1 + more.1))
}

const UNTIL_ENTRY: (u32, u32) = (1, 0);

#[test]
fn a_flush_of_kernel_pages_waits_until_a_cpu_that_defers_enters() {
    for isolation in [Isolation::Off, Isolation::On] {
        let world = three(Policy { isolation, ..Policy::default() });
        defer(world, 1);
        for (n, scope) in [(0, Scope::Global), (1, Scope::NonGlobal)] {
            take_kernel_page(world, n, scope);
            let log = world.log(0);
            assert_eq!((told(&log), spared(&log)), (vec![2], UNTIL_ENTRY), "page {n}");
        }
        assert!(world.log(1).is_empty(), "it is not disturbed");
        assert_eq!(enter(world, 1), Entered::Deferring);
        let log = world.log(1);
        assert!(matches!(log[..], [Did::Invpcid(tlbkit::Invpcid::AllAndGlobals), Did::Event(Event::CaughtUp)]));
        assert_eq!(world.touch_in_kernel(1, KERNEL), None);
        // It does not defer any more.
        assert_eq!((enter(world, 1), world.log(1)), (Entered::Kernel, vec![]));
        world.map_kernel(KERNEL);
        world.revoke(0, Owner::Kernel, &[KERNEL]);
        assert_eq!(told(&world.log(0)), [1, 2]);
    }
}

#[test]
fn a_cpu_for_which_nothing_was_deferred_enters_without_a_flush() {
    let world = three(Policy::default());
    defer(world, 1);
    assert_eq!((enter(world, 1), world.log(1)), (Entered::Deferring, vec![]));
}

#[test]
fn a_kernel_that_does_not_defer_and_a_flush_that_cannot_wait_interrupt_at_once() {
    let world = three(Policy::default());
    defer(world, 1);
    world.revoke(0, Owner::Space(0), &[USER]);
    assert_eq!(told(&world.log(0)), [1, 2], "addresses of the program");
    world.free_table(0, Owner::Kernel, KERNEL);
    assert_eq!(told(&world.log(0)), [1, 2], "a table of the kernel");
    let mut batch = TlbBatch::new(Vec::new());
    batch.hold(0);
    let _nothing = batch.flush(&world.cpu(0), Reason::Migrate);
    assert_eq!(told(&world.log(0)), [1, 2], "anything");
    world.map_kernel(KERNEL);
    world.cpus[0].kernel_flushes.set(KernelFlushes::AtOnce);
    world.revoke(0, Owner::Kernel, &[KERNEL]);
    let log = world.log(0);
    assert_eq!((told(&log), spared(&log)), (vec![1, 2], (0, 0)));
}

#[test]
fn a_cpu_that_was_stopped_while_it_deferred_is_asked_when_it_is_back() {
    let world = three(Policy::default());
    defer(world, 1);
    world.cpus[1].is_online.set(false);
    world.tlb.declare_stopped(CpuId(1));
    world.bring_up(1);
    take_kernel_page(world, 0, Scope::Global);
    assert_eq!(told(&world.log(0)), [1, 2]);
}

/// A gather of a space in which a global entry was recorded is about more than kernel addresses.
#[test]
fn global_entries_of_a_space_are_flushed_at_once() {
    let world = three(Policy::default());
    defer(world, 1);
    let mut gather = world.gather(Owner::Space(0));
    world.unhook(0, &mut gather, Owner::Kernel, &[KERNEL]);
    world.finish(0, gather);
    let log = world.log(0);
    assert_eq!((told(&log), spared(&log)), (vec![1, 2], (0, 0)));
}

/// The host says that it flushes CPU 1, and does: here the test.
fn by_host(host: HostFlush) -> &'static World {
    by_host_under(Policy::default(), host)
}

fn by_host_under(policy: Policy, host: HostFlush) -> &'static World {
    let world = three(policy);
    world.cpus.iter().for_each(|core| core.kernel_flushes.set(KernelFlushes::AtOnce));
    world.cpus[0].host_flush.set(host);
    world.cpus[0].left_to_host.set(0b10);
    world
}

fn asked_host(log: &[Did]) -> Vec<(u64, HostExtent)> {
    let mut asked = Vec::<(u64, HostExtent)>::new();
    for (cpus, what) in
        log.iter().filter_map(|did| if let Did::ByHost(cpus, what) = did { Some((cpus, what)) } else { None })
    {
        match asked.last_mut() {
            Some((before, same)) if same == what => *before |= cpus, // of another word
            _ => asked.push((*cpus, *what)),
        }
    }
    asked
}

const LEFT_TO_HOST: (u32, u32) = (0, 1);

#[test]
fn a_host_is_asked_for_a_range_of_the_kernel_and_for_everything_else_whole() {
    let world = by_host(HostFlush::Translations);
    defer(world, 1); // its kernel asks nobody to
    take_kernel_page(world, 0, Scope::Global);
    let log = world.log(0);
    let page = HostExtent::Range { start: VirtAddr(KERNEL), pages: 1, bytes: 0x1000 };
    assert_eq!(asked_host(&log), [(0b110, page)]);
    assert_eq!((told(&log), spared(&log)), (vec![2], LEFT_TO_HOST));
    world.cpu(0).flush_range(world.at(0), VirtAddr(USER), 1, Stride::Page4K, Reason::WriteProtect);
    let log = world.log(0);
    assert_eq!(asked_host(&log), [(0b110, HostExtent::Everything)], "a responder may be generations behind");
    assert_eq!((told(&log), spared(&log)), (vec![2], LEFT_TO_HOST));
}

#[test]
fn freed_tables_are_left_to_a_host_that_flushes_paths() {
    let free = |world: &'static World| {
        let table = world.memory.borrow_mut().unhook_table(Owner::Kernel, KERNEL).expect("a table");
        let mut gather = world.gather(Owner::Kernel);
        gather.unmap_table(&world.cpu(0), VirtAddr(KERNEL), 0, table);
        let _nothing = gather.flush(&world.cpu(0));
        world.log(0)
    };
    let log = free(by_host(HostFlush::Translations));
    assert_eq!((told(&log), asked_host(&log)), (vec![1, 2], vec![]));
    let log = free(by_host(HostFlush::TranslationsAndPaths));
    assert_eq!((told(&log), asked_host(&log)), (vec![2], vec![(0b110, HostExtent::Everything)]));
    assert_eq!(spared(&log), LEFT_TO_HOST);
}

/// Who waits for its entry is not left to the host as well, and a host is not asked for nobody.
#[test]
fn both_ways_together_ask_each_for_its_own() {
    let world = by_host(HostFlush::TranslationsAndPaths);
    world.cpus[0].kernel_flushes.set(KernelFlushes::AtEntry);
    world.cpus[0].left_to_host.set(0b100);
    defer(world, 1);
    take_kernel_page(world, 0, Scope::Global);
    let log = world.log(0);
    assert_eq!(asked_host(&log).iter().map(|(cpus, _)| *cpus).collect::<Vec<_>>(), [0b100]);
    assert_eq!((told(&log), spared(&log)), (vec![], (1, 1)));
    defer(world, 2);
    take_kernel_page(world, 1, Scope::Global);
    let log = world.log(0);
    assert_eq!((asked_host(&log), spared(&log)), (vec![], (2, 0)));
}

/// The host takes nobody of those that it is asked for: then nobody was spared.
#[test]
fn a_host_that_flushes_nobody_spares_nobody() {
    let world = by_host(HostFlush::Translations);
    world.cpus[0].left_to_host.set(0);
    take_kernel_page(world, 0, Scope::Global);
    let log = world.log(0);
    assert_eq!((told(&log), spared(&log)), (vec![1, 2], (0, 0)));
}

/// A CPU that is to load a shared PCID does so itself, whatever the host flushes.
#[test]
fn a_move_to_a_shared_pcid_is_not_left_to_the_host() {
    let policy = Policy { broadcast: Broadcast::From { cpus: 3 }, ..Policy::DEFAULT };
    let world = World::with_broadcast(policy, &[MODERN; 2], 8);
    let space = world.space();
    (0..2).for_each(|cpu| world.switch(cpu, space));
    world.cpus[0].host_flush.set(HostFlush::TranslationsAndPaths);
    world.cpus[0].left_to_host.set(0b10);
    world.forget_logs();
    assert!(world.cpu(0).share_pcid(world.at(space)).is_some());
    let log = world.log(0);
    assert_eq!((interrupted(&log), asked_host(&log)), (vec![1], vec![]));
}

/// Where each translation is flushed at once, every one of those flushes interrupts them.
#[test]
#[cfg_attr(not(feature = "history"), ignore = "older kernels alone do this")]
fn c_23_walkers_are_interrupted_by_each_flush_of_a_gather() {
    let history = History { batching: Batching::None, ..History::NONE };
    let world = by_host_under(Policy { history, ..Policy::DEFAULT }, HostFlush::TranslationsAndPaths);
    let mut gather = world.gather(Owner::Space(0));
    gather.interrupt_walkers();
    for page in 0..2 {
        let at = VirtAddr(USER + page * 0x1000);
        gather.page(&world.cpu(0), at, Stride::Page4K, Scope::NonGlobal, Reason::FreeTable);
        assert_eq!(told(&world.log(0)), [1, 2]);
    }
    let _nothing = gather.flush(&world.cpu(0));
}

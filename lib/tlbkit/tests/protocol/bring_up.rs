//! Bring-up, hot-plug and resume: a TLB of which nothing is known, and a CPU that nobody interrupts.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tlbkit::sync::Ordering;
use tlbkit::{CpuId, CpuSetUpkeep, Event, KernelFlushes, Pcid, Policy, Stride, Tags, VirtAddr};
use tlbkit_arch::{Path, Translation};

use crate::machine::{Delivery, Did, KERNEL, MODERN, Owner, USER, World, cr3s};

/// Fills every tag of the CPU with what a boot loader, or the time before a suspend, may have left there.
fn leave_rubbish(world: &World, cpu: usize) {
    let mut memory = world.memory.borrow_mut();
    let stamp = memory.map(Owner::Kernel, KERNEL + (1 << 40) + ((cpu as u64) << 30), Stride::Page4K);
    memory.unhook(Owner::Kernel, KERNEL + (1 << 40) + ((cpu as u64) << 30));
    memory.free(&[stamp]);
    let mut tlb = world.cpus[cpu].tlb.borrow_mut();
    for pcid in (0..16).flat_map(|n| [Pcid(n), Pcid(n).user_half()]) {
        for (start, is_global) in [(USER, false), (KERNEL, false), (KERNEL, true)] {
            let held = Translation { pcid, start: VirtAddr(start), stride: Stride::Page4K, is_global };
            tlb.translations.push((held, stamp));
        }
        tlb.paths.push((Path { pcid, start: VirtAddr(USER), level: 1 }, stamp));
    }
}

#[test]
fn inv_12_a_restarted_cpu_keeps_nothing_of_what_its_tlb_held() {
    let no_invpcid = tlbkit::Features { invpcid: false, ..MODERN };
    for features in [MODERN, no_invpcid, tlbkit::Features::default()] {
        let world = World::of(Policy { tags: Tags::RoundRobin(3), ..Policy::default() }, &[features]);
        let space = world.space();
        world.map(space, USER);
        world.map_kernel(KERNEL);
        world.switch(0, space);
        world.load_kernel(0);
        assert_eq!(cr3s(&world.log(0)).pop().unwrap().keeps(), features.pcid, "its own tag was flushed at the start");
        world.switch(0, space);
        // Until CR3 is written the tables of before are walked.
        *world.cpus[0].kept.nmi.borrow_mut() = Some(Box::new(|world| leave_rubbish(world, 0)));
        world.bring_up(0);
        world.cpus[0].kept.nmi.take();
        assert!(world.cpus[0].tlb.borrow().translations.is_empty() && world.cpus[0].tlb.borrow().paths.is_empty());
        world.forget_logs();
        world.switch(0, space);
        assert!(world.log(0).contains(&Did::Event(Event::SwitchFlushed)), "it does not say that it kept anything");
        assert!(world.touch(0, USER).is_some() && world.touch_in_kernel(0, KERNEL).is_some());
    }
}

#[test]
fn inv_6_a_cpu_that_was_unplugged_misses_flushes_and_still_comes_back_clean() {
    let world = World::new(Policy::default(), 2);
    let space = world.space();
    world.map(space, USER);
    world.map_kernel(KERNEL);
    world.switch(1, space);
    assert!(world.touch(1, USER).is_some() && world.touch_in_kernel(1, KERNEL).is_some());
    world.offline(1);
    world.forget_logs();
    world.unmap(0, space, &[USER]);
    world.revoke(0, Owner::Kernel, &[KERNEL]);
    assert!(!world.log(0).iter().any(|did| matches!(did, Did::Ipi(_) | Did::IpiToOthers)), "nobody is there");
    world.bring_up(1);
    world.switch(1, space);
    assert_eq!((world.touch(1, USER), world.touch_in_kernel(1, KERNEL)), (None, None));
}

#[test]
fn who_is_offline_or_stopped_is_not_among_the_online_cpus() {
    let world = World::new(Policy::default(), 2);
    let is_online = || world.tlb.online().contains(CpuId(1), Ordering::Relaxed); // Relaxed: one thread
    let leave: [fn(&'static World); 2] = [|world| world.offline(1), |world| world.tlb.declare_stopped(CpuId(1))];
    for leave in leave {
        assert!(is_online());
        leave(world);
        assert!(!is_online());
        world.bring_up(1);
    }
}

#[test]
fn inv_7_a_cpu_answers_what_it_was_asked_before_it_is_offline() {
    let world = World::new(Policy::default(), 2);
    world.map_kernel(KERNEL);
    world.delivery.set(Delivery::Queued);
    ask_second_cpu(world, KERNEL);
    world.offline(1);
    assert!(world.log(1).contains(&Did::Event(Event::AnswerEnd(CpuId(0)))));
}

/// It restarts out of user mode, by a watchdog for instance, and nobody has declared it stopped.
#[test]
fn a_cpu_that_was_not_to_be_disturbed_ends_what_it_had_asked_when_it_restarts() {
    let world = World::new(Policy::default(), 2);
    world.cpus.iter().for_each(|core| core.kernel_flushes.set(KernelFlushes::AtEntry));
    world.map_kernel(KERNEL);
    world.delivery.set(Delivery::Queued);
    ask_second_cpu(world, KERNEL);
    world.quiet(0, |cpu, irqs| cpu.defer_kernel_flushes(irqs));
    world.bring_up(0);
    assert!(world.log(1).contains(&Did::Event(Event::AnswerEnd(CpuId(0)))));
}

#[test]
fn inv_7_a_trimming_flush_does_not_wait_for_a_cpu_that_is_offline() {
    let upkeep = CpuSetUpkeep::Trimmed { every: 1 };
    let world = World::new(Policy { cpu_set: upkeep, ..Policy::default() }, 2);
    let space = world.space();
    world.map(space, USER);
    world.switch(1, space);
    world.offline(1);
    world.switch(0, space);
    world.unmap(0, space, &[USER]);
}

/// CPU 0 takes `page` of the kernel away, asks CPU 1, and does not wait.
fn ask_second_cpu(world: &'static World, page: u64) {
    let mut gather = world.gather(Owner::Kernel);
    world.unhook(0, &mut gather, Owner::Kernel, &[page]);
    drop(world.quiet(0, |cpu, _| gather.issue(&cpu)));
    assert_eq!(asked_by_first(world), [1]);
}

fn asked_by_first(world: &'static World) -> Vec<u32> {
    let mut asked = Vec::new();
    world.cpu(0).missing().for_each(|cpu| asked.push(cpu.0));
    asked
}

/// What CPU 1 executes when it is brought up after it was stopped by force.
fn stopped_and_back(world: &'static World) -> Vec<Did> {
    world.cpus[1].is_online.set(false);
    world.tlb.declare_stopped(CpuId(1));
    world.forget_logs();
    world.bring_up(1);
    world.log(1)
}

/// It flushes everything as it is, so a request of before adds nothing.
#[test]
fn what_was_asked_of_a_cpu_that_stopped_is_not_carried_out_when_it_is_back() {
    let world = World::new(Policy::default(), 2);
    world.map_kernel(KERNEL);
    world.delivery.set(Delivery::Queued);
    let unasked = stopped_and_back(world);
    ask_second_cpu(world, KERNEL);
    assert_eq!(stopped_and_back(world), unasked);
    assert_eq!(asked_by_first(world), [] as [u32; 0]);
}

/// It had shown itself before it stopped, so others asked it: it is not new any more.
#[test]
fn what_was_asked_of_a_cpu_that_stopped_while_it_first_came_is_not_carried_out_either() {
    let world = World::before_bring_up(Policy::default(), &[MODERN; 2]);
    world.bring_up(0);
    world.map_kernel(KERNEL);
    world.delivery.set(Delivery::Queued);
    // Before its CR3 write: in the midst of the bring-up.
    *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(|world| {
        ask_second_cpu(world, KERNEL);
        std::panic::resume_unwind(Box::new("stopped"));
    }));
    assert!(catch_unwind(AssertUnwindSafe(|| world.bring_up(1))).is_err());
    world.cpus[1].kept.nmi.take();
    world.cpus[1].irqs.set(true);
    let back = stopped_and_back(world);
    assert_eq!(asked_by_first(world), [] as [u32; 0]);
    assert_eq!(back, stopped_and_back(world));
}

//! CPUs that do not answer in time: named, asked again, or gone.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use tlbkit::sync::Ordering;
use tlbkit::{CpuId, CpuSetUpkeep, Destroyed, Late, LazyReferences, Policy, Reason, Stride, VirtAddr};

use crate::machine::{Delivery, Did, Fate, KERNEL, MODERN, Owner, REFERENCES, USER, World, interrupted};
use crate::misuse::complaint;

/// Two CPUs run a space, and no interrupt arrives by itself.
fn two(policy: Policy) -> (&'static World, usize) {
    let world = World::new(policy, 2);
    let space = world.space();
    world.map(space, USER);
    (0..2).for_each(|cpu| world.switch(cpu, space));
    world.touch(1, USER);
    world.delivery.set(Delivery::Lost);
    world.forget_logs();
    (world, space)
}

/// A CPU is stopped by force.
fn stop() {
    std::panic::resume_unwind(Box::new("stopped"));
}

/// What happens at the `turn`th turn of the next wait.
fn at_turn(world: &World, turn: usize, act: impl FnOnce(&'static World) + 'static) {
    (0..turn).for_each(|_| world.plan(|_| ()));
    world.plan(act);
}

#[test]
fn a_late_cpu_is_named_after_the_bound_that_the_kernel_set() {
    let (world, space) = two(Policy::default());
    at_turn(world, 16, |world| world.quiet(1, |cpu, irqs| cpu.answer(irqs)));
    world.unmap(0, space, &[USER]);
    assert_eq!(*world.cpus[0].was_late.borrow(), [1, 1], "after 8 turns and after 16");
    assert_eq!(world.touch(1, USER), None);
}

#[test]
fn c_63_a_lost_interrupt_is_sent_again_and_the_request_carried_out_once() {
    let (world, space) = two(Policy::default());
    world.cpus[0].about_late.set(Late::AskAgain);
    at_turn(world, 5, |world| world.delivery.set(Delivery::AtOnce));
    world.unmap(0, space, &[USER]);
    let sent = world.log(0).iter().filter(|did| matches!(did, Did::Ipi(1))).count();
    assert_eq!(sent, 2);
    assert_eq!(world.touch(1, USER), None);
    world.delivery.set(Delivery::Lost);
    world.cpus[0].about_late.set(Late::Wait);
    world.map(space, USER + 0x1000);
    at_turn(world, 0, |world| world.quiet(1, |cpu, irqs| cpu.answer(irqs)));
    world.unmap(0, space, &[USER + 0x1000]);
}

/// CPU 0 has issued a flush that CPU 1 must answer, whose interrupt was lost, and waits for CPU 2 with another flush.
#[test]
fn c_63_a_wait_names_no_cpu_that_it_has_not_asked_again() {
    let world = World::new(Policy::default(), 3);
    let [issued, awaited] = [world.space(), world.space()];
    for (cpu, space) in [(1, issued), (2, awaited)] {
        world.map(space, USER);
        world.switch(cpu, space);
    }
    world.delivery.set(Delivery::Lost);
    world.cpus[0].about_late.set(Late::AskAgain);
    world.cpus[0].patience_rounds.set(3);
    let mut gather = world.gather(Owner::Space(issued));
    world.unhook(0, &mut gather, Owner::Space(issued), &[USER]);
    let pending = gather.issue(&world.cpu(0));
    let said = complaint(|| world.unmap(0, awaited, &[USER]));
    assert_eq!((interrupted(&world.log(0)), said.as_str()), (vec![1, 2, 2, 2, 2], "a flush is not answered by CPU 2"));
    drop(pending);
}

/// `back` is the turn of the sender's wait at which the stopped CPU is brought up again.
fn stopped_while_asked(target: Owner, back: Option<usize>) {
    let (world, space) = two(Policy::default());
    world.map_kernel(KERNEL);
    world.touch_in_kernel(1, KERNEL);
    let va = if target == Owner::Kernel { KERNEL } else { USER };
    at_turn(world, 0, |world| {
        world.cpus[1].is_online.set(false);
        world.tlb.declare_stopped(CpuId(1));
    });
    if let Some(turns) = back {
        at_turn(world, turns, |world| world.bring_up(1));
    }
    world.revoke(0, target, &[va]);
    if back.is_none() {
        assert_eq!(*world.cpus[0].was_late.borrow(), [], "it was withdrawn, so nobody is missing");
        world.bring_up(1);
    }
    world.switch(1, space);
    let seen = if target == Owner::Kernel { world.touch_in_kernel(1, va) } else { world.touch(1, va) };
    assert_eq!(seen, None);
}

#[test]
fn inv_7_a_cpu_that_stops_while_it_is_asked_is_not_waited_for_and_comes_back_clean() {
    for target in [Owner::Kernel, Owner::Space(0)] {
        stopped_while_asked(target, None);
        stopped_while_asked(target, Some(2));
    }
}

#[test]
fn a_cpu_that_was_stopped_while_it_asked_asks_again_and_waits_before_it_returns() {
    let (world, space) = two(Policy::default());
    at_turn(world, 3, |_| stop());
    assert!(catch_unwind(AssertUnwindSafe(|| world.unmap(0, space, &[USER]))).is_err());
    world.tlb.declare_stopped(CpuId(0));
    world.forget_logs();
    at_turn(world, 2, |world| {
        assert!(world.log(0).contains(&Did::Ipi(1)), "it may have stopped before the interrupt");
        assert_eq!(world.log(1), []);
        world.quiet(1, |cpu, irqs| cpu.answer(irqs));
    });
    world.bring_up(0);
    assert_ne!(world.log(1), [], "the request was carried out");
    world.forget_logs();
    world.quiet(1, |cpu, irqs| cpu.answer(irqs));
    assert_eq!(world.log(1), [], "once");
    world.delivery.set(Delivery::AtOnce);
    world.cpu(0).flush_range(world.at(space), VirtAddr(USER), 1, Stride::Page4K, Reason::Fork); // its wait is over
}

/// It has interrupted CPU 1, in whose answer it stops, and has not left its hint with CPU 2 yet.
#[test]
fn a_cpu_that_was_stopped_before_its_last_hint_leaves_it_when_it_is_back() {
    let world = World::new(Policy::default(), 4);
    let space = world.space();
    world.map(space, USER);
    (0..3).for_each(|cpu| world.switch(cpu, space));
    assert!(world.touch(2, USER).is_some());
    *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(|_| stop()));
    let mut gather = world.gather(Owner::Space(space));
    gather.flush_everything();
    assert!(catch_unwind(AssertUnwindSafe(|| world.finish(0, gather))).is_err());
    world.cpus[1].kept.nmi.take();
    world.cpus[..2].iter().for_each(|core| core.irqs.set(true));
    world.tlb.declare_stopped(CpuId(0));
    world.forget_logs();
    world.bring_up(0);
    assert_eq!([1, 2].map(|cpu| world.log(cpu).is_empty()), [false; 2], "each has answered");
}

/// The target would clear the bit of the sender's next request when it is done with this one.
#[test]
fn inv_6_a_cpu_that_was_stopped_is_not_back_while_its_request_is_carried_out() {
    let (world, space) = two(Policy::default());
    let waited = Rc::new(Cell::new(false));
    let note = Rc::clone(&waited);
    at_turn(world, 0, move |world| {
        // Before its CR3 write: in the midst of the answer.
        *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(move |world| {
            world.cpus[0].is_online.set(false);
            world.tlb.declare_stopped(CpuId(0));
            at_turn(world, 3, |_| stop());
            note.set(catch_unwind(AssertUnwindSafe(|| world.bring_up(0))).is_err());
        }));
        world.quiet(1, |cpu, irqs| cpu.answer(irqs));
        stop();
    });
    let mut gather = world.gather(Owner::Space(space));
    world.unhook(0, &mut gather, Owner::Space(space), &[USER]);
    gather.flush_everything();
    assert!(catch_unwind(AssertUnwindSafe(|| world.finish(0, gather))).is_err());
    assert!(waited.get(), "it was back in the midst of the answer");
    world.cpus[1].kept.nmi.take();
    world.cpus[0].irqs.set(true);
    world.bring_up(0);
    world.cpu(0).missing().for_each(|cpu| panic!("{cpu:?} is still asked"));
}

#[test]
fn inv_7_a_cpu_that_has_left_reads_no_mailbox() {
    let (world, space) = two(Policy::default());
    at_turn(world, 0, |world| {
        world.cpus[1].is_online.set(false);
        world.tlb.declare_stopped(CpuId(1));
        world.forget_logs();
        world.quiet(1, |cpu, irqs| cpu.answer(irqs));
        assert_eq!(world.log(1), [], "an interrupt that came late");
    });
    world.unmap(0, space, &[USER]);
}

/// More than 512 CPUs: when it stops over the first request it has taken the top of its inbox and not yet the word of
/// the second. No other sender finds that word empty again.
#[test]
fn inv_7_a_cpu_that_stopped_while_it_answered_is_interrupted_as_before_when_it_is_back() {
    const SENDERS: [usize; 2] = [1, 599];
    let world = World::new(Policy::default(), 600);
    let space = world.space();
    world.map(space, USER);
    world.map(space, USER + 0x1000);
    [0].iter().chain(&SENDERS).for_each(|&cpu| world.switch(cpu, space));
    world.delivery.set(Delivery::Queued);
    at_turn(world, 0, move |world| world.unmap(SENDERS[1], space, &[USER + 0x1000]));
    at_turn(world, 0, |world| {
        *world.cpus[0].kept.nmi.borrow_mut() = Some(Box::new(|_| std::panic::resume_unwind(Box::new("stopped"))));
        assert!(catch_unwind(AssertUnwindSafe(|| world.deliver(0))).is_err(), "it was not asked");
        world.cpus[0].is_online.set(false);
        world.tlb.declare_stopped(CpuId(0));
    });
    world.unmap(SENDERS[0], space, &[USER]);
    world.cpus[0].kept.nmi.take();
    world.cpus[0].irqs.set(true);
    world.bring_up(0);
    world.delivery.set(Delivery::AtOnce);
    for sender in SENDERS {
        world.map(space, USER);
        world.switch(0, space);
        world.touch(0, USER);
        world.forget_logs();
        world.unmap(sender, space, &[USER]);
        assert!(interrupted(&world.log(sender)).contains(&0), "cpu{sender} did not interrupt it");
    }
}

#[test]
fn a_cpu_that_was_never_brought_up_is_told_nothing() {
    let world = World::new(Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 1 }, ..Policy::default() }, 3);
    world.tlb.declare_stopped(CpuId(2));
    world.map_kernel(KERNEL);
    world.delivery.set(Delivery::AtOnce);
    world.forget_logs();
    world.revoke(0, Owner::Kernel, &[KERNEL]);
    assert!(!world.log(0).iter().any(|did| matches!(did, Did::Ipi(2))));
}

#[test]
#[should_panic(expected = "CPU 1 runs a space, and was not brought up")]
fn a_cpu_that_never_came_up_runs_no_space_in_any_build() {
    let world = World::before_bring_up(Policy::default(), &[MODERN; 2]);
    world.bring_up(0);
    world.switch(1, world.space());
}

#[test]
#[should_panic(expected = "CPU 1 runs a space, and was not brought up")]
fn a_cpu_that_is_offline_runs_no_space_in_any_build() {
    let world = World::new(Policy::default(), 2);
    let space = world.space();
    world.switch(1, space);
    world.offline(1);
    world.switch(1, space); // not even one that it ran before
}

#[cfg(all(debug_assertions, not(feature = "observe")))]
#[test]
#[should_panic(expected = "CPU 2 runs a space, and was not brought up")]
fn a_cpu_that_was_not_brought_up_runs_no_space() {
    let world = World::new(Policy::default(), 3);
    let space = world.space();
    world.tlb.declare_stopped(CpuId(2));
    world.switch(2, space);
}

#[test]
fn c_25_a_cpu_that_resumes_drops_the_reference_it_held_lazily() {
    for &lazy_references in REFERENCES.iter().filter(|&&one| one != LazyReferences::ShotDown) {
        let (world, space) = two(Policy { lazy_references, ..Policy::default() });
        world.delivery.set(Delivery::AtOnce);
        world.switch(0, world.space());
        world.lazy(1);
        assert_eq!(world.destroy(0, space), Destroyed::WhenUnreferenced);
        world.bring_up(1);
        assert_eq!(world.memory.borrow().roots[space], Fate::Freed);
    }
}

fn stop_in_a_switch(world: &'static World, cpu: usize, to: usize) {
    *world.cpus[cpu].kept.nmi.borrow_mut() = Some(Box::new(|_| stop()));
    assert!(catch_unwind(AssertUnwindSafe(|| world.switch(cpu, to))).is_err());
    world.cpus[cpu].kept.nmi.take();
    world.cpus[cpu].is_online.set(false);
}

/// CPU 1 is stopped between two spaces, in the set of the first one, which no CPU runs any more. There are others.
fn stopped_in_a_switch(cpus: usize) -> (&'static World, usize) {
    let world = World::new(Policy::default(), cpus);
    let (space, other) = (world.space(), world.space());
    world.switch(1, space);
    stop_in_a_switch(world, 1, other);
    world.delivery.set(Delivery::Lost);
    world.forget_logs();
    (world, space)
}

#[test]
fn c_63_a_cpu_that_stopped_in_a_switch_is_named_by_the_destroyer_that_waits_for_it() {
    let (world, space) = stopped_in_a_switch(3);
    world.cpus[0].patience_rounds.set(3);
    let said = complaint(|| _ = world.cpu(0).destroy_later(world.at(space)));
    assert_eq!(said, "a switch is not ended by CPU 1");
    assert_eq!(*world.cpus[0].was_late.borrow(), [1; 3], "as often as the kernel said");
    assert_eq!(interrupted(&world.log(0)), [], "it would not take an interrupt");
}

/// The destroyer's interrupts are off. Who waits for its answer would otherwise name it, though it is alive.
#[test]
fn inv_7_a_destroyer_that_waits_for_a_switch_answers_and_goes_on_once_the_cpu_is_declared_stopped() {
    let (world, space) = stopped_in_a_switch(3);
    world.plan(|world| {
        let mut gather = world.gather(Owner::Kernel);
        gather.flush_everything();
        drop(gather.issue(&world.cpu(2)));
    });
    at_turn(world, 18, |world| {
        assert_eq!(world.cpu(2).missing().to_string(), "CPU 1", "CPU 0 has answered");
        world.tlb.declare_stopped(CpuId(1));
    });
    assert_eq!(world.cpu(0).destroy_later(world.at(space)), Destroyed::Now);
    assert_eq!(*world.cpus[0].was_late.borrow(), [1, 1], "after 8 turns and after 16");
}

/// CPU 0 leaves while the destroyer, which has counted it, waits for CPU 1. The notice finds it elsewhere, and it looks
/// for it in its next switch.
#[test]
fn c_25_a_cpu_that_leaves_before_its_notice_comes_is_counted_once_and_its_late_notice_means_nothing() {
    let leave: [fn(&'static World); 2] = [|world| world.load_kernel(0), |world| world.switch(0, 1)];
    for leave in leave {
        let (world, space) = stopped_in_a_switch(3);
        world.switch(0, space);
        world.lazy(0);
        at_turn(world, 0, move |world| {
            leave(world);
            world.tlb.declare_stopped(CpuId(1));
        });
        assert_eq!(world.destroy(2, space), Destroyed::Now);
        let left = world.cpus[0].kept.task.get();
        world.switch(0, world.space()); // it does not look at a space that is gone
        let is_member = |space| world.at(space).cpus().contains(CpuId(0), Ordering::Relaxed); // Relaxed: one thread
        assert!(left.is_none_or(is_member), "it may hold entries of the space that lives");
    }
}

/// CPUs 0 and 2 are counted while the destroyer waits for CPU 1, and get notices. While it waits for CPU 0, which stops
/// on its way as CPU 1 did, CPU 2 leaves: it has found its notice, so the reference is its own to drop.
#[test]
fn c_25_a_cpu_that_leaves_after_its_notice_came_is_counted_once() {
    let (world, space) = stopped_in_a_switch(4);
    for cpu in [0, 2] {
        world.switch(cpu, space);
        world.lazy(cpu);
    }
    at_turn(world, 0, |world| {
        stop_in_a_switch(world, 0, 1);
        world.tlb.declare_stopped(CpuId(1));
    });
    world.plan(|world| {
        world.load_kernel(2);
        world.tlb.declare_stopped(CpuId(0));
    });
    assert_eq!(world.destroy(3, space), Destroyed::Now);
}

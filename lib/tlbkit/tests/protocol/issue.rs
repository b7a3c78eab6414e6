//! Issue now, wait later: what comes out when, several requests at once, and a wait on another CPU.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tlbkit::sync::{AtomicU64, Ordering};
use tlbkit::{CpuId, CpuSetUpkeep, Late, Pending, Policy};

use crate::machine::{Delivery, Did, KERNEL, Owner, USER, World, interrupted, invlpgs};

/// Requests of one CPU that can be outstanding.
pub(crate) const RING: usize = if cfg!(narrow_sets) { 2 } else { 4 };

pub(crate) type Issued = Pending<'static, &'static [AtomicU64], Vec<usize>>;

pub(crate) const fn page(n: usize) -> u64 {
    USER + n as u64 * 0x1000
}

/// CPUs that run a space of `pages` pages and have used them all; interrupts wait until they are delivered.
pub(crate) fn several(cpus: usize, pages: usize, policy: Policy) -> &'static World {
    let world = World::new(policy, cpus);
    let space = world.space();
    (0..pages).for_each(|n| _ = world.map(space, page(n)));
    for cpu in 0..cpus {
        world.switch(cpu, space);
        (0..pages).for_each(|n| _ = world.touch(cpu, page(n)));
        world.enter_kernel(cpu);
    }
    world.delivery.set(Delivery::Queued);
    world.forget_logs();
    world
}

pub(crate) fn two() -> &'static World {
    several(2, 2 * RING, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() })
}

/// `cpu` takes page `n` away, with interrupts off, and does not wait.
pub(crate) fn issue(world: &'static World, cpu: usize, n: usize) -> Issued {
    let mut gather = world.gather(Owner::Space(0));
    world.unhook(cpu, &mut gather, Owner::Space(0), &[page(n)]);
    world.quiet(cpu, |c, _| gather.issue(&c))
}

pub(crate) fn wait(world: &'static World, cpu: usize, pending: Issued) {
    let freed = pending.wait(&world.cpu(cpu)).into_frames();
    assert_eq!(freed.len(), 1);
    world.memory.borrow_mut().free(&freed);
    world.audit();
}

pub(crate) fn answer(world: &'static World, cpu: usize) {
    world.quiet(cpu, |c, irqs| c.answer(irqs));
}

#[test]
fn inv_6_an_issued_flush_waits_for_nobody_and_its_wait_for_all() {
    let world = two();
    let mut pending = issue(world, 0, 0);
    assert_eq!(interrupted(&world.log(0)), [1]);
    assert!(!pending.is_done(&world.cpu(0)), "cpu1 has not answered");
    assert!(world.touch(1, page(0)).is_some(), "and goes on with what it holds");
    world.enter_kernel(1);
    wait(world, 0, pending);
    assert_eq!(world.touch(1, page(0)), None);
}

#[test]
fn a_flush_that_needs_nobody_is_over_when_it_was_issued() {
    let world = two();
    world.switch(1, world.space());
    let mut pending = issue(world, 0, 0);
    world.switch(1, 0);
    world.finish(1, world.gather(Owner::Space(0)));
    assert_eq!(interrupted(&world.log(1)), [], "and owes nothing");
    assert!(pending.is_done(&world.cpu(0)));
    world.quiet(0, |_, _| wait(world, 0, pending));
    let nothing = world.gather(Owner::Space(0)).issue(&world.cpu(0));
    assert_eq!(nothing.wait(&world.cpu(0)).into_frames(), []);
}

#[test]
fn a_flush_of_a_space_that_one_cpu_alone_uses_is_over_when_it_was_issued() {
    let world = several(1, 2, Policy::default());
    let mut pending = issue(world, 0, 0);
    assert!(pending.is_done(&world.cpu(0)));
    assert_eq!((invlpgs(&world.log(0)), world.touch(0, page(0))), (vec![page(0)], None));
    wait(world, 0, pending);
}

#[test]
fn several_requests_are_outstanding_and_one_interrupt_answers_them_all() {
    let world = two();
    let issued: Vec<_> = (0..RING).map(|n| issue(world, 0, n)).collect();
    assert_eq!(interrupted(&world.log(0)), [1], "the first hint has its interrupt on the way");
    answer(world, 1);
    for mut pending in issued.into_iter().rev() {
        assert!(pending.is_done(&world.cpu(0)));
        world.quiet(0, |_, _| wait(world, 0, pending)); // it does not wait, so interrupts may be off
    }
    (0..RING).for_each(|n| assert_eq!(world.touch(1, page(n)), None));
}

/// The first request was answered, and with it the hint is gone: the next one's must lead to its own mailbox.
#[test]
fn inv_6_a_hint_leads_to_each_mailbox() {
    for answered in 0..RING {
        let world = two();
        let mut issued: Vec<_> = (0..answered).map(|n| issue(world, 0, n)).collect();
        answer(world, 1);
        // The mailboxes were not looked at since, so the next request takes the first that it finds empty.
        issued.extend((answered..RING).map(|n| issue(world, 0, n)));
        answer(world, 1);
        issued.into_iter().for_each(|pending| wait(world, 0, pending));
    }
}

/// CPU 2 answers none, so each finds another mailbox.
#[test]
fn inv_6_each_mailbox_says_what_its_own_request_is_about() {
    let world = several(3, RING, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    for n in 0..RING {
        drop(issue(world, 0, n));
        answer(world, 1);
        assert_eq!(invlpgs(&world.log(1)), [page(n)]);
    }
}

/// A mailbox that is free again is used while a later one is still being read: the first must tell of the later one.
#[test]
fn inv_6_the_first_mailbox_tells_of_the_others_when_it_is_used_again() {
    let world = several(3, 4, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    world.switch(2, world.space());
    let first = issue(world, 0, 0); // asks cpu1
    world.switch(2, 0);
    let second = issue(world, 0, 1); // asks both
    answer(world, 2);
    world.switch(2, world.space());
    wait(world, 0, first);
    let third = issue(world, 0, 2);
    wait(world, 0, third);
    wait(world, 0, second);
}

/// CPU 1 unmaps the page that CPU 0 has taken out already, and finds nothing: it must not go on with what it holds.
#[test]
fn c_28_who_finds_the_entry_gone_flushes_before_the_issued_flush_is_over() {
    let world = two();
    let pending = issue(world, 0, 0);
    assert!(world.touch(1, page(0)).is_some(), "it has not answered");
    world.enter_kernel(1);
    world.delivery.set(Delivery::AtOnce);
    let nothing = world.gather(Owner::Space(0));
    world.finish(1, nothing);
    assert_eq!(world.touch(1, page(0)), None);
    world.enter_kernel(1);
    wait(world, 0, pending);
}

/// The same in the kernel's half: CPU 1 finds a kernel page gone that CPU 0 has issued.
#[test]
fn c_28_who_finds_a_kernel_entry_gone_flushes_before_the_issued_flush_is_over() {
    let world = two();
    world.map_kernel(KERNEL);
    assert!([0, 1].iter().all(|&cpu| world.touch_in_kernel(cpu, KERNEL).is_some()));
    let mut gather = world.gather(Owner::Kernel);
    world.unhook(0, &mut gather, Owner::Kernel, &[KERNEL]);
    let pending = world.quiet(0, |c, _| gather.issue(&c));
    assert!(world.touch_in_kernel(1, KERNEL).is_some(), "it has not answered");
    world.delivery.set(Delivery::AtOnce);
    world.finish(1, world.gather(Owner::Kernel));
    assert_eq!(world.touch_in_kernel(1, KERNEL), None);
    wait(world, 0, pending);
    world.forget_logs();
    world.finish(1, world.gather(Owner::Kernel));
    assert_eq!(interrupted(&world.log(1)), [], "nothing is owed any more");
}

/// The same for one that takes a kernel page of its own besides: kernel addresses have no generation that would show it
/// what it has missed.
#[test]
fn c_28_who_finds_a_kernel_entry_gone_and_takes_another_one_flushes_both() {
    let world = two();
    let (gone, own) = (KERNEL, KERNEL + 0x1000);
    for va in [gone, own] {
        world.map_kernel(va);
        assert!([0, 1].iter().all(|&cpu| world.touch_in_kernel(cpu, va).is_some()));
    }
    let mut gather = world.gather(Owner::Kernel);
    world.unhook(0, &mut gather, Owner::Kernel, &[gone]);
    let pending = world.quiet(0, |c, _| gather.issue(&c));
    world.delivery.set(Delivery::AtOnce);
    world.revoke(1, Owner::Kernel, &[gone, own]);
    assert_eq!([gone, own].map(|va| world.touch_in_kernel(1, va)), [None; 2]);
    wait(world, 0, pending);
    world.map_kernel(own);
    world.forget_logs();
    world.revoke(1, Owner::Kernel, &[own]);
    assert_eq!(invlpgs(&world.log(0)), [own], "nothing is owed any more");
}

#[test]
fn inv_9_a_pending_flush_that_is_dropped_leaks_and_its_mailbox_is_found_free() {
    let world = two();
    for n in 0..2 * RING {
        let gather = {
            let mut gather = world.gather(Owner::Space(0));
            world.unhook(0, &mut gather, Owner::Space(0), &[page(n)]);
            gather
        };
        drop(gather.issue(&world.cpu(0)));
        assert_eq!(interrupted(&world.log(0)), [1], "flush {n} found a mailbox");
        answer(world, 1);
    }
}

#[test]
fn c_64_a_request_that_finds_no_mailbox_is_asked_by_its_wait() {
    let world = several(3, 2 * RING, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    world.switch(2, world.space()); // no trim is due, so nobody asks it
    let issued: Vec<_> = (0..RING).map(|n| issue(world, 0, n)).collect();
    world.forget_logs();
    let last = issue(world, 0, RING);
    assert_eq!(interrupted(&world.log(0)), [], "nobody was asked");
    assert_eq!(world.touch(0, page(RING)), None, "but this CPU has flushed");
    world.enter_kernel(0);
    world.plan(|world| answer(world, 1));
    wait(world, 0, last);
    assert_eq!(interrupted(&world.log(0)), [1]);
    assert_eq!(world.touch(1, page(RING)), None);
    issued.into_iter().for_each(|pending| wait(world, 0, pending));
}

#[test]
fn c_64_polling_asks_as_soon_as_a_mailbox_is_free() {
    let world = two();
    let issued: Vec<_> = (0..RING).map(|n| issue(world, 0, n)).collect();
    let mut last = issue(world, 0, RING);
    assert!(!last.is_done(&world.cpu(0)));
    answer(world, 1);
    assert!(!last.is_done(&world.cpu(0)), "it is asked now, and not answered");
    answer(world, 1);
    assert!(last.is_done(&world.cpu(0)));
    issued.into_iter().chain([last]).for_each(|pending| wait(world, 0, pending));
}

/// The CPU that is asked late has answered all that was asked before, so it knows of nothing newer.
#[test]
fn inv_6_who_is_asked_by_polling_flushes_what_was_announced_long_before() {
    let world = several(3, 2 * RING, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    let issued: Vec<_> = (0..RING).map(|n| issue(world, 0, n)).collect();
    answer(world, 2);
    assert!(world.touch(2, page(RING)).is_some());
    let mut last = issue(world, 0, RING);
    assert!(!last.is_done(&world.cpu(0)), "no mailbox is free before CPU 1 has answered");
    answer(world, 1);
    assert!(!last.is_done(&world.cpu(0)), "it is asked now, and not answered");
    answer(world, 1);
    answer(world, 2);
    assert!(last.is_done(&world.cpu(0)));
    issued.into_iter().chain([last]).for_each(|pending| wait(world, 0, pending));
    assert_eq!([1, 2].map(|cpu| world.touch(cpu, page(RING))), [None; 2]);
}

#[test]
fn a_flush_that_finds_no_mailbox_waits_for_one() {
    let world = two();
    let issued: Vec<_> = (0..RING).map(|n| issue(world, 0, n)).collect();
    world.unmap(0, 0, &[page(RING)]);
    assert_eq!(world.touch(1, page(RING)), None);
    world.enter_kernel(1);
    issued.into_iter().for_each(|pending| wait(world, 0, pending));
}

/// A CPU that runs something else takes itself out of the set of the request's space, which may be gone if nobody
/// waits.
#[test]
fn a_request_that_trims_is_asked_by_its_wait() {
    let world = several(3, 1, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 1 }, ..Policy::default() });
    world.switch(2, world.space());
    let pending = issue(world, 0, 0);
    assert_eq!(interrupted(&world.log(0)), []);
    assert!(world.at(0).cpus().contains(CpuId(2), std::sync::atomic::Ordering::Relaxed)); // Relaxed: one thread
    wait(world, 0, pending);
    assert!(!world.at(0).cpus().contains(CpuId(2), std::sync::atomic::Ordering::Relaxed)); // Relaxed: one thread
}

#[test]
#[should_panic(expected = "with interrupts off")]
fn inv_7_waiting_for_an_issued_flush_with_interrupts_off_is_an_error() {
    let world = two();
    let pending = issue(world, 0, 0);
    answer(world, 1); // it would not have to wait: the mistake is seen all the same
    world.quiet(0, |_, _| wait(world, 0, pending));
}

#[test]
#[should_panic(expected = "with interrupts off")]
fn inv_7_waiting_for_a_mailbox_with_interrupts_off_is_an_error() {
    let world = two();
    let _issued: Vec<_> = (0..RING).map(|n| issue(world, 0, n)).collect();
    world.plan(|_| panic!("it waits"));
    world.quiet(0, |_, _| world.unmap(0, 0, &[page(RING)]));
}

#[test]
fn inv_7_nothing_is_issued_inside_the_wait_of_another() {
    let world = two();
    world.plan(|world| {
        let inside = catch_unwind(AssertUnwindSafe(|| drop(issue(world, 0, 1))));
        assert!(inside.is_err());
        world.cpus[0].irqs.set(true);
    });
    let pending = issue(world, 0, 0);
    wait(world, 0, pending);
}

#[test]
fn a_task_may_wait_on_another_cpu_and_answers_there() {
    let world = two();
    let pending = issue(world, 0, 0);
    wait(world, 1, pending); // its own wait answers: no interrupt is delivered before
    assert_eq!(world.touch(1, page(0)), None);
}

/// The mailbox has been used again since: the outbox speaks of another request.
#[test]
fn inv_7_a_wait_elsewhere_is_over_when_the_mailbox_was_used_again() {
    let world = several(3, 2, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    let mut first = issue(world, 0, 0);
    [1, 2].iter().for_each(|&cpu| answer(world, cpu));
    let mut second = issue(world, 0, 1);
    assert!(!second.is_done(&world.cpu(2)));
    assert!(first.is_done(&world.cpu(2)));
    wait(world, 2, first);
    wait(world, 0, second);
}

/// A waiter elsewhere takes nothing back: the bit could be that of the next request.
#[test]
fn c_62_a_wait_elsewhere_ends_when_a_responder_has_left_and_takes_nothing_back() {
    let world = several(3, 2, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    let mut pending = issue(world, 0, 0);
    answer(world, 2);
    world.cpus[1].is_online.set(false);
    world.tlb.declare_stopped(CpuId(1));
    // Relaxed: one thread.
    let matrix = || world.matrix.iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let before = matrix();
    assert!(pending.is_done(&world.cpu(2)));
    wait(world, 2, pending);
    assert_eq!(matrix(), before, "cpu0 withdraws it when it needs the mailbox, or cpu1 forgets it");
    world.bring_up(1);
    world.cpu(0).missing().for_each(|cpu| panic!("{cpu:?} is still asked"));
}

#[test]
fn c_62_a_mailbox_is_free_when_the_last_that_it_asks_has_left() {
    let world = several(3, RING + 1, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    world.switch(2, world.space());
    (0..RING).for_each(|n| drop(issue(world, 0, n)));
    world.cpus[1].is_online.set(false);
    world.tlb.declare_stopped(CpuId(1));
    world.switch(2, 0);
    world.forget_logs();
    drop(issue(world, 0, RING));
    assert_eq!(interrupted(&world.log(0)), [2]);
}

#[test]
fn c_63_a_late_cpu_is_asked_again_by_whoever_waits() {
    for waiter in [0, 2] {
        let world = several(3, 1, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
        world.cpus[waiter].about_late.set(Late::AskAgain);
        world.delivery.set(Delivery::Lost);
        let pending = issue(world, 0, 0);
        world.delivery.set(Delivery::Queued);
        answer(world, 2);
        world.forget_logs();
        wait(world, waiter, pending);
        assert_eq!(*world.cpus[waiter].was_late.borrow(), [1]);
        assert!(world.log(waiter).contains(&Did::Ipi(1)), "cpu{waiter}");
    }
}

/// Its mailboxes are being read while it is away; it is not back before they are free.
#[test]
fn inv_6_a_cpu_that_comes_back_ends_all_that_it_had_issued() {
    let world = two();
    let issued: Vec<_> = (0..RING).map(|n| issue(world, 0, n)).collect();
    world.tlb.declare_stopped(CpuId(0));
    world.forget_logs();
    world.plan(|world| {
        assert!(world.log(0).contains(&Did::Ipi(1)), "it asks again");
        answer(world, 1);
    });
    world.bring_up(0);
    world.cpu(0).missing().for_each(|cpu| panic!("{cpu:?} is still asked"));
    world.switch(0, 0);
    world.enter_kernel(0);
    issued.into_iter().for_each(|pending| wait(world, 0, pending));
}

/// Half of its requests it finds answered when it is back; each of the others it waits for.
#[test]
fn inv_6_a_cpu_that_comes_back_forgets_no_mailbox() {
    for kept in 0..RING {
        let world =
            several(RING + 1, RING, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
        // The nth request asks cpu n + 1 alone.
        (1..=RING).for_each(|cpu| world.switch(cpu, world.space()));
        for n in 0..RING {
            world.switch(n + 1, 0);
            drop(issue(world, 0, n));
            world.switch(n + 1, n + 1);
        }
        (1..=RING).filter(|&cpu| cpu != kept + 1).for_each(|cpu| answer(world, cpu));
        world.tlb.declare_stopped(CpuId(0));
        world.plan(move |world| answer(world, kept + 1));
        world.bring_up(0);
        world.cpu(0).missing().for_each(|cpu| panic!("{cpu:?} is still asked"));
    }
}

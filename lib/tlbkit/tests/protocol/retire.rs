//! Frames that come back after a grace period: who has to pass before it is over, and that nobody is interrupted.

use tlbkit::sync::AtomicU64;
use tlbkit::{Event, GracePeriods, Passed, Policy, Reason, Retired, Scope, Stride, TlbGather, VirtAddr};
use tlbkit_testkit::leak;

use crate::issue::{page, several};
use crate::machine::{Delivery, Did, KERNEL, Owner, World, interrupted};

/// CPUs 0 and 1 run a space and hold its two pages; CPU 2 holds it lazily.
fn three() -> (&'static World, GracePeriods<'static>) {
    let world = several(3, 2, Policy::default());
    world.lazy(2);
    (world, GracePeriods::new(leak((0..3).map(|_| Passed::new()))))
}

/// CPU 0 gives `va` away.
fn retire(world: &'static World, periods: &GracePeriods<'_>, owner: Owner, va: u64) -> Retired<Vec<usize>> {
    let mut gather = world.gather(owner);
    let page = world.memory.borrow_mut().unhook(owner, va).expect("mapped");
    gather.unmap(&world.cpu(0), VirtAddr(va), page.stride, Scope::NonGlobal, Reason::RemovePte, page.stamp);
    gather.retire(&world.cpu(0), periods)
}

/// The frames come out, and no CPU can use one.
fn free(world: &'static World, periods: &GracePeriods<'_>, retired: Retired<Vec<usize>>) {
    let freed = retired.flush(&world.cpu(0), periods).into_frames();
    world.memory.borrow_mut().free(&freed);
    world.audit();
}

#[test]
fn inv_6_a_grace_period_is_over_when_each_cpu_that_runs_anything_has_passed() {
    let (world, periods) = three();
    let mut retired = retire(world, &periods, Owner::Space(0), page(0));
    assert_eq!(world.log(0).last(), Some(&Did::Event(Event::FlushEnd)));
    assert_eq!(world.touch(0, page(0)), None);
    world.enter_kernel(0);
    for _ in 0..2 {
        assert!(!retired.is_over(&world.cpu(0), &periods), "CPU 1 may use it");
    }
    world.quiet(1, |cpu, irqs| periods.pass(&cpu, irqs));
    assert!(retired.is_over(&world.cpu(0), &periods));
    free(world, &periods, retired);
    assert_eq!(interrupted(&world.log(0)), []);
}

#[test]
fn inv_6_who_does_not_wait_for_the_end_interrupts_all() {
    let (world, periods) = three();
    let retired = retire(world, &periods, Owner::Space(0), page(0));
    world.delivery.set(Delivery::AtOnce);
    free(world, &periods, retired);
}

/// CPU 2 would never be waited for.
#[test]
#[should_panic(expected = "out of range")]
fn fewer_places_than_cpus_are_refused() {
    let (world, _) = three();
    let periods = GracePeriods::new(leak((0..2).map(|_| Passed::new())));
    let _ = retire(world, &periods, Owner::Space(0), page(0)).is_over(&world.cpu(0), &periods);
}

/// Nobody passes a kernel address, and where nothing was recorded nothing is announced.
#[test]
fn what_cannot_be_retired_is_flushed_and_what_is_nothing_is_not() {
    let (world, periods) = three();
    world.delivery.set(Delivery::AtOnce);
    world.map_kernel(KERNEL);
    (0..3).for_each(|cpu| _ = world.touch_in_kernel(cpu, KERNEL));
    let mut retired = retire(world, &periods, Owner::Kernel, KERNEL);
    assert!(retired.is_over(&world.cpu(0), &periods));
    free(world, &periods, retired);
    type Need = fn(&'static World, &mut TlbGather<'static, &'static [AtomicU64], Vec<usize>>);
    let needs: [Need; 3] = [
        |_, gather| gather.tables_freed(),
        |_, gather| gather.interrupt_walkers(),
        |world, gather| gather.page(&world.cpu(0), VirtAddr(KERNEL), Stride::Page4K, Scope::Global, Reason::Fork),
    ];
    for need in needs {
        let mut gather = world.gather(Owner::Space(0));
        gather.flush_everything();
        need(world, &mut gather);
        assert!(gather.retire(&world.cpu(0), &periods).is_over(&world.cpu(0), &periods));
    }
    world.forget_logs();
    let _nothing = world.gather(Owner::Space(0)).retire(&world.cpu(0), &periods);
    assert_eq!(world.log(0), []);
}

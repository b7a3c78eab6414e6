//! Misuse that the protocol notices: rows of the table in docs/kernel/reference.md, each with what it panics with.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tlbkit::sync::AtomicU64;
use tlbkit::{
    AddressSpace, Broadcast, Cpu, CpuId, CpuSetUpkeep, CpuState, GracePeriods, Hardware, Invlpgb, IrqsOff, Isolation,
    Late, Passed, PhysAddr, Policy, Reason, Scope, SpaceToken, Stride, Tables, Tlb, TlbBatch, VirtAddr,
};

use tlbkit_testkit::leak;

use crate::issue::{Issued, RING, answer, issue, page, several, wait};
use crate::machine::{Core, Delivery, KERNEL, MODERN, OWN_ROOT, Owner, USER, World};

/// What the panic of `call` says.
pub(crate) fn complaint(call: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("it was not noticed");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(other) => other.downcast::<&str>().map(|text| (*text).to_owned()).expect("a panic with words"),
    }
}

/// CPUs 0 and 1 run a space.
fn two() -> (&'static World, usize) {
    let world = World::new(Policy::default(), 2);
    let space = world.space();
    world.map(space, USER);
    (0..2).for_each(|cpu| world.switch(cpu, space));
    world.touch(1, USER);
    world.enter_kernel(0);
    (world, space)
}

type Call = (&'static str, fn(&'static World, Cpu<'static, 'static, Core>, &IrqsOff));

/// Every call of the border.
const CALLS: &[Call] = &[
    ("bring_up", |_, cpu, irqs| cpu.bring_up(irqs)),
    ("offline", |_, cpu, irqs| cpu.offline(irqs)),
    ("switch_to", |world, cpu, irqs| cpu.switch_to(world.at(0), irqs)),
    ("enter_lazy", |_, cpu, irqs| cpu.enter_lazy(irqs)),
    ("load_kernel", |_, cpu, irqs| cpu.load_kernel(irqs)),
    ("with_space", |world, cpu, irqs| cpu.with_space(world.at(0), irqs, || ())),
    ("answer", |_, cpu, irqs| cpu.answer(irqs)),
    ("enter_kernel", |_, cpu, irqs| cpu.enter_kernel(irqs)),
    ("exit_to_user", |_, cpu, irqs| cpu.exit_to_user(irqs)),
    ("is_running", |world, cpu, _| assert!(cpu.is_running(world.at(0)), "it says no, and not why")),
    ("flush_range", |world, cpu, _| {
        cpu.flush_range(world.at(0), VirtAddr(USER), 1, Stride::Page4K, Reason::WriteProtect);
    }),
    ("flush_this_cpu", |_, cpu, _| cpu.flush_this_cpu(VirtAddr(USER), 1, Stride::Page4K)),
    ("drain", |world, cpu, _| cpu.drain(world.at(0))),
    ("flush", |world, cpu, _| {
        let mut gather = world.gather(Owner::Kernel);
        gather.flush_everything();
        let _nothing = gather.flush(&cpu);
    }),
    ("destroy", |world, cpu, _| _ = cpu.destroy(world.at(0))),
    ("destroy_later", |world, cpu, _| _ = cpu.destroy_later(world.at(0))),
    ("flush_range_alone", |world, cpu, _| {
        _ = cpu.flush_range_alone(world.at(0), VirtAddr(USER), 1, Stride::Page4K, Tables::Kept);
    }),
    ("flush_kernel_on_this_cpu", |_, cpu, _| cpu.flush_kernel_on_this_cpu(VirtAddr(KERNEL), 1, Stride::Page4K)),
    ("flush_loaded_on_this_cpu", |_, cpu, _| cpu.flush_loaded_on_this_cpu()),
    ("flush_all_on_this_cpu", |_, cpu, _| cpu.flush_all_on_this_cpu()),
    ("loaded", |_, cpu, irqs| _ = cpu.loaded(irqs)),
    ("defer_kernel_flushes", |_, cpu, irqs| cpu.defer_kernel_flushes(irqs)),
    ("do_deferred_flushes", |_, cpu, irqs| _ = cpu.do_deferred_flushes(irqs)),
    ("issue", |world, cpu, _| {
        let mut gather = world.gather(Owner::Kernel);
        gather.flush_everything();
        let _leaked = gather.issue(&cpu);
    }),
    ("flush of a batch", |world, cpu, _| {
        let mut batch = TlbBatch::new(Vec::<usize>::new());
        batch.revoke(&cpu, world.at(0));
        let _nothing = batch.flush(&cpu, Reason::Migrate);
    }),
    ("defer", |_, cpu, _| _ = TlbBatch::new(Vec::<usize>::new()).defer(&cpu, &GracePeriods::new(leak([])))),
    ("flush of a deferred batch", |world, cpu, _| {
        let here = world.cpus[0].here.replace(None);
        let periods = GracePeriods::new(leak([Passed::new(), Passed::new()]));
        let deferred = TlbBatch::new(Vec::<usize>::new()).defer(&cpu, &periods);
        world.cpus[0].here.set(here);
        let _nothing = deferred.flush(&cpu, &periods, Reason::Migrate);
    }),
    ("reload_root_here", |world, cpu, irqs| cpu.reload_root_here(world.at(0), irqs)),
];

#[test]
fn every_call_in_another_cpus_name_is_refused_with_both_numbers() {
    for (name, call) in CALLS {
        let (world, _) = two();
        world.cpus[0].here.set(Some(CpuId(1)));
        let said = complaint(|| call(world, world.cpu(0), &IrqsOff::assume()));
        assert!(said.starts_with("called as CPU 0, on CPU 1"), "{name}: {said}");
    }
}

#[test]
fn every_call_in_its_own_cpus_name_is_carried_out() {
    for (name, call) in CALLS {
        let (world, _) = two();
        world.cpus[0].here.set(Some(CpuId(0)));
        world.cpus[0].irqs.set(["flush_range", "drain", "flush", "flush of a batch"].contains(name));
        let of_destroy = catch_unwind(AssertUnwindSafe(|| call(world, world.cpu(0), &IrqsOff::assume())));
        if let Err(panic) = of_destroy {
            let said = panic.downcast_ref::<&str>().copied().unwrap_or("other words");
            assert_eq!(said, "destroying a space that runs here");
        }
    }
}

/// A task that is preempted in a wait goes on elsewhere.
fn migrated(then: impl FnOnce(&'static World) + 'static) -> String {
    let (world, space) = two();
    world.delivery.set(Delivery::Lost);
    world.cpus[0].here.set(Some(CpuId(0)));
    world.plan(|world| {
        world.cpus[0].here.set(Some(CpuId(1)));
        then(world);
    });
    complaint(|| world.unmap(0, space, &[USER]))
}

#[test]
fn a_task_that_migrates_in_a_wait_answers_for_nobody() {
    let said = migrated(|world| {
        world.plan(|_| panic!("it waits on, on another CPU"));
    });
    assert!(said.starts_with("called as CPU 0, on CPU 1"), "{said}");
}

#[test]
fn a_task_that_migrated_is_told_when_the_wait_ends() {
    let said = migrated(|world| world.quiet(1, |cpu, irqs| cpu.answer(irqs)));
    assert!(said.starts_with("called as CPU 0, on CPU 1"), "{said}");
}

/// What is said of a task that issues a flush on CPU 0, and goes to CPU 1 while `wait` waits for it.
fn migrated_after_issue(wait: impl FnOnce(&'static World, Issued)) -> String {
    let (world, space) = two();
    world.delivery.set(Delivery::Lost);
    world.cpus[0].here.set(Some(CpuId(0)));
    let mut gather = world.gather(Owner::Space(space));
    world.unhook(0, &mut gather, Owner::Space(space), &[USER]);
    let pending = gather.issue(&world.cpu(0));
    world.plan(|world| {
        world.cpus[0].here.set(Some(CpuId(1)));
        world.quiet(1, |cpu, irqs| cpu.answer(irqs));
    });
    complaint(|| wait(world, pending))
}

#[test]
fn a_task_that_migrated_is_told_when_the_wait_for_an_issued_flush_ends() {
    let said = migrated_after_issue(|world, pending| _ = pending.wait(&world.cpu(0)));
    assert!(said.starts_with("called as CPU 0, on CPU 1"), "{said}");
}

#[test]
fn a_task_that_migrated_is_told_when_its_poll_ends() {
    let said = migrated_after_issue(|world, mut pending| pending.poll(&world.cpu(0)));
    assert!(said.starts_with("called as CPU 0, on CPU 1"), "{said}");
}

#[test]
fn a_task_that_migrated_is_told_when_it_asks_whether_its_flush_is_over() {
    let world = several(2, 1, Policy::default());
    let mut pending = issue(world, 0, 0);
    answer(world, 1);
    world.forget_logs();
    world.cpus[0].here.set(Some(CpuId(1)));
    let said = complaint(|| _ = pending.is_done(&world.cpu(0)));
    assert!(said.starts_with("called as CPU 0, on CPU 1"), "{said}");
    assert_eq!(world.log(0), [], "nothing was done in the name of CPU 0");
    world.cpus[0].here.set(Some(CpuId(0)));
    wait(world, 0, pending);
}

/// All mailboxes are in use, so the wait would ask.
#[test]
fn a_task_that_migrated_before_it_waits_asks_nobody() {
    let world = several(2, RING + 1, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    let last = (0..=RING).map(|n| issue(world, 0, n)).last().expect("one more than fits");
    answer(world, 1);
    world.forget_logs();
    world.cpus[0].here.set(Some(CpuId(1)));
    let said = complaint(|| _ = last.wait(&world.cpu(0)));
    assert!(said.starts_with("called as CPU 0, on CPU 1"), "{said}");
    assert_eq!(world.log(0), [], "nothing was done in the name of CPU 0");
}

/// What found no mailbox is asked by the look itself. In the midst of that, when CPU 1 takes the interrupt and enters
/// the kernel's half, the task is moved.
#[test]
fn a_task_that_migrates_while_it_asks_whether_its_flush_is_over_is_told() {
    let policy = Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, isolation: Isolation::On, ..Policy::default() };
    let world = several(2, RING + 1, policy);
    let mut issued: Vec<_> = (0..=RING).map(|n| issue(world, 0, n)).collect();
    let mut last = issued.pop().expect("one more than fits");
    world.deliver(1);
    world.exit_to_user(1);
    world.cpus[0].here.set(Some(CpuId(0)));
    world.delivery.set(Delivery::AtOnce);
    *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(|world| world.cpus[0].here.set(Some(CpuId(1)))));
    let said = complaint(|| _ = last.is_done(&world.cpu(0)));
    assert!(said.starts_with("called as CPU 0, on CPU 1"), "{said}");
}

/// The task is moved when CPU 1 takes the interrupt and enters the kernel's half: what it then flushes is CPU 1's.
#[test]
fn a_task_that_migrates_while_it_issues_a_flush_is_told() {
    // The flush here comes first: otherwise it would notice the migration before the end of the call does.
    let local_flush = tlbkit::LocalFlush::BeforeRemote;
    let world = several(2, 1, Policy { isolation: Isolation::On, local_flush, ..Policy::default() });
    world.exit_to_user(1);
    world.cpus[0].here.set(Some(CpuId(0)));
    world.delivery.set(Delivery::AtOnce);
    *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(|world| world.cpus[0].here.set(Some(CpuId(1)))));
    let said = complaint(|| drop(issue(world, 0, 0)));
    assert!(said.starts_with("called as CPU 0, on CPU 1"), "{said}");
}

/// The task is moved after the call began, just before interrupts are off for what it does to its own CPU.
#[test]
fn a_task_that_migrates_before_it_flushes_is_told_though_it_waits_for_nobody() {
    type Flush = fn(&'static World, Cpu<'static, 'static, Core>);
    const FLUSHES: &[(&str, Flush)] = &[
        ("flush_range", |world, cpu| cpu.flush_range(world.at(0), VirtAddr(USER), 1, Stride::Page4K, Reason::Fork)),
        ("flush_range_alone", |world, cpu| {
            _ = cpu.flush_range_alone(world.at(0), VirtAddr(USER), 1, Stride::Page4K, Tables::Kept);
        }),
        ("flush of a space", |world, cpu| {
            let mut gather = world.gather(Owner::Space(0));
            gather.flush_everything();
            let _nothing = gather.flush(&cpu);
        }),
        ("flush of the kernel", |world, cpu| {
            let mut gather = world.gather(Owner::Kernel);
            gather.flush_everything();
            let _nothing = gather.flush(&cpu);
        }),
        ("flush of a batch", |world, cpu| {
            let mut batch = TlbBatch::new(Vec::<usize>::new());
            batch.revoke(&cpu, world.at(0));
            let _nothing = batch.flush(&cpu, Reason::Migrate);
        }),
        ("flush_this_cpu", |_, cpu| cpu.flush_this_cpu(VirtAddr(USER), 1, Stride::Page4K)),
        ("flush_kernel_on_this_cpu", |_, cpu| cpu.flush_kernel_on_this_cpu(VirtAddr(KERNEL), 1, Stride::Page4K)),
        ("flush_loaded_on_this_cpu", |_, cpu| cpu.flush_loaded_on_this_cpu()),
        ("flush_all_on_this_cpu", |_, cpu| cpu.flush_all_on_this_cpu()),
        ("destroy_later", |world, cpu| {
            world.quiet(0, |cpu, irqs| cpu.load_kernel(irqs));
            world.cpus[0].moves_to.set(Some(CpuId(1)));
            _ = cpu.destroy_later(world.at(0));
        }),
    ];
    for (name, flush) in FLUSHES {
        let world = several(1, 1, Policy::default());
        world.cpus[0].here.set(Some(CpuId(0)));
        let is_destroyed = *name == "destroy_later";
        world.cpus[0].moves_to.set((!is_destroyed).then_some(CpuId(1)));
        let said = complaint(|| flush(world, world.cpu(0)));
        assert!(said.starts_with("called as CPU 0, on CPU 1"), "{name}: {said}");
    }
}

/// The INVLPGBs are CPU 0's, and the TLBSYNC is not.
#[test]
fn a_task_that_migrates_before_its_tlbsync_is_told() {
    let policy = Policy { broadcast: Broadcast::From { cpus: 3 }, ..Policy::DEFAULT };
    let world = World::with_broadcast(policy, &[MODERN; 2], 8);
    world.map_kernel(KERNEL);
    world.cpus[0].here.set(Some(CpuId(0)));
    world.cpus[0].moves_to.set(Some(CpuId(1)));
    let said = complaint(|| world.revoke(0, Owner::Kernel, &[KERNEL]));
    assert!(said.starts_with("called as CPU 0, on CPU 1"), "{said}");
}

/// Both come once more when the other CPU has answered, and the task is moved before the second INVLPGB.
#[test]
fn a_task_that_migrates_before_the_last_tlbsync_of_a_conversion_is_told() {
    let local_flush = tlbkit::LocalFlush::BeforeRemote;
    let policy = Policy { broadcast: Broadcast::From { cpus: 3 }, local_flush, ..Policy::DEFAULT };
    let world = World::with_broadcast(policy, &[MODERN; 2], 8);
    let space = world.space();
    (0..2).for_each(|cpu| world.switch(cpu, space));
    assert!(world.cpu(0).share_pcid(world.at(space)).is_some());
    world.cpus.iter().for_each(|core| core.kept.root_offset.set(OWN_ROOT));
    world.cpus[0].here.set(Some(CpuId(0)));
    *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(|world| world.cpus[0].moves_to.set(Some(CpuId(1)))));
    let said = complaint(|| world.cpu(0).reload_roots(world.at(space)));
    assert!(said.starts_with("called as CPU 0, on CPU 1"), "{said}");
}

#[test]
fn instructions_that_a_kernel_does_not_have_are_named() {
    let cpu = tlbkit_testkit::lone_cpu();
    assert!(complaint(|| cpu.invlpgb(Invlpgb::All)).contains("on a machine without INVLPGB"));
    assert!(complaint(|| cpu.tlbsync()).contains("on a machine without INVLPGB"));
}

#[test]
fn cpus_that_never_answer_are_named() {
    let world = World::new(Policy::default(), 4);
    world.map_kernel(KERNEL);
    world.delivery.set(Delivery::Lost);
    world.cpus[0].patience_rounds.set(3);
    world.plan(|world| world.quiet(2, |cpu, irqs| cpu.answer(irqs)));
    let said = complaint(|| world.revoke(0, Owner::Kernel, &[KERNEL]));
    assert_eq!(said, "a flush is not answered by CPU 1, CPU 3");
    assert_eq!(*world.cpus[0].was_late.borrow(), [1, 3].repeat(3), "as often as the kernel said");
}

#[test]
fn a_lost_interrupt_that_is_only_waited_for_is_named() {
    let (world, space) = two();
    world.delivery.set(Delivery::Lost);
    world.cpus[0].about_late.set(Late::Wait);
    world.cpus[0].patience_rounds.set(3);
    let said = complaint(|| world.unmap(0, space, &[USER]));
    assert_eq!(said, "a flush is not answered by CPU 1");
    assert_eq!(*world.cpus[0].was_late.borrow(), [1; 3], "the kernel was asked, and chose to wait");
}

#[test]
fn a_flush_inside_the_wait_of_another_is_refused() {
    let (world, space) = two();
    world.delivery.set(Delivery::Lost);
    world.plan(move |world| world.unmap(0, space, &[]));
    world.plan(move |world| {
        world.cpu(0).flush_range(world.at(space), VirtAddr(USER), 1, Stride::Page4K, Reason::Fork);
    });
    let said = complaint(|| world.unmap(0, space, &[USER]));
    assert!(said.starts_with("a flush inside the wait of another"), "{said}");
}

/// CPU 0 waits for a mailbox; what it has issued was sent, but for the last.
#[test]
fn a_wait_for_an_issued_flush_inside_another_wait_is_refused() {
    let world = several(2, RING + 2, Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::default() });
    let mut issued: Vec<_> = (0..=RING).map(|n| issue(world, 0, n)).collect();
    world.plan(move |world| {
        let cpu = world.cpu(0);
        let mut next = || issued.pop().expect("one more than fits");
        let [mut announced, mut sent] = [next(), next()];
        let said = [
            complaint(|| _ = announced.is_done(&cpu)),
            complaint(|| announced.poll(&cpu)),
            complaint(|| sent.poll(&cpu)),
            complaint(|| _ = announced.wait(&cpu)),
            complaint(|| _ = sent.wait(&cpu)),
        ];
        assert!(said.iter().all(|said| said.starts_with("a flush inside the wait of another")), "{said:?}");
    });
    world.unmap(0, 0, &[page(RING + 1)]);
}

/// CPU 1 takes the interrupt at once. While it answers, CPU 0, which would go on to the next CPU, takes one as well.
#[test]
fn a_flush_of_a_handler_inside_an_issue_is_refused() {
    let world = several(2, 1, Policy { isolation: Isolation::On, ..Policy::default() });
    world.exit_to_user(1);
    world.delivery.set(Delivery::AtOnce);
    *world.cpus[1].kept.nmi.borrow_mut() = Some(Box::new(|world| {
        let said = complaint(|| world.cpu(0).flush_range(world.at(0), VirtAddr(USER), 1, Stride::Page4K, Reason::Fork));
        assert!(said.starts_with("a flush inside the wait of another"), "{said}");
    }));
    drop(issue(world, 0, 0));
}

#[test]
fn a_table_that_begins_no_page_is_refused() {
    let root = PhysAddr(0x1018);
    let said =
        complaint(|| _ = AddressSpace::new(World::new(Policy::DEFAULT, 1).tlb.fresh_id(), SpaceToken(0), root, [0; 0]));
    assert_eq!(said, "a top-level table does not begin a page");
    let (cpus, matrix): ([CpuState; 0], Vec<AtomicU64>) = ([], (0..4).map(|_| AtomicU64::new(0)).collect());
    assert_eq!(complaint(|| _ = Tlb::new(&cpus, &matrix, root, Policy::DEFAULT)), said);
}

#[test]
fn a_cpu_that_is_none_is_refused() {
    let (world, space) = two();
    let said = complaint(|| {
        let nobody = world.tlb.cpu(CpuId(2), &world.cpus[0]);
        nobody.flush_range(world.at(space), VirtAddr(USER), 1, Stride::Page4K, Reason::Fork);
    });
    assert!(said.starts_with("index out of bounds"), "{said}");
}

/// What a kernel counts by itself may be wrong: what is above the last address is no reason to name nothing.
#[test]
fn a_range_that_wraps_is_flushed_up_to_the_last_address() {
    let (world, space) = two();
    world.map_kernel(!0xfff);
    assert!(world.touch_in_kernel(1, !0xfff).is_some());
    world.enter_kernel(1);
    let before = world.memory.borrow_mut().unhook(Owner::Kernel, !0xfff).expect("mapped").stamp;
    let mut gather = world.gather(Owner::Kernel);
    gather.range(&world.cpu(0), VirtAddr(!0xfff), 2, Stride::Page4K, Scope::Global, Reason::KernelRemove);
    world.finish(0, gather);
    assert_ne!(world.touch_in_kernel(1, !0xfff), Some(before));
    world.enter_kernel(1);
    for (va, pages) in [(USER, u32::MAX), (!0xfff, 2), (!0xfff, u32::MAX)] {
        world.cpu(0).flush_range(world.at(space), VirtAddr(va), pages, Stride::Page1G, Reason::WriteProtect);
    }
}

#[test]
fn storage_that_is_too_small_is_refused() {
    let cpus = [const { CpuState::new() }; 2];
    let matrix = [AtomicU64::new(0)];
    let said = complaint(|| _ = Tlb::new(&cpus, &matrix, PhysAddr(0), Policy::DEFAULT));
    assert_eq!(said, "the matrix is too small for the CPUs");
    let world = World::new(Policy::DEFAULT, 1);
    let narrow = AddressSpace::new(world.tlb.fresh_id(), SpaceToken(9), PhysAddr(0x1000), &[][..]);
    let said = complaint(|| world.quiet(0, |cpu, irqs| cpu.switch_to(&narrow, irqs)));
    assert!(said.starts_with("index out of bounds"), "{said}");
}

/// What a debug build alone sees: a statement about interrupts, a space that has ended, a CR3 that
/// somebody else has written. Simulators and checkers, which have `observe`, do what those forbid.
#[cfg(all(debug_assertions, not(feature = "observe")))]
#[test]
fn what_no_type_excludes_a_debug_build_names() {
    use tlbkit::{Cr3, Destroyed, GracePeriods, Passed, Pcid};
    let (world, space) = two();
    world.enter_kernel(0);
    let other = world.space();
    let calls: [&dyn Fn(Cpu<'static, 'static, Core>); 6] = [
        &|cpu| cpu.switch_to(world.at(other), &IrqsOff::assume()),
        &|cpu| cpu.reload_root_here(world.at(space), &IrqsOff::assume()),
        &|cpu| cpu.answer(&IrqsOff::assume()),
        &|cpu| cpu.enter_lazy(&IrqsOff::assume()),
        &|cpu| cpu.load_kernel(&IrqsOff::assume()),
        &|cpu| GracePeriods::new(&[Passed::new()]).pass(&cpu, &IrqsOff::assume()),
    ];
    for call in calls {
        let said = complaint(|| call(world.cpu(0)));
        assert!(said.starts_with("interrupts are on"), "{said}");
    }
    assert_eq!(world.destroy(0, other), Destroyed::Now);
    assert_eq!(complaint(|| world.switch(0, other)), "a switch to a space that has ended");
    world.cpus[0].cr3.set(Cr3::flushing(PhysAddr(0x7000), Pcid(3)));
    let said = complaint(|| world.switch(0, world.space()));
    assert!(said.starts_with("CR3 is 0x7003, and the library wrote"), "{said}");
}

#[test]
fn a_virtual_address_is_no_top_level_table() {
    let root = PhysAddr(KERNEL);
    let said =
        complaint(|| _ = AddressSpace::new(World::new(Policy::DEFAULT, 1).tlb.fresh_id(), SpaceToken(0), root, [0; 0]));
    assert_eq!(said, "the address of a top-level table is not physical");
}

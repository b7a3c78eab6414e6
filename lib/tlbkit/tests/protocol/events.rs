//! What a flush reports, and when: each event once, in its place among the instructions.

use tlbkit::{Acknowledgement, Broadcast, Cpu, Features, OthersMustFlush, Policy, Stride, Tables, VirtAddr};

use crate::issue::{RING, answer, issue, several, two, wait};
use crate::machine::{Core, Delivery, Did, KERNEL, MODERN, Owner, USER, World};

/// What a CPU has done since the last look, in short.
fn did(world: &World, cpu: usize) -> Vec<String> {
    let short = |did: Did| match did {
        Did::Event(event) => format!("{event:?}"),
        Did::Cr3(_) => "CR3".to_owned(),
        Did::Invlpg(_) => "INVLPG".to_owned(),
        Did::Invpcid(_) => "INVPCID".to_owned(),
        Did::TogglePge => "PGE".to_owned(),
        Did::Invlpgb(_) => "INVLPGB".to_owned(),
        Did::Tlbsync => "TLBSYNC".to_owned(),
        Did::Ipi(to) => format!("IPI {to}"),
        Did::IpiToOthers => "IPI to others".to_owned(),
        Did::ByHost(cpus, _) => format!("host {cpus:b}"),
    };
    world.log(cpu).into_iter().map(short).collect()
}

const LOCAL: [&str; 2] = ["INVLPG", "FlushLocalDone"];
const BEGIN: &str = "FlushBegin(1)";
const ASKS_ONE: &str = "Chosen { asked: 1, skipped: 0 }";
const ANSWER: [&str; 3] = ["AnswerBegin(cpu0)", "INVLPG", "AnswerEnd(cpu0)"];

#[test]
fn a_flush_begins_chooses_flushes_and_ends() {
    for acknowledgement in [Acknowledgement::AfterFlush, Acknowledgement::BeforeFlush] {
        let world = several(2, 1, Policy { acknowledgement, ..Policy::default() });
        world.delivery.set(Delivery::AtOnce);
        world.unmap(0, 0, &[USER]);
        assert_eq!(did(world, 0), [&[BEGIN, ASKS_ONE, "IPI 1"][..], &LOCAL, &["FlushEnd"]].concat());
        assert_eq!(did(world, 1), ANSWER, "{acknowledgement:?}");
    }
}

#[test]
fn one_that_asks_nobody_says_whom_it_has_left_alone() {
    let world = several(2, 1, Policy::default());
    world.load_kernel(1);
    world.forget_logs();
    world.unmap(0, 0, &[USER]);
    let left_alone = "Chosen { asked: 0, skipped: 1 }";
    assert_eq!(did(world, 0), [&[BEGIN, left_alone][..], &LOCAL, &["FlushEnd"]].concat());
}

#[test]
fn one_that_has_nobody_to_look_at_and_one_that_is_asked_to_look_at_nobody_choose_nothing() {
    let whole = [&[BEGIN][..], &LOCAL, &["FlushEnd"]].concat();
    let world = several(1, 1, Policy::default());
    world.unmap(0, 0, &[USER]);
    assert_eq!(did(world, 0), whole);
    let world = several(2, 1, Policy::default());
    let alone =
        |cpu: Cpu<'_, '_, Core>| cpu.flush_range_alone(world.at(0), VirtAddr(USER), 1, Stride::Page4K, Tables::Kept);
    assert_eq!(world.quiet(0, |cpu, _| alone(cpu)), Err(OthersMustFlush));
    assert_eq!(did(world, 0), whole);
}

#[test]
fn an_issued_flush_says_that_it_was_issued_and_later_that_it_is_over() {
    let world = two();
    let pending = issue(world, 0, 0);
    let issued = [&[BEGIN, ASKS_ONE, "IPI 1"][..], &LOCAL, &["FlushIssued"]].concat();
    assert_eq!(did(world, 0), issued);
    answer(world, 1);
    assert_eq!(did(world, 1), ANSWER);
    wait(world, 0, pending);
    assert_eq!(did(world, 0), ["FlushEnd"]);
    let mut pending = issue(world, 0, 1);
    answer(world, 1);
    assert_eq!(did(world, 0), issued);
    assert!(world.quiet(0, |cpu, _| pending.is_done(&cpu)));
    assert_eq!(did(world, 0), ["FlushEnd"]);
    wait(world, 0, pending);
    assert!(did(world, 0).is_empty(), "it was over");
}

/// All mailboxes are in use: it chooses when its wait asks.
#[test]
fn an_issued_flush_without_a_mailbox_chooses_in_its_wait() {
    let world = two();
    let others: Vec<_> = (0..RING).map(|n| issue(world, 0, n + 1)).collect();
    world.forget_logs();
    let pending = issue(world, 0, 0);
    assert_eq!(did(world, 0), [&[BEGIN][..], &LOCAL, &["FlushIssued"]].concat());
    answer(world, 1);
    world.forget_logs();
    world.delivery.set(Delivery::AtOnce);
    wait(world, 0, pending);
    assert_eq!(did(world, 0), [ASKS_ONE, "IPI 1", "AlreadyCurrent", "FlushLocalDone", "FlushEnd"]);
    others.into_iter().for_each(|one| wait(world, 0, one));
}

/// What the CR3 write has done is said after it.
#[test]
fn a_switch_says_what_its_cr3_write_has_flushed_or_kept() {
    for (features, at_return) in [(MODERN, "SwitchKept"), (Features::default(), "SwitchFlushed")] {
        let world = World::of(Policy::default(), &[features]);
        let [first, second] = [world.space(), world.space()];
        for (space, said) in [(first, "SwitchFlushed"), (second, "SwitchFlushed"), (first, at_return)] {
            world.forget_logs();
            world.switch(0, space);
            assert_eq!(did(world, 0), ["CR3", said]);
        }
    }
}

#[test]
fn an_answer_for_a_space_that_was_left_says_so() {
    let world = two();
    let pending = issue(world, 0, 0);
    world.switch(1, world.space());
    world.forget_logs();
    answer(world, 1);
    assert_eq!(did(world, 1), ["AnswerBegin(cpu0)", "WrongSpace", "AnswerEnd(cpu0)"]);
    wait(world, 0, pending);
}

/// CPUs that move to the shared PCID are asked once; what comes then asks nobody.
#[test]
fn a_broadcast_flush_begins_and_ends_around_its_tlbsync() {
    let policy = Policy { broadcast: Broadcast::From { cpus: 3 }, ..Policy::DEFAULT };
    let world = World::with_broadcast(policy, &[MODERN; 2], 8);
    let space = world.space();
    world.map(space, USER);
    world.map_kernel(KERNEL);
    (0..2).for_each(|cpu| world.switch(cpu, space));
    world.forget_logs();
    assert!(world.cpu(0).share_pcid(world.at(space)).is_some());
    let begin = "FlushBegin(4294967295)";
    let sync = ["INVLPGB", "TLBSYNC"];
    let asked = [begin, sync[0], sync[1], ASKS_ONE, "IPI 1", "CR3", "FlushLocalDone", "FlushEnd"];
    assert_eq!(did(world, 0), [&sync[..], &asked].concat());
    assert_eq!(did(world, 1), ["AnswerBegin(cpu0)", "CR3", "AnswerEnd(cpu0)"]);
    for (owner, va) in [(Owner::Space(space), USER), (Owner::Kernel, KERNEL)] {
        world.revoke(0, owner, &[va]);
        assert_eq!(did(world, 0), [BEGIN, sync[0], sync[1], "FlushLocalDone", "FlushEnd"], "{owner:?}");
        assert!(did(world, 1).is_empty(), "{owner:?}");
    }
    let mut gather = world.gather(Owner::Space(space));
    gather.flush_everything();
    gather.interrupt_walkers();
    world.finish(0, gather);
    assert_eq!(did(world, 1), ["AnswerBegin(cpu0)", "AlreadyCurrent", "AnswerEnd(cpu0)"]);
}

//! Who waits for the lock of a single region, and which regions are one.

use tlbkit_pmap::Region;
use tlbkit_workloads::calls;
use tlbkit_workloads::os::{Backing, Protection};

use super::super::Kernel;
use super::super::habits::{RegionLocks, Wants};
use super::super::task::Process;
use super::super::task_index::TaskIndex;
use super::actors::{Diary, Kept, put};
use crate::mmu::{Access, Overlap};
use crate::observer::Cause;
use crate::run::Run;
use crate::run::stage::{Stage, rehearse_with};

/// Two regions, one after the other, and a run in which two threads are on cores of their own. The second region is as
/// the first, so that both are one, or not.
fn two_regions(locks: RegionLocks, second: Backing, acts: [Act; 2]) -> Diary {
    let diary = Diary::default();
    let body = |stage: &mut Stage, kernel: &'static Kernel| {
        stage.boot(kernel).unwrap();
        let (process, machine) = (kernel.new_process(), kernel.machine());
        let [first, next] = [Backing::AnonPrivate, second].map(|backing| {
            let region: Region = calls::region(1, backing, Protection::ReadWrite);
            machine.with_cpu(0, |cpu| process.vm.map_region(&cpu, region)).unwrap()
        });
        assert_eq!(next, first + 4096);
        for (cpu, act) in acts.into_iter().enumerate() {
            let notes = diary.clone();
            put(kernel, process, (cpu, Kept::Pinned), move |me| act((kernel, process, me), [first, next], &notes));
        }
        stage.turn(kernel, || kernel.is_done());
    };
    rehearse_with(2, |run| Run { region_locks: locks, ..run }, body);
    diary
}

type Act = fn((&'static Kernel, &'static Process, TaskIndex), [u64; 2], &Diary);

fn compute_ns((kernel, _, me): (&'static Kernel, &'static Process, TaskIndex), ns: u64) {
    kernel.compute(me, kernel.machine().costs().cycles_of_ns(ns));
}

/// Changes the first region for a while.
const CHANGES_FIRST: Act = |who, [first, _], diary| {
    let held = who.0.hold_regions(who.2, who.1, Wants::AllToWrite);
    held.write_regions_of(first, 1);
    compute_ns(who, 50_000);
    diary.note(who.0, "changed");
    held.release();
};

/// The same, and lets readers come before.
const CHANGES_AND_LETS_READERS_COME: Act = |who, [first, _], diary| {
    let held = who.0.hold_regions(who.2, who.1, Wants::AllToWrite);
    held.write_regions_of(first, 1);
    held.downgrade();
    compute_ns(who, 50_000);
    diary.note(who.0, "changed");
    held.release();
};

const TOUCHES_SECOND: Act = |who, [_, second], diary| {
    compute_ns(who, 5_000);
    let idled = |cpu: usize| who.0.machine().processor(cpu).ledger().of(Cause::Idle);
    let before = idled(1);
    who.0.touch(who.2, second, Access::Read, Overlap::Dependent);
    diary.note(who.0, "touched");
    if idled(1) > before {
        diary.note(who.0, "slept");
    }
};

#[test]
fn a_fault_sleeps_for_who_changes_its_region_and_regions_that_are_alike_are_one() {
    let beside = |locks, second| two_regions(locks, second, [CHANGES_FIRST, TOUCHES_SECOND]).what();
    for locks in [RegionLocks::OfOne, RegionLocks::OfOneForFaults] {
        assert_eq!(beside(locks, Backing::AnonPrivate), ["changed", "touched", "slept"], "{locks:?}");
        assert_eq!(beside(locks, Backing::FilePrivate), ["touched", "changed"], "{locks:?}: not its region");
    }
    assert_eq!(beside(RegionLocks::OfAll, Backing::FilePrivate), ["changed", "touched", "slept"]);
}

/// Gives pages of both regions back for a while, or of the first alone.
const GIVES_BOTH_BACK: Act = |who, [first, _], diary| gives_back(who, first, 2, diary);
const GIVES_FIRST_BACK: Act = |who, [first, _], diary| gives_back(who, first, 1, diary);

fn gives_back(who: (&'static Kernel, &'static Process, TaskIndex), va: u64, pages: u64, diary: &Diary) {
    let held = who.0.hold_regions(who.2, who.1, Wants::PartToRead { va, pages });
    compute_ns(who, 50_000);
    diary.note(who.0, "given back");
    held.release();
}

/// Takes the lock of all to write, and no single one.
const TAKES_ALL: Act = |who, _, diary| {
    compute_ns(who, 5_000);
    who.0.hold_regions(who.2, who.1, Wants::AllToWrite).release();
    diary.note(who.0, "took all");
};

#[test]
fn who_gives_pages_of_several_regions_back_takes_the_lock_of_all() {
    let beside = |act| two_regions(RegionLocks::OfOne, Backing::FilePrivate, [act, TAKES_ALL]).what();
    assert_eq!(beside(GIVES_BOTH_BACK), ["given back", "took all"]);
    assert_eq!(beside(GIVES_FIRST_BACK), ["took all", "given back"]);
}

#[test]
fn who_unmaps_lets_readers_come_before_it_is_done_where_faults_lock_one_region() {
    let beside =
        |locks| two_regions(locks, Backing::AnonPrivate, [CHANGES_AND_LETS_READERS_COME, TOUCHES_SECOND]).what();
    assert_eq!(beside(RegionLocks::OfOne), ["touched", "changed"]);
    assert_eq!(beside(RegionLocks::OfAll), ["changed", "touched", "slept"]);
}

/// Reads in the second region for a while.
const READS_SECOND: Act = |who, [_, second], diary| {
    let held = who.0.hold_regions(who.2, who.1, Wants::PartToRead { va: second, pages: 1 });
    compute_ns(who, 50_000);
    diary.note(who.0, "read");
    held.release();
};

const COMES_TO_CHANGE_FIRST: Act = |who, [first, _], diary| {
    compute_ns(who, 5_000);
    let held = who.0.hold_regions(who.2, who.1, Wants::AllToWrite);
    let spent = || [Cause::Idle, Cause::LockSpin].map(|cause| who.0.machine().running().ledger().of(cause));
    let before = spent();
    held.write_regions_of(first, 1);
    let after = spent();
    diary.note(who.0, "changes");
    for (n, word) in ["slept", "spun"].into_iter().enumerate() {
        if after[n] > before[n] {
            diary.note(who.0, word);
        }
    }
    held.release();
};

#[test]
fn who_changes_a_region_waits_for_its_readers_asleep_or_not_by_the_kernels_age() {
    let beside = |locks, second| two_regions(locks, second, [READS_SECOND, COMES_TO_CHANGE_FIRST]).what();
    assert_eq!(beside(RegionLocks::OfOne, Backing::AnonPrivate), ["read", "changes", "slept"]);
    assert_eq!(beside(RegionLocks::OfOneForFaults, Backing::AnonPrivate), ["read", "changes", "spun"]);
    assert_eq!(beside(RegionLocks::OfOne, Backing::FilePrivate), ["changes", "read"], "they read elsewhere");
}

//! Which tasks wait for a per-VMA lock, and which regions have one lock together.

use tlbkit_pmap::Region;
use tlbkit_workloads::calls;
use tlbkit_workloads::os::{Backing, Protection};

use super::super::held_locks::HeldLocks;
use super::super::settings::{KernelSettings, LockWanted, PerVmaLocks};
use super::super::{Kernel, TaskIndex};
use super::actors::{Diary, Kept, put};
use crate::mmu::{Access, Overlap};
use crate::observer::Cause;
use crate::run::Run;
use crate::run::stage::{Stage, rehearse_with};

/// One of two threads of a process.
#[derive(Clone, Copy)]
struct Actor {
    kernel: &'static Kernel,
    me: TaskIndex,
}

impl Actor {
    fn compute_ns(self, ns: u64) {
        self.kernel.compute(self.me, self.kernel.machine().costs().cycles_of_ns(ns));
    }

    fn hold(self, wanted: LockWanted) -> HeldLocks {
        self.kernel.hold_locks(self.me, wanted)
    }
}

/// What a thread does, given the addresses of the two regions.
type Act = fn(Actor, [u64; 2], &Diary);

/// Runs two threads on separate cores in a process that has two neighbouring regions. If `second` is the backing of
/// the first region as well, the two are one region.
fn two_regions(per_vma_locks: PerVmaLocks, second: Backing, acts: [Act; 2]) -> Diary {
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
            put(kernel, process, (cpu, Kept::Pinned), move |me| act(Actor { kernel, me }, [first, next], &notes));
        }
        stage.turn(kernel, || kernel.is_done());
    };
    let settings = KernelSettings { per_vma_locks, ..KernelSettings::default() };
    rehearse_with(2, |run| Run { kernel: settings, ..run }, body);
    diary
}

/// Changes the first region for a while.
const CHANGES_FIRST: Act = |who, [first, _], diary| {
    let held = who.hold(LockWanted::MmapWrite);
    held.write_vmas_of(first, 1);
    who.compute_ns(50_000);
    diary.note(who.kernel, "changed");
    held.release();
};

/// Changes the first region for a while, and lets readers come meanwhile.
const CHANGES_AND_LETS_READERS_COME: Act = |who, [first, _], diary| {
    let held = who.hold(LockWanted::MmapWrite);
    held.write_vmas_of(first, 1);
    held.downgrade();
    who.compute_ns(50_000);
    diary.note(who.kernel, "changed");
    held.release();
};

const TOUCHES_SECOND: Act = |who, [_, second], diary| {
    who.compute_ns(5_000);
    let idled = |cpu: usize| who.kernel.machine().processor(cpu).ledger().of(Cause::Idle);
    let before = idled(1);
    who.kernel.touch(who.me, second, Access::Read, Overlap::Dependent);
    diary.note(who.kernel, "touched");
    if idled(1) > before {
        diary.note(who.kernel, "slept");
    }
};

#[test]
fn a_fault_sleeps_for_who_changes_its_region_and_regions_that_are_alike_are_one() {
    let beside = |locks, second| two_regions(locks, second, [CHANGES_FIRST, TOUCHES_SECOND]).what();
    for locks in [PerVmaLocks::ForFaultsAndSweeps, PerVmaLocks::ForFaults] {
        assert_eq!(beside(locks, Backing::AnonPrivate), ["changed", "touched", "slept"], "{locks:?}");
        assert_eq!(beside(locks, Backing::FilePrivate), ["touched", "changed"], "{locks:?}: not its region");
    }
    assert_eq!(beside(PerVmaLocks::Absent, Backing::FilePrivate), ["changed", "touched", "slept"]);
}

/// Gives pages of both regions back for a while, or of the first alone.
const GIVES_BOTH_BACK: Act = |who, [first, _], diary| gives_back(who, first, 2, diary);
const GIVES_FIRST_BACK: Act = |who, [first, _], diary| gives_back(who, first, 1, diary);

fn gives_back(who: Actor, va: u64, pages: u64, diary: &Diary) {
    let held = who.hold(LockWanted::VmaRead { va, pages });
    who.compute_ns(50_000);
    diary.note(who.kernel, "given back");
    held.release();
}

/// Takes the mmap lock for writing, and no per-VMA lock.
const TAKES_MMAP_LOCK: Act = |who, _, diary| {
    who.compute_ns(5_000);
    who.hold(LockWanted::MmapWrite).release();
    diary.note(who.kernel, "took the mmap lock");
};

#[test]
fn who_gives_pages_of_several_regions_back_takes_the_mmap_lock() {
    let beside =
        |act| two_regions(PerVmaLocks::ForFaultsAndSweeps, Backing::FilePrivate, [act, TAKES_MMAP_LOCK]).what();
    assert_eq!(beside(GIVES_BOTH_BACK), ["given back", "took the mmap lock"]);
    assert_eq!(beside(GIVES_FIRST_BACK), ["took the mmap lock", "given back"]);
}

#[test]
fn who_unmaps_lets_readers_come_before_it_is_done_where_faults_lock_one_region() {
    let beside =
        |locks| two_regions(locks, Backing::AnonPrivate, [CHANGES_AND_LETS_READERS_COME, TOUCHES_SECOND]).what();
    assert_eq!(beside(PerVmaLocks::ForFaultsAndSweeps), ["touched", "changed"]);
    assert_eq!(beside(PerVmaLocks::Absent), ["changed", "touched", "slept"]);
}

/// Reads in the second region for a while.
const READS_SECOND: Act = |who, [_, second], diary| {
    let held = who.hold(LockWanted::VmaRead { va: second, pages: 1 });
    who.compute_ns(50_000);
    diary.note(who.kernel, "read");
    held.release();
};

const COMES_TO_CHANGE_FIRST: Act = |who, [first, _], diary| {
    who.compute_ns(5_000);
    let held = who.hold(LockWanted::MmapWrite);
    let spent = || [Cause::Idle, Cause::LockSpin].map(|cause| who.kernel.machine().running().ledger().of(cause));
    let before = spent();
    held.write_vmas_of(first, 1);
    let after = spent();
    diary.note(who.kernel, "changes");
    for (n, word) in ["slept", "spun"].into_iter().enumerate() {
        if after[n] > before[n] {
            diary.note(who.kernel, word);
        }
    }
    held.release();
};

#[test]
fn who_changes_a_region_waits_for_its_readers_asleep_or_not_by_the_kernels_age() {
    let beside = |locks, second| two_regions(locks, second, [READS_SECOND, COMES_TO_CHANGE_FIRST]).what();
    assert_eq!(beside(PerVmaLocks::ForFaultsAndSweeps, Backing::AnonPrivate), ["read", "changes", "slept"]);
    assert_eq!(beside(PerVmaLocks::ForFaults, Backing::AnonPrivate), ["read", "changes", "spun"]);
    assert_eq!(
        beside(PerVmaLocks::ForFaultsAndSweeps, Backing::FilePrivate),
        ["changes", "read"],
        "they read elsewhere"
    );
}

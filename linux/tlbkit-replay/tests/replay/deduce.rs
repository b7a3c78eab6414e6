//! What each event of a trace is taken to mean.

use crate::common::{Script, ops};
use tlbkit_replay::{Cause, Coverage, OpKind};
use tlbkit_trace::Syscall;

const PRIVATE: u64 = 0x22;
const SHARED: u64 = 0x21;
const FILE: u64 = 0x2;

/// Cause, first page and number of pages of everything that was taken.
fn taken(script: &Script) -> Vec<(Cause, u64, u64)> {
    script.taken().into_iter().map(|(cause, taken)| (cause, taken.page, taken.pages)).collect()
}

fn unmap(first: u64, pages: u64) -> [(&'static str, u64); 2] {
    [("addr", first << 12), ("len", pages << 12)]
}

#[test]
fn a_flush_names_the_span_that_was_mapped_and_no_more() {
    let mut script = Script::default();
    script.exec().mmap(1000, 100, PRIVATE).write([1010, 1012]).call("munmap", &unmap(1000, 100));
    assert_eq!(taken(&script), [(Cause::Call(Syscall::Munmap), 1010, 3)]);
}

#[test]
fn unmapping_what_was_never_used_flushes_nothing() {
    let mut script = Script::default();
    script.exec().mmap(1000, 100, PRIVATE).call("munmap", &unmap(1000, 100));
    assert_eq!(taken(&script), []);
}

#[test]
fn a_space_older_than_the_trace_may_have_all_of_it_mapped() {
    let mut script = Script::default();
    script.call("munmap", &unmap(1000, 100));
    assert_eq!(taken(&script), [(Cause::Call(Syscall::Munmap), 1000, 100)]);
    assert_eq!(script.read().deduced.most_pages, [u64::MAX]);
    script.mmap(5000, 100, PRIVATE).write([5007]).call("munmap", &unmap(5000, 100));
    assert_eq!(taken(&script)[1..], [(Cause::Call(Syscall::Munmap), 5007, 1)], "but not what it mapped since");
}

#[test]
fn of_what_is_older_the_kernels_own_record_tells() {
    const FLUSH: &str = "tlb:tlb_flush: pages:3 reason:local MM shootdown (3)";
    let enter = "syscalls:sys_enter_munmap: addr: 0x3e8000, len: 0x64000";
    let mut script = Script::default();
    script.one(enter).one(FLUSH).one("syscalls:sys_exit_munmap: 0x0").call("munmap", &unmap(2000, 100));
    assert_eq!(taken(&script), [(Cause::Call(Syscall::Munmap), 1000, 3)], "and in the second call nothing was mapped");
    script.fault([5000], 7).one("tlb:tlb_flush: pages:1 reason:local MM shootdown (3)").fault([5001, 5002], 7);
    assert_eq!(taken(&script)[1..], [(Cause::CopyOnWrite, 5000, 1)], "the other two were the program's alone");
    assert_eq!(script.read().deduced.told, 2);
}

#[test]
fn forbidding_stores_flushes_what_was_stored_to() {
    let mut script = Script::default();
    script.exec().mmap(1000, 16, FILE).fault([1000], 4).fault([1003], 7);
    let protect = |protection: u64| [("start", 1000 << 12), ("len", 16 << 12), ("prot", protection)];
    script.call("mprotect", &protect(1)).call("mprotect", &protect(0));
    let mprotect = Cause::Call(Syscall::Mprotect);
    assert_eq!(taken(&script)[1..], [(mprotect, 1003, 1), (mprotect, 1000, 16)], "forbidding all flushes all of it");
}

#[test]
fn an_older_arena_grows_without_a_flush() {
    let protect = |protection: u64| [("start", 1000 << 12), ("len", 100 << 12), ("prot", protection)];
    let mut script = Script::default();
    script.call("mprotect", &protect(3)).write([1001]).call("mprotect", &protect(1));
    assert_eq!(taken(&script), [(Cause::Call(Syscall::Mprotect), 1001, 1)], "only what was used since is taken");
    let mut script = Script::default();
    script.call("mprotect", &protect(1));
    assert_eq!(taken(&script), [(Cause::Call(Syscall::Mprotect), 1000, 100)]);
}

/// `pages` pages at page `from` become `new_pages` at page `to`.
fn remap(script: &mut Script, [from, pages, new_pages, to]: [u64; 4]) {
    let [at, bytes, new_bytes, to] = [from, pages, new_pages, to].map(|pages| pages << 12);
    script.one(&format!(
        "syscalls:sys_enter_mremap: addr: {at:#x}, old_len: {bytes:#x}, new_len: {new_bytes:#x}, flags: 0x1, \
         new_addr: 0x0"
    ));
    script.one(&format!("syscalls:sys_exit_mremap: {to:#x}"));
}

#[test]
fn a_mapping_grows_and_moves_as_what_it_was() {
    let munmap = Cause::Call(Syscall::Munmap);
    let mut script = Script::default();
    remap(script.exec().mmap(1000, 256, PRIVATE), [1000, 256, 512, 1000]);
    script.fault([1300], 4).call("munmap", &unmap(1000, 512));
    assert_eq!(taken(&script), [(munmap, 1300, 1)], "anonymous memory has no pages around a load");
    for (flags, stores) in [(SHARED, vec![]), (PRIVATE, vec![(Cause::CopyOnWrite, 5000, 1)])] {
        let mut script = Script::default();
        remap(script.exec().mmap(1000, 1, flags), [1000, 1, 2, 5000]);
        script.fault([5000], 4).fault([5000], 7);
        assert_eq!(taken(&script), stores, "a store to shared memory copies nothing: {flags:#x}");
    }
}

#[test]
fn a_call_that_failed_took_nothing() {
    let mut script = Script::default();
    script.exec().mmap(1000, 100, PRIVATE).write([1010]);
    script
        .one("syscalls:sys_enter_munmap: addr: 0x3e8000, len: 0x64000")
        .one("syscalls:sys_exit_munmap: 0xffffffffffffffea");
    assert_eq!(taken(&script), []);
}

#[test]
fn after_a_fork_both_copy_but_the_second_only_once_the_frame_is_shared() {
    let mut script = Script::default();
    script.exec().mmap(1000, 9, PRIVATE).write([1000, 1001]).fork().fault([1000], 7);
    script.at(1, (2, 2), "exceptions:page_fault_user: address=0x3e8000 ip=0x1 error_code=0x7");
    let whole = (Cause::Call(Syscall::Clone), 0, u64::MAX);
    assert_eq!(taken(&script), [whole, (Cause::CopyOnWrite, 1000, 1)], "the child is alone with the old frame");
    let most = script.read().deduced.most_pages;
    assert_eq!(most[most.len() - 1], 2, "the child has the parent's pages from the first moment");
}

const FLUSH_OF_ONE: &str = "tlb:tlb_flush: pages:1 reason:local MM shootdown (3)";

/// Process 1 shares pages 1000 to 1003 with process 2, which begins to end.
fn ending() -> Script {
    let mut script = Script::default();
    script.exec().mmap(1000, 9, PRIVATE).write(1000..1004).fork();
    script.at(1, (2, 2), "sched:sched_process_exit: comm=prog pid=2 prio=120 group_dead=true");
    script
}

/// Process 2 leaves its CPU.
fn leaves(state: &str) -> String {
    format!(
        "sched:sched_switch: prev_comm=prog prev_pid=2 prev_prio=120 prev_state={state} ==> next_comm=swapper/1 \
         next_pid=0 next_prio=120"
    )
}

fn copied(page: u64) -> (Cause, u64, u64) {
    (Cause::CopyOnWrite, page, 1)
}

#[test]
fn the_kernel_tells_what_was_copied_while_the_last_sharer_ended() {
    let mut script = ending();
    script.at(1, (2, 2), &leaves("R"));
    script.fault([1000], 7).one(FLUSH_OF_ONE).fault([1001], 7).fault([1000, 1001], 7);
    assert_eq!(taken(&script)[1..], [copied(1000)], "the second was the parent's alone by then");
    assert_eq!(script.read().deduced.told, 1);
    script.at(1, (2, 2), &leaves("X")).fault([1002], 7).one(FLUSH_OF_ONE);
    assert_eq!(taken(&script)[1..], [copied(1000)], "the sharer is gone for certain");
}

#[test]
fn who_ends_shares_its_pages_until_it_runs_no_more() {
    let mut script = ending();
    script.at(1, (2, 2), &leaves("R")).fault([1000], 7).at(1, (2, 2), &leaves("X")).fault([1001], 7);
    assert_eq!(taken(&script)[1..], [copied(1000)], "no flush was recorded, which could tell");
    let mut script = ending();
    script.at(1, (3, 3), "syscalls:sys_enter_brk: brk: 0x0").fault([1000], 7);
    assert_eq!(taken(&script).len(), 1, "another one runs there, and no switch was recorded");
}

#[test]
fn a_thread_shares_and_copies_nothing() {
    let mut script = Script::default();
    script.exec().mmap(1000, 9, PRIVATE).write([1000]);
    let before = script.read().deduced.spaces;
    script.one("syscalls:sys_enter_clone: clone_flags: 0x3d0f00, newsp: 0x0");
    script.one("sched:sched_process_fork: comm=prog pid=1 child_comm=prog child_pid=2");
    script.one("syscalls:sys_exit_clone: 0x2");
    script.at(1, (1, 2), "exceptions:page_fault_user: address=0x3e9000 ip=0x1 error_code=0x6");
    assert_eq!(taken(&script), []);
    assert_eq!(script.read().deduced.spaces, before);
}

#[test]
fn what_a_thread_does_its_process_is_named_for() {
    let mut script = Script::default();
    script.exec().named("worker", 1, (1, 2), "exceptions:page_fault_user: address=0x3e9000 ip=0x1 error_code=0x6");
    script.one("syscalls:sys_enter_getpid: ");
    let recording = script.read();
    let names: Vec<_> = ops(&recording).iter().map(|op| recording.names().text(op.comm)).collect();
    assert!(names.contains(&"prog") && !names.contains(&"worker"), "{names:?}");
}

#[test]
fn a_store_to_shared_memory_copies_nothing() {
    let mut script = Script::default();
    script.exec().mmap(1000, 9, SHARED).fault([1000], 4).fault([1000], 7);
    assert_eq!(taken(&script), []);
    let mut script = Script::default();
    script.exec().mmap(1000, 9, FILE).fault([1000], 4).fault([1000], 7);
    assert_eq!(taken(&script), [(Cause::CopyOnWrite, 1000, 1)], "to a private file it does");
}

#[test]
fn shared_memory_is_flushed_table_by_table() {
    let mut script = Script::default();
    script.exec().mmap(512, 1024, SHARED).fault([520, 1030], 4).call("munmap", &unmap(512, 1024));
    let munmap = Cause::Call(Syscall::Munmap);
    // Sixteen pages around each fault.
    assert_eq!(taken(&script), [(munmap, 512, 16), (munmap, 1024, 16)]);
}

#[test]
fn madvise_is_told_by_its_advice() {
    let advice = |advice| {
        let mut script = Script::default();
        script.exec().mmap(1000, 9, PRIVATE).write([1000]);
        script.call("madvise", &[("start", 1000 << 12), ("len_in", 4096), ("behavior", advice)]);
        taken(&script)
    };
    assert_eq!(advice(4), [(Cause::DontNeed, 1000, 1)]);
    assert_eq!(advice(24), [(Cause::DontNeed, 1000, 1)], "DONTNEED_LOCKED");
    assert_eq!(advice(4 | 1 << 32), [(Cause::DontNeed, 1000, 1)], "the kernel sees the lower half");
    assert_eq!(advice(8), [(Cause::Free, 1000, 1)]);
    assert_eq!(advice(9), [(Cause::Call(Syscall::Madvise), 1000, 1)], "REMOVE");
    assert_eq!(advice(102), [(Cause::Call(Syscall::Madvise), 1000, 1)], "GUARD_INSTALL");
    assert_eq!(advice(3), [], "WILLNEED takes nothing");
    assert_eq!(advice(21), [], "PAGEOUT takes what can be written elsewhere, which no trace says");
}

#[test]
fn the_heap_shrinks_by_brk() {
    let mut script = Script::default();
    let brk = |script: &mut Script, page: u64| {
        script.one("syscalls:sys_enter_brk: brk: 0x0").one(&format!("syscalls:sys_exit_brk: {:#x}", page << 12));
    };
    script.exec();
    brk(&mut script, 1000);
    brk(&mut script, 1010);
    script.write(1000..1010);
    brk(&mut script, 1004);
    assert_eq!(taken(&script), [(Cause::Call(Syscall::Brk), 1004, 6)]);
}

#[test]
fn a_mapping_that_grows_where_it_is_has_the_pages_that_it_gets() {
    let grown = |backing| {
        let mut script = Script::default();
        script.exec().mmap(1000, 4, backing).write(1000..1004);
        script.one(
            "syscalls:sys_enter_mremap: addr: 0x3e8000, old_len: 0x4000, new_len: 0x8000, flags: 0x1, new_addr: 0x0",
        );
        script.one("syscalls:sys_exit_mremap: 0x3e8000").fault([1005], 4).call("munmap", &unmap(1000, 8));
        taken(&script)[0]
    };
    assert_eq!(grown(PRIVATE), (Cause::Call(Syscall::Munmap), 1000, 6), "a page that is only read comes alone");
    assert_eq!(grown(FILE), (Cause::Call(Syscall::Munmap), 1000, 8), "and of a file with its neighbours");
}

#[test]
fn the_last_thread_retires_its_space() {
    let mut script = Script::default();
    script.exec().write([1000]).one("sched:sched_process_exit: comm=prog pid=1 prio=120 group_dead=true");
    let steps: Vec<_> = ops(&script.read()).iter().map(|op| op.kind).collect();
    assert!(matches!(steps.last(), Some(OpKind::Retire { .. })), "{steps:?}");
}

/// Without the switch by which a thread ends, the time until the next event on its CPU would be its own.
#[test]
fn in_a_recording_of_one_process_a_thread_runs_until_it_says_that_it_ends() {
    let to = |prev: i32, next: i32| {
        let prev = format!("prev_comm=prog prev_pid={prev} prev_prio=120 prev_state=S");
        format!("sched:sched_switch: {prev} ==> next_comm=x next_pid={next} next_prio=120")
    };
    let exit = "sched:sched_process_exit: comm=prog pid=1 prio=120 group_dead=true";
    let ends_as = |script: &Script| {
        let recording = script.read();
        let steps: Vec<_> = ops(&recording).iter().map(|op| op.kind).collect();
        (recording.deduced.coverage, steps[steps.len() - 1] == OpKind::Idle)
    };
    let mut all = Script::default();
    all.exec().write([1000]).one(&to(1, 7)).at(0, (7, 7), &to(7, 1)).write([1001]).one(exit);
    assert_eq!(ends_as(&all), (Coverage::Everybody, false));
    let mut alone = Script::default();
    alone.exec().write([1000]).one(&to(1, 7)).write([1001]).one(exit);
    assert_eq!(ends_as(&alone), (Coverage::SomeProcesses, true));
}

#[test]
fn the_idle_thread_and_the_kernels_threads_run_no_space() {
    let mut script = Script::default();
    let to = |next: i32| {
        let prev = "prev_comm=prog prev_pid=1 prev_prio=120 prev_state=S";
        format!("sched:sched_switch: {prev} ==> next_comm=x next_pid={next} next_prio=120")
    };
    script.exec().write([1000]).one(&to(0)).at(0, (0, 0), &to(7)).at(0, (7, 7), &to(1)).write([1001]);
    let steps: Vec<_> = ops(&script.read()).iter().map(|op| op.kind).collect();
    let idle = steps.iter().filter(|step| **step == OpKind::Idle).count();
    assert_eq!(idle, 2, "{steps:?}");
}

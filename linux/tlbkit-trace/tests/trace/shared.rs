//! The two shared traces: what they hold was counted independently, from their text.

use crate::common::{BUILD, STRESS, drain, shared};
use tlbkit_trace::summary::Cause;
use tlbkit_trace::{FlushReason, FlushSize, Summary, Syscall, open};

fn summary(name: &str) -> (Summary, u64) {
    let mut source = open(&shared(name)).expect("the shared trace");
    let mut summary = Summary::default();
    while let Some(event) = source.next_event().expect("no error") {
        summary.add(&event, source.names());
    }
    assert!(source.health().is_whole() && source.health().unused == 0, "{}", source.health());
    (summary, source.health().events)
}

#[test]
fn the_build_is_counted_as_its_text_says() {
    let (summary, events) = summary(BUILD);
    assert_eq!(events, 247_211);
    let flushes = FlushReason::ALL.map(|reason| summary.flushes(reason));
    assert_eq!(flushes, [2800, 0, 0, 12_074, 766, 74]);
    let switches = summary.sizes(FlushReason::TaskSwitch);
    assert_eq!((switches.of(FlushSize::Pages(0)), switches.of(FlushSize::All)), (2042, 758));
    assert_eq!(summary.sizes(FlushReason::LocalMmShootdown).of(FlushSize::Pages(1)), 10_385);
}

#[test]
fn the_builds_flushes_have_the_causes_that_were_found_when_it_was_recorded() {
    let (summary, _) = summary(BUILD);
    let of = |cause| summary.causes().iter().find(|row| row.0 == cause).map_or(0, |row| row.1);
    let calls = [Syscall::Mprotect, Syscall::Munmap, Syscall::Execve, Syscall::Brk, Syscall::Clone, Syscall::ExitGroup];
    assert_eq!(of(Cause::Fault), 9397);
    assert_eq!(calls.map(|call| of(Cause::Call(call))), [1748, 661, 572, 164, 94, 76]);
}

#[test]
fn processes_and_time_add_up_to_the_whole() {
    let (summary, _) = summary(STRESS);
    let all: u64 = FlushReason::ALL.iter().map(|&reason| summary.flushes(reason)).sum();
    assert_eq!(all, 15_821);
    assert_eq!(summary.processes().iter().map(|row| row.total()).sum::<u64>(), all);
    assert_eq!(summary.series().buckets().iter().flatten().sum::<u64>(), all);
    assert_eq!(summary.cpus().iter().map(|row| row.interrupts).sum::<u64>(), 30);
    assert_eq!(summary.cpus().iter().map(|row| row.ipis_sent_to).sum::<u64>(), 91);
}

#[test]
fn timed_flushes_are_those_that_ran_as_functions() {
    let (summary, _) = summary(BUILD);
    // Flushes between begin and end of flush_tlb_func on the same CPU, counted in the text by another script.
    let timed = |reason| summary.sizes(reason).rows().iter().map(|row| row.timed).sum::<u64>();
    assert_eq!(FlushReason::ALL.map(timed), [95, 0, 0, 686, 0, 74]);
    let flush = summary.calls().into_iter().find(|row| row.flushes > 0).expect("the kernel's flush handler");
    assert_eq!((flush.runs, flush.flushes), (855, 855));
    assert_eq!(summary.shootdown_targets(), 117);
    let floor_ns = summary.floor_ns().expect("other functions ran");
    for row in summary.sizes(FlushReason::LocalMmShootdown).rows() {
        assert!(row.min_ns.is_none_or(|min_ns| min_ns > floor_ns), "{row:?} below {floor_ns} ns");
    }
}

#[test]
fn plain_and_packed_text_are_the_same() {
    let packed = std::fs::File::open(shared(STRESS)).expect("the shared trace");
    let text = zstd::stream::decode_all(packed).expect("packed text");
    let mut source = tlbkit_trace::open_pipe(std::io::Cursor::new(text)).expect("plain text");
    assert_eq!(drain(&mut *source).0.len(), 324_609);
}

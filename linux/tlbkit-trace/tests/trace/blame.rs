//! What a flush is said to cost, on small traces.

use tlbkit_trace::{Blame, open_pipe};

/// One request of a thread on CPU 0, which a thread on CPU 1 answers from 22 to 30 us after the begin; what the asking
/// thread is at comes before and behind it.
fn trace(before: &str, behind: &str) -> String {
    let one = |time_us: u32, event: &str| format!("prog 1/1 [000] 1.{time_us:06}: {event}\n");
    let other = |time_us: u32, event: &str| format!("other 2/2 [001] 1.{time_us:06}: {event}\n");
    let call = "func=flush_tlb_func, csd=0xffff888000000010";
    one(10, before)
        + &one(13, "tlb:tlb_flush: pages:1 reason:remote IPI send (4)")
        + &one(14, &format!("csd:csd_queue_cpu: cpu=1 callsite=on_each_cpu_cond_mask+0x1 {call}"))
        + &one(16, "tlb:tlb_flush: pages:1 reason:local MM shootdown (3)")
        + &other(22, &format!("csd:csd_function_entry: {call}"))
        + &other(30, &format!("csd:csd_function_exit: {call}"))
        + &one(34, behind)
}

fn blame(trace: String) -> Blame {
    let mut source = open_pipe(std::io::Cursor::new(trace.into_bytes())).expect("a trace");
    let mut blame = Blame::default();
    while let Some(event) = source.next_event().expect("a good trace") {
        blame.add(&event, source.names());
    }
    blame
}

/// Microseconds in the calls and of waiting, by row.
fn times_us(trace: String) -> Vec<(u64, u64)> {
    blame(trace).rows().iter().map(|row| (row.counts.called_ns / 1000, row.counts.waited_ns / 1000)).collect()
}

const FAULT: &str = "exceptions:page_fault_user: address=0x3e8000 ip=0x1 error_code=0x7";

#[test]
fn what_a_fault_waits_for_others_is_part_of_its_time() {
    assert_eq!(times_us(trace(FAULT, FAULT)), [(20, 17)], "from the fault to the answer");
}

#[test]
fn a_call_that_waits_counts_that_once() {
    let enter = "syscalls:sys_enter_madvise: start: 0x3e8000, len_in: 0x1000, behavior: 0x4";
    assert_eq!(times_us(trace(enter, "syscalls:sys_exit_madvise: 0x0")), [(24, 17)]);
}

/// A recording of one process has no event of the switch by which its threads end, nor of those that bring them back.
#[test]
fn a_thread_s_time_ends_with_it_whether_its_last_switch_was_recorded_or_not() {
    let at = |tid: u32, time_us: u32, event: &str| format!("prog 1/{tid} [000] 1.{time_us:06}: {event}\n");
    let exit = at(2, 20, "sched:sched_process_exit: comm=prog pid=2 prio=120 group_dead=false");
    let leaves = at(
        2,
        23,
        "sched:sched_switch: prev_comm=prog prev_pid=2 prev_prio=120 prev_state=X ==> next_comm=swapper/0 next_pid=0 \
         next_prio=120",
    );
    let time_us = |trace: String| blame(trace).cpu_ns().values().sum::<u64>() / 1000;
    let (begin, later) = (at(2, 10, FAULT), at(1, 500, FAULT) + &at(1, 507, FAULT));
    assert_eq!(time_us(begin.clone() + &exit + &leaves + &later), 13 + 7);
    assert_eq!(time_us(begin.clone() + &exit + &later), 10 + 7, "who ran from the exit on is not known");
    let elsewhere = format!("other 3/3 [001] 1.000900: {FAULT}\n");
    assert_eq!(time_us(begin + &exit + &elsewhere), 10, "nor at the end");
}

/// Linux records the flush of a switch after the switch, and in the name of the thread before.
#[test]
fn the_flush_of_a_switch_takes_no_time_from_the_thread_that_comes() {
    let switch = |time_us: u32, prev: u32, next: u32| {
        format!(
            "prog 1/{prev} [000] 1.{time_us:06}: sched:sched_switch: prev_comm=prog prev_pid={prev} prev_prio=120 \
             prev_state=S ==> next_comm=prog next_pid={next} next_prio=120\n\
             prog 1/{prev} [000] 1.{:06}: tlb:tlb_flush: pages:0 reason:flush on task switch (0)\n",
            time_us + 1
        )
    };
    let begin = format!("prog 1/1 [000] 1.000000: {FAULT}\n");
    let trace = begin + &switch(10, 1, 2) + &switch(30, 2, 1) + &switch(60, 1, 2);
    assert_eq!(blame(trace).cpu_ns().values().sum::<u64>() / 1000, 61, "all of it, up to the last event");
}

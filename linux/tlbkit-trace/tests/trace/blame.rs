//! What a flush is said to cost, on small traces.

use tlbkit_trace::blame::Samples;
use tlbkit_trace::{Blame, Code, Event, EventKind, FaultMode, FlushReason, FlushSize, Names, Syscall, open_pipe};

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

/// A process that makes events by hand, one a microsecond.
struct Made {
    blame: Blame,
    names: Names,
    time_ns: u64,
}

impl Made {
    fn event(&mut self, pid: i32, kind: EventKind, functions: &str) {
        self.time_ns += 1000;
        let frames: Vec<_> = functions.split_whitespace().map(|text| Code::symbol(self.names.add(text))).collect();
        let stack = self.names.add_stack(&frames);
        let comm = self.names.add("prog");
        let event = Event { time_ns: self.time_ns, cpu: 0, pid, tid: pid, comm, stack, kind };
        self.blame.add(&event, &self.names);
    }

    fn sample(&mut self, pid: i32, functions: &str) {
        self.event(pid, EventKind::Sample { ip: Code::address(0x1) }, functions);
    }

    /// The samples of each cause, by its name.
    fn samples(&self) -> Vec<(String, [u64; 3])> {
        let of = |Samples { sure, or_recording, or_program }| [sure, or_recording, or_program];
        let rows = self.blame.rows();
        let mut all: Vec<_> = rows.iter().map(|row| (row.why.label(&self.names), of(row.counts.samples))).collect();
        all.sort();
        all
    }
}

const FLUSH: EventKind = EventKind::TlbFlush { reason: FlushReason::LocalMmShootdown, size: FlushSize::Pages(1) };
const IN_FAULT: &str = "do_anonymous_page exc_page_fault asm_exc_page_fault";

fn made() -> Made {
    Made { blame: Blame::default(), names: Names::default(), time_ns: 0 }
}

fn fault_at(ip: u64) -> EventKind {
    EventKind::Fault { mode: FaultMode::User, address: 0x3e8000, ip: Code::address(ip), error_code: 6 }
}

#[test]
fn a_sample_belongs_to_the_call_or_the_fault_that_it_was_taken_in() {
    let mut made = made();
    let args = [0x3e8000, 0x1000, 4, 0, 0];
    made.sample(1, "");
    made.event(1, EventKind::Enter { call: Syscall::Madvise, args }, "");
    made.sample(1, "zap_pte_range do_madvise __x64_sys_madvise do_syscall_64");
    made.sample(1, "strnlen perf_event_mmap do_madvise __x64_sys_madvise do_syscall_64");
    made.sample(1, "flush_tlb_mm_range do_madvise __x64_sys_madvise do_syscall_64");
    made.event(1, FLUSH, "");
    made.sample(1, "ktime_get handle_softirqs asm_sysvec_apic_timer_interrupt do_madvise do_syscall_64");
    made.event(1, EventKind::Leave { call: Syscall::Madvise, result: 0 }, "");
    made.event(1, fault_at(0x1), "");
    made.sample(1, IN_FAULT);
    made.sample(1, "exc_page_fault asm_exc_page_fault");
    made.sample(1, "");
    made.sample(1, "vfs_read ksys_read do_syscall_64");
    let wanted = [("madvise DONTNEED", [1, 1, 0]), ("page fault", [1, 1, 1]), ("read", [1, 0, 0])];
    assert_eq!(made.samples(), wanted.map(|(why, samples)| (why.to_owned(), samples)));
    let sampled = made.blame.sampled().values().next().unwrap();
    assert_eq!((sampled.all, sampled.recording, sampled.or_recording, sampled.own), (9, 1, 2, 1));
    let elsewhere: u64 = sampled.elsewhere.values().sum();
    assert_eq!(elsewhere, 2, "the interrupt, and a call of no interest");
}

/// An instruction that faulted once, and then runs for long, is the program's own.
#[test]
fn code_is_a_fault_s_only_just_behind_it() {
    for (ip, later_ns, is_own) in [(0x1, 0, 0), (0x1, 60_000, 1), (0x2, 0, 1), (0xffff_ffff, 0, 1)] {
        let mut made = made();
        made.event(1, fault_at(ip), "");
        made.time_ns += later_ns;
        made.sample(1, "");
        assert_eq!(made.blame.sampled().values().next().unwrap().own, is_own, "{ip:#x}, {later_ns} ns");
    }
    let mut made = made();
    made.event(1, fault_at(0x1), "");
    made.event(1, FLUSH, IN_FAULT);
    made.sample(1, "");
    assert_eq!(made.blame.sampled().values().next().unwrap().own, 1, "something else came between");
}

/// The recorder reads the stack of a program that has no frame pointers, and faults: no doing of the program's.
#[test]
fn a_fault_of_the_recorder_is_none() {
    let mut made = made();
    made.event(1, fault_at(0x1), "");
    let ip = Code::symbol(made.names.add("__get_user_nocheck_8"));
    made.event(1, EventKind::Fault { mode: FaultMode::Kernel, address: 0, ip, error_code: 0 }, "");
    made.sample(1, IN_FAULT);
    assert_eq!(made.samples(), [("page fault".to_owned(), [1, 0, 0])]);
    assert_eq!(made.blame.rows()[0].counts.faults, 1);
}

/// What a fork has copied is taken down again, by the exec or the end of the child.
#[test]
fn a_copy_is_taken_down_for_its_fork() {
    let mut made = made();
    made.event(1, EventKind::Enter { call: Syscall::Clone, args: [0; 5] }, "");
    made.event(1, FLUSH, "");
    made.event(1, EventKind::Fork { parent: 1, child: 2, child_comm: Names::UNKNOWN }, "");
    made.sample(2, "unmap_page_range exit_mmap __mmput begin_new_exec __x64_sys_execve do_syscall_64");
    made.event(2, EventKind::Exec { path: Names::UNKNOWN, tid: 2, old_tid: 2 }, "");
    made.event(2, EventKind::Exit { tid: 2, is_last: true }, "");
    made.sample(2, "unmap_page_range exit_mmap __mmput do_exit");
    let wanted = [("exit_group", [1, 0, 0]), ("fork", [1, 0, 0])];
    assert_eq!(made.samples(), wanted.map(|(why, samples)| (why.to_owned(), samples)));
}

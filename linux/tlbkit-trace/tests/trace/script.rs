//! The text of `perf script`: its variants, and text that is none.

use crate::common::{BUILD, describe_all, drain, shared};
use proptest::prelude::*;
use tlbkit_trace::{Event, EventKind, FlushSize, ScriptReader, Source};

fn lines(text: &str) -> Vec<String> {
    describe_all(&mut ScriptReader::new(text.as_bytes()).expect("text of perf script"))
}

#[test]
fn names_with_spaces_brackets_and_numbers_are_read_whole() {
    let line = "C2 [x] 12 Comp 7/-1 [003] 12.5: sched:sched_process_exit: comm=C2 pid=9 prio=120 group_dead=true\n";
    assert_eq!(lines(line), ["12500000000 [3] C2 [x] 12 Comp 7/-1 Exit { tid: 9, is_last: true } []"]);
    let line = "a b 7/8 [003] 12.5: sched:sched_switch: prev_comm=x prev_pid= y prev_pid=8 prev_prio=1 \
                prev_state=R+ ==> next_comm=kworker/u4:2 next_pid=10 next_prio=120\n";
    assert!(ScriptReader::new(line.as_bytes()).is_err(), "a name that holds a key cannot be told from one");
    let line = "a b 7/8 [003] 12.5: sched:sched_switch: prev_comm=a b prev_pid=8 prev_prio=1 \
                prev_state=R+ ==> next_comm=kworker/u4:2 next_pid=10 next_prio=120\n";
    assert_eq!(lines(line), ["12500000000 [3] a b 7/8 switch 8 a b true -> 10 kworker/u4:2 []"]);
}

#[test]
fn the_default_fields_with_period_and_stacks_are_read() {
    let text = "# comment\n\n\
        swapper     0 [000] 12072.274340:          1 tlb:tlb_flush: pages:-1 reason:flush on task switch (0)\n\
        \tffffffff8134229f switch_mm_irqs_off+0x27f ([kernel.kallsyms])\n\
        \t           fc26f [unknown] (/usr/lib/libc.so.6)\n\n\
        x    5 [001] 12072.274341:          1 tlb:tlb_flush: pages:2 reason:local MM shootdown (3)\n";
    let lines = lines(text);
    assert_eq!(lines[1], "12072274341000 [1] x 5/5 TlbFlush { reason: LocalMmShootdown, size: Pages(2) } []");
    let (event, stack) = lines[0].split_once(" [\"").expect("a stack");
    assert_eq!(event, "12072274340000 [0] swapper 0/0 TlbFlush { reason: TaskSwitch, size: All }");
    assert_eq!(stack, "switch_mm_irqs_off\", \"0xfc26f\"]");
}

#[test]
fn system_calls_masks_and_lost_events_are_read() {
    let text = "x 5/6 [001] 1.000000001: syscalls:sys_enter_mmap: addr: 0x00000000, len: 0x00002000, \
        prot: 0x00000003, flags: 0x00000022, fd: 0xffffffff, off: 0x00000000\n\
        x 5/6 [001] 1.000000002: syscalls:sys_exit_mmap: 0xfffffffffffffff4\n\
        x 5/6 [001] 1.000000003: ipi:ipi_send_cpumask: cpumask=0-3,8 callsite=a+0x1 callback=b+0x0\n\
        x 5/6 [001] 1.000000004: PERF_RECORD_LOST lost 17\n";
    assert_eq!(
        lines(text),
        [
            "1000000001 [1] x 5/6 Enter { call: Mmap, args: [0, 8192, 3, 34, 4294967295] } []",
            "1000000002 [1] x 5/6 Leave { call: Mmap, result: -12 } []",
            "1000000003 [1] x 5/6 send 5 a b []",
            "1000000004 [1] x 5/6 Lost { count: 17 } []",
        ]
    );
}

#[test]
fn a_line_cut_short_is_told_by_its_number() {
    let text = "x 5/6 [001] 1.0: syscalls:sys_exit_brk: 0x0\nx 5/6 [001] 1.0: tlb:tlb_flush: pages:1 rea";
    let mut source = ScriptReader::new(text.as_bytes()).expect("text of perf script");
    assert_eq!(drain(&mut source).0.len(), 1);
    let damage = source.health().damages[0].to_string();
    assert!(damage.starts_with("line 2: a field is missing or has no meaning: \"x 5/6 [001]"), "{damage}");
}

#[test]
fn events_that_are_not_used_are_counted() {
    let text = "x 5 [001] 1.0: block:block_rq_issue: 8,0 W 0\nx 5 [001] 1.0: syscalls:sys_exit_brk: 0x0\n\
                x 5 [001] 1.0: cycles: ffff\n";
    let mut source = ScriptReader::new(text.as_bytes()).expect("text of perf script");
    assert_eq!((drain(&mut source).0.len(), source.health().unused), (1, 2));
}

#[test]
fn a_stack_is_of_the_event_above_it_whether_that_is_used_or_not() {
    let text = "x 5/5 [001] 1.0: cycles: \n\tffffffff81000010 change_prot_numa+0x1 ([kernel.kallsyms])\n\n\
        x 5/5 [001] 1.1: tlb:tlb_flush: pages:1 reason:local MM shootdown (3)\n\tffffffff81000020 ksm_do_scan+0x2\n\n\
        x 5/5 [001] 1.2: tlb:tlb_flush: pages:2 reason:local MM shootdown (3)\n\
        no event\n\tffffffff81000030 compact_zone+0x2\n\n\
        x 5/5 [001] 1.3: tlb:tlb_flush: pages:3 reason:local MM shootdown (3)\n";
    let lines = lines(text);
    let stacks: Vec<_> = lines.iter().map(|line| line.split_once(" } ").expect("a flush").1).collect();
    assert_eq!(stacks, ["[\"ksm_do_scan\"]", "[]", "[]"]);
}

/// How long that takes is the number of steps: for each bracket the whole line, or a few bytes.
#[test]
fn a_line_of_brackets_is_no_event() {
    let first = "x 5/6 [001] 1.0: syscalls:sys_exit_brk: 0x0\n";
    for brackets in ["[".repeat(1 << 16), "1 [".repeat(1 << 14)] {
        let text = [first, &brackets, "\n"].concat();
        let mut source = ScriptReader::new(text.as_bytes()).expect("text of perf script");
        assert_eq!((drain(&mut source).0.len(), source.health().damaged), (1, 1));
    }
    let odd = "a b  2147483647/2147483647   [0000000001] 1.0: syscalls:sys_exit_brk: 0x0\n";
    assert_eq!(lines(odd), ["1000000000 [1] a b 2147483647/2147483647 Leave { call: Brk, result: 0 } []"]);
}

#[test]
fn a_number_that_fits_no_word_is_damage_and_keys_are_whole_words() {
    let line = |pages: &str| format!("x 5/6 [001] 1.0: tlb:tlb_flush: {pages} reason:local MM shootdown (3)\n");
    let lines = ["pages:9223372036854775807", "pages:99999999999999999999", "xpages:1 pages:7", "xpages:1 pages 7"];
    let text: String = lines.map(line).concat();
    let mut source = ScriptReader::new(text.as_bytes()).expect("text of perf script");
    let events = drain(&mut source).0;
    let pages = |event: &Event| match event.kind {
        EventKind::TlbFlush { size: FlushSize::Pages(pages), .. } => pages,
        other => panic!("{other:?}"),
    };
    assert_eq!(events.iter().map(pages).collect::<Vec<_>>(), [9_223_372_036_854_775_807, 7]);
    assert_eq!(source.health().damaged, 2);
}

#[test]
fn a_line_without_end_does_not_fill_the_memory() {
    let mut text = b"x 5/6 [001] 1.0: syscalls:sys_exit_brk: 0x0\n".to_vec();
    text.resize(1 << 20, b'x');
    let mut source = ScriptReader::new(&text[..]).expect("text of perf script");
    assert_eq!(drain(&mut source).0.len(), 1);
    assert_eq!(source.health().damaged, 16);
}

#[test]
fn a_packed_text_cut_short_gives_what_came_before_and_then_says_so() {
    let packed = std::fs::read(shared(BUILD)).expect("the shared trace");
    let half = std::io::Cursor::new(packed[..packed.len() / 2].to_vec());
    let mut source = tlbkit_trace::open_pipe(half).expect("text of perf script");
    let (events, error) = drain(&mut *source);
    assert!(events.len() > 50_000, "{} events", events.len());
    let error = error.expect("an error").to_string();
    assert!(error.starts_with("line ") && error.ends_with("incomplete frame"), "{error}");
}

proptest! {
    /// Whatever the text, reading ends.
    #[test]
    fn no_text_is_fatal(rest in "[ -~\n]{0,400}", event in "(tlb:tlb_flush|sched:sched_switch|ipi:ipi_send_cpumask)") {
        let text = format!("x 5/6 [001] 1.0: syscalls:sys_exit_brk: 0x0\nx 5/6 [001] 1.0: {event}: {rest}");
        let mut source = ScriptReader::new(text.as_bytes()).expect("text of perf script");
        prop_assert!(drain(&mut source).1.is_none());
    }
}

//! `tune` on traces that are written or cut here: what it promises, and what it does not.

mod command;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;

use command::text;
use serde_json::Value;
use tempfile::NamedTempFile;

const BUILD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../linux/tlbkit-trace/tests/data/build-zlib.script.txt.zst");

fn rows(arguments: &[&str]) -> Vec<Value> {
    text(arguments).lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

fn of_kind<'a>(rows: &'a [Value], kind: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["kind"] == kind).collect()
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// The beginning of a trace, as of a file that was not copied to its end.
fn cut(bytes: usize) -> NamedTempFile {
    let mut part = NamedTempFile::new().unwrap();
    part.write_all(&fs::read(BUILD).unwrap()[..bytes]).unwrap();
    part
}

#[test]
fn a_program_reads_how_complete_the_trace_is_before_the_rest_as_it_does_of_a_replay() {
    let part = cut(500_000);
    let part = part.path().to_str().unwrap();
    let tuned = rows(&["--json", "tune", part]);
    let health: Vec<_> = tuned.iter().take_while(|row| row["kind"] == "health").collect();
    let replayed = rows(&["--json", "replay", part, "--policy", "xnu"]);
    let of_trace: Vec<_> = replayed.iter().take_while(|row| row["policy"].is_null()).collect();
    assert!(!health.is_empty() && health.len() == of_trace.len(), "{health:?}");
    for (tuned, replayed) in health.iter().zip(of_trace) {
        assert_eq!(tuned["quantity"], replayed["quantity"]);
        assert_eq!(tuned["value"].as_f64(), replayed["value"].as_f64(), "{tuned}");
    }
    assert!(health.iter().any(|row| row["quantity"] == "cut short" && row["value"] == 1), "{health:?}");
}

/// A program that maps four pages with these flags, stores to them and unmaps them, so many times.
fn maps_and_unmaps(flags: u32, times: usize) -> String {
    let (mut text, mut time_us) = (String::new(), 0);
    let mut say = |event: &str| {
        time_us += 1;
        writeln!(text, "            prog  1/1  [000]  1.{time_us:06}000: {event}").unwrap();
    };
    say("sched:sched_process_exec: filename=/bin/prog pid=1 old_pid=1");
    for _ in 0..times {
        say(&format!(
            "syscalls:sys_enter_mmap: addr: 0x0, len: 0x4000, prot: 0x3, flags: {flags:#x}, fd: 0x3, off: 0x0"
        ));
        say("syscalls:sys_exit_mmap: 0x7f0000000000");
        for page in 0..4 {
            say(&format!(
                "exceptions:page_fault_user: address={:#x} ip=0x1 error_code=0x6",
                0x7f00_0000_0000_u64 + page * 4096
            ));
        }
        say("syscalls:sys_enter_munmap: addr: 0x7f0000000000, len: 0x4000");
        say("tlb:tlb_flush: pages:4 reason:local MM shootdown (3)");
        say("syscalls:sys_exit_munmap: 0x0");
    }
    text
}

#[test]
fn an_allocator_is_promised_to_keep_only_what_may_be_an_allocator_s() {
    let allocators = |flags: u32| {
        let trace = file(&maps_and_unmaps(flags, 500));
        let rows = rows(&["--json", "tune", trace.path().to_str().unwrap()]);
        of_kind(&rows, "setting").iter().filter(|row| row["knob"] == "allocator").count()
    };
    assert_eq!([0x22, 0x2, 0x21].map(allocators), [1, 0, 0], "anonymous memory, a file, shared memory");
}

#[test]
fn a_trace_out_of_order_gets_no_verdict_and_one_line_that_says_why() {
    let reversed: String = maps_and_unmaps(0x22, 500).lines().rev().flat_map(|line| [line, "\n"]).collect();
    let trace = file(&reversed);
    let trace = trace.path().to_str().unwrap();
    let rows = rows(&["--json", "tune", trace]);
    for row in of_kind(&rows, "setting") {
        assert!(row["value"].is_null() && row["high_ms"].is_null(), "no figure: {row}");
        assert!(row["worth"] == "withheld" || !row["moot"].is_null(), "{row}");
    }
    let page = NamedTempFile::new().unwrap();
    let text = text(&["tune", trace, "--html", page.path().to_str().unwrap()]);
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("No verdict: ") && last.contains(" events are out of order, "), "{text}");
    assert!(!text.contains("Flushes cost") && !text.contains("Withheld: "), "{text}");
    assert!(fs::read_to_string(page.path()).unwrap().contains("No verdict: "));
}

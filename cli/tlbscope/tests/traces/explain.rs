//! `explain` on recordings that are kept: what a person sees, and what a program reads.

use std::io::Write;
use std::path::Path;

use crate::command::text;
use crate::{BUILD, SERVICE, STRESS, rows, shared};
use serde_json::Value;

fn of_kind<'a>(rows: &'a [Value], kind: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row["kind"] == kind).collect()
}

#[test]
fn most_of_each_recording_is_attributed() {
    for (name, least_pct) in [(SERVICE, 99.0), (BUILD, 95.0), (STRESS, 95.0)] {
        let rows = rows(&["--json", "explain", &shared(name)]);
        let about = of_kind(&rows, "attribution")[0];
        assert!(about["attributed_pct"].as_f64() > Some(least_pct), "{name}: {about}");
        assert!(about["with_sender_pct"].as_f64() > Some(least_pct), "{name}: {about}");
        let flushes: u64 = of_kind(&rows, "caller").iter().map(|row| row["flushes"].as_u64().unwrap()).sum();
        let asked: u64 = of_kind(&rows, "caller").iter().map(|row| row["asked"].as_u64().unwrap()).sum();
        assert_eq!(flushes + asked, about["shootdowns"], "{name}: each event has one row");
    }
}

#[test]
fn a_flame_graph_has_a_stack_for_each_caller_and_no_other_line() {
    let text = text(&["explain", &shared(SERVICE), "--folded"]);
    for line in text.lines() {
        let (stack, cost) = line.rsplit_once(' ').expect("a stack and its cost");
        assert!(stack.split(';').count() >= 2 && cost.parse::<u64>().is_ok_and(|us| us > 0), "{line}");
    }
    assert!(text.lines().any(|line| line.split(';').count() > 3), "callers are among them: {text}");
}

/// Nobody should look for the reason why each row of an agreement is 0.
#[test]
fn a_trace_without_flushes_says_so_once() {
    let mut trace = tempfile::NamedTempFile::new().unwrap();
    let fault = "exceptions:page_fault_user: address=0x1000 ip=0x1000 error_code=0x6";
    writeln!(trace, "     make     7/7     [000]  1.000000001: {fault}").unwrap();
    for verb in ["replay", "explain"] {
        let text = text(&[verb, trace.path().to_str().unwrap()]);
        let said = "No flush was recorded: the trace has no event tlb:tlb_flush";
        assert_eq!(text.matches(said).count(), 1, "{verb}: {text}");
        assert!(text.contains("1 event, 0 lost") && !text.contains("no reason is known"), "{verb}: {text}");
    }
}

/// A switch of tasks flushes as well, and no row is of it.
#[test]
fn a_trace_with_flushes_of_others_does_not_lack_them() {
    let mut trace = tempfile::NamedTempFile::new().unwrap();
    let switch = "tlb:tlb_flush: pages:-1 reason:flush on task switch (0)";
    writeln!(trace, "     make     7/7     [000]  1.000000001: {switch}").unwrap();
    let text = text(&["explain", "--full", trace.path().to_str().unwrap()]);
    assert!(text.ends_with("No flush of what was asked about.\n") && !text.contains("was recorded"), "{text}");
}

#[test]
fn the_loop_that_protects_is_found_with_its_caller_and_its_victims() {
    let rows = rows(&["--json", "explain", &shared(SERVICE)]);
    let first = of_kind(&rows, "caller")[0];
    assert_eq!((&first["why"], &first["memory"]), (&"mprotect".into(), &"anonymous".into()), "{first}");
    assert_eq!(first["flushes"], 600, "300 times to read-only and back: {first}");
    assert_eq!(first["pages"], 2400, "four pages each: {first}");
    assert!(first["caller"].as_str().is_some_and(|caller| caller.contains('+') || caller.contains("mprotect")));
    assert!(first["remedy"].as_str().unwrap().contains("pkey"), "{first}");
    let interrupted: u64 =
        first["interrupted"].as_array().unwrap().iter().map(|one| one["times"].as_u64().unwrap()).sum();
    assert_eq!((interrupted, &first["asked"]), (600, &600.into()), "{first}");
    assert!(first["waited_ns"].as_u64() > Some(interrupted * 1000), "an answer takes a microsecond: {first}");
    assert!(first["waited_ns"].as_u64() < first["called_ns"].as_u64(), "it waits in its calls: {first}");
    let percent = first["percent_of_program"].as_f64().unwrap();
    assert!((0.1..100.0).contains(&percent), "{first}");
}

/// What is to be read first, and fits a terminal.
#[test]
fn the_verdict_is_one_screen_with_the_cause_the_caller_the_fix_and_its_gain() {
    for name in [SERVICE, BUILD, STRESS] {
        let screen = text(&["explain", &shared(name)]);
        assert!(screen.lines().count() <= 40, "{name}: {screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= 100), "{screen}");
        assert!(screen.contains(" of CPU time") && screen.contains("Recording made it "), "{name}: {screen}");
        assert!(screen.contains("\nNo samples: "), "{name} is older than they are: {screen}");
    }
    let screen = text(&["explain", &shared(SERVICE)]);
    let parts =
        ["service spent ", "\n1. ", " mprotect, anonymous\n", "600 calls of ", "pkey_set", "gain ", "no setting"];
    let places: Vec<_> =
        parts.iter().map(|part| screen.find(part).unwrap_or_else(|| panic!("{part} in {screen}"))).collect();
    assert!(places.is_sorted() && !screen.contains("2. "), "{screen}");
    let rows = rows(&["--json", "explain", &shared(SERVICE)]);
    let (verdict, first) = (of_kind(&rows, "verdict")[0], of_kind(&rows, "cause")[0]);
    assert_eq!((&verdict["subject"], &verdict["is_the_tlb"]), (&"service".into(), &true.into()), "{verdict}");
    let (low, high) = (first["low_pct"].as_f64().unwrap(), first["high_pct"].as_f64().unwrap());
    assert!(0.0 < low && low <= high && high <= verdict["high_pct"].as_f64().unwrap(), "{first}");
    assert!(first["gain_high_pct"].as_f64() <= Some(high), "no fix saves more than there is: {first}");
}

/// A second on a CPU, and one fault of it.
#[test]
fn who_spends_nothing_on_the_tlb_is_told_so() {
    let mut trace = tempfile::NamedTempFile::new().unwrap();
    let line = |time: &str, event: &str| format!("     prog     7/7     [000]  {time}: {event}\n");
    let text = line("1.000000000", "exceptions:page_fault_user: address=0x1000 ip=0x1000 error_code=0x6")
        + &line("1.000002000", "tlb:tlb_flush: pages:1 reason:local MM shootdown (3)")
        + &line("2.000000000", "exceptions:page_fault_user: address=0x2000 ip=0x1000 error_code=0x6");
    trace.write_all(text.as_bytes()).unwrap();
    let screen = self::text(&["explain", trace.path().to_str().unwrap()]);
    assert!(screen.starts_with("Not the TLB: prog spent at most 0.1 % of its 1.00 s of CPU time"), "{screen}");
    assert!(screen.contains("Look elsewhere: ") && !screen.contains("\n1. "), "{screen}");
}

#[test]
fn a_person_sees_the_table_the_callers_and_the_victims() {
    let text = text(&["explain", "--full", &shared(SERVICE)]);
    let parts = ["Attributed: ", "| who and why", "1. service: mprotect, memory: anonymous", "called by: ", "remedy: "];
    let places: Vec<_> =
        parts.iter().map(|part| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"))).collect();
    assert!(places.is_sorted(), "{text}");
    let table: Vec<_> = text.lines().filter(|line| line.starts_with('|')).take(3).map(str::len).collect();
    assert!(table.windows(2).all(|pair| pair[0] == pair[1]), "it aligns: {text}");
    assert!(text.contains("| interrupted |") && text.contains("interrupted: service 600 times"), "{text}");
    let cut = self::text(&["explain", "--full", &shared(BUILD), "--top", "2"]);
    assert!(cut.contains("more rows; --top shows them") && !cut.contains("\n3. "), "{cut}");
}

#[test]
fn processes_and_threads_are_chosen() {
    let build = shared(BUILD);
    let all = rows(&["--json", "explain", &build]);
    let chosen = rows(&["--json", "explain", &build, "--process", "configure"]);
    let of_configure = |rows: &[Value]| -> Vec<Value> {
        let own = of_kind(rows, "caller").into_iter().filter(|row| row["program"] == "configure");
        own.cloned().collect()
    };
    assert!(!of_configure(&all).is_empty());
    assert_eq!(of_configure(&all), of_configure(&chosen));
    assert_eq!(of_kind(&chosen, "caller").len(), of_configure(&chosen).len(), "nobody else");
}

/// Of one thread's flushes little may be known where much is known of all, and the other way round.
#[test]
fn the_attribution_is_that_of_the_whole_trace_also_for_a_thread() {
    let build = shared(BUILD);
    let (all, thread) =
        (rows(&["--json", "explain", &build]), rows(&["--json", "explain", &build, "--thread", "1784"]));
    let (of_all, of_thread) = (of_kind(&all, "attribution")[0], of_kind(&thread, "attribution")[0]);
    for key in ["shootdowns", "with_purpose", "attributed", "answers", "with_sender"] {
        assert_eq!(of_all[key], of_thread[key], "{key}");
    }
    let flushes = |rows: &[Value]| -> u64 {
        let counts =
            of_kind(rows, "caller").into_iter().flat_map(|row| [row["flushes"].as_u64(), row["asked"].as_u64()]);
        counts.map(Option::unwrap).sum()
    };
    assert_eq!((flushes(&all), flushes(&thread)), (12_840, 31));
    let text = text(&["explain", "--full", &build, "--thread", "1784"]);
    assert!(text.contains("the attribution is that of the whole trace") && !text.contains("That is little"), "{text}");
    assert!(!text.contains("Who interrupts whom is known in part"), "{text}");
}

#[test]
fn a_cpu_that_no_machine_has_is_left_out() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cpu.txt");
    let line =
        |cpu: u32, time: &str| format!("x 5/5 [{cpu}] {time}: tlb:tlb_flush: pages:1 reason:local MM shootdown (3)\n");
    std::fs::write(&file, line(u32::MAX - 1, "1.0") + &line(1, "2.0") + &line(1, "7.0")).unwrap();
    let rows = rows(&["--json", "explain", file.to_str().unwrap()]);
    let flushes: Vec<_> = of_kind(&rows, "caller").iter().map(|row| row["flushes"].as_u64().unwrap()).collect();
    assert_eq!(flushes, [2], "{rows:?}");
}

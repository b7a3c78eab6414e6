//! `replay` on the shared traces and on some that are made here: what a person sees, and what a program reads.

use std::path::Path;
use std::{fs, str};

use crate::command::{run, text};
use crate::not_here::is_not_here;
use crate::{BUILD, STRESS, rows, scratch, shared};
use serde_json::Value;
use tlbkit_machine::Machine;

#[test]
fn a_person_reads_a_sentence_with_its_interval_then_eight_rows_then_how_far_to_trust_them() {
    let arguments = ["replay", &shared(BUILD), "--policy", "linux-4.14,linux-6.18:ceiling=0"];
    let short = text(&arguments);
    let sentence = short.lines().next().unwrap();
    assert!(sentence.starts_with("Under linux-4.14 the recorded programs would have used 0.0"), "{short}");
    assert!(sentence.contains("; under linux-6.18:ceiling=0 ") && sentence.ends_with('.'), "{short}");
    assert_eq!(short.lines().filter(|line| line.starts_with('|')).count(), 2 + 8, "{short}");
    let places: Vec<_> = ["| recorded |   linux-6.18 | agrees |", "| own flushes ", "Trust: ", "247211 events, 0 lost"]
        .iter()
        .map(|part| short.find(part).unwrap_or_else(|| panic!("{part} in {short}")))
        .collect();
    assert!(places.is_sorted(), "{short}");
    let full = text(&[&arguments[..], &["--full"]].concat());
    assert!(full.starts_with(&short), "{full}");
    let more: Vec<_> = ["| agreement ", "| quantity ", "| cycles of "].iter().map(|part| full.find(part)).collect();
    assert!(more.is_sorted() && more[0] > Some(short.len()), "{full}");
}

/// Prices that were measured on a busy host are less certain, and nothing is kept back for it.
#[test]
fn a_machine_file_that_warns_of_itself_widens_the_interval() {
    let known = Machine::text("recent-vm").unwrap();
    let file = scratch("cautious.toml");
    fs::write(&file, known.replacen("\ndescription", "\ncaution = \"others\\nwere there\"\ndescription", 1)).unwrap();
    let cost = |machine: &str| {
        let rows = rows(&["--json", "replay", &shared(STRESS), "--machine", machine, "--policy", "xnu"]);
        let all = rows.iter().find(|row| row["quantity"] == "cycles: all").unwrap();
        ["low", "value", "high"].map(|key| all[key].as_f64().unwrap())
    };
    let ([low, value, high], wide) = (cost("recent-vm"), cost(file.to_str().unwrap()));
    assert_eq!(wide.map(f64::round), [low / 2.0, value, high * 2.0].map(f64::round));
    let text = text(&["replay", &shared(STRESS), "--machine", file.to_str().unwrap()]);
    assert!(text.contains("recent-vm says of itself: others\\nwere there\n"), "{text}");
}

#[test]
fn every_row_has_its_range_what_was_recorded_and_how_far_to_trust_it() {
    let rows = rows(&["--json", "replay", &shared(STRESS), "--policy", "linux-4.14"]);
    let keys = ["policy", "quantity", "value", "low", "high", "recorded", "agreement_pct"];
    for row in &rows {
        assert!(keys.iter().all(|key| row.get(key).is_some()) && row.as_object().unwrap().len() == keys.len(), "{row}");
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(number("low") <= number("value") && number("value") <= number("high"), "{row}");
    }
    let of = |policy: &str, quantity: &str| {
        rows.iter().find(|row| row["policy"] == policy && row["quantity"] == quantity).expect(quantity)
    };
    let local = of("linux-6.18", "local mm shootdown");
    assert_eq!(local["recorded"], 12_486);
    assert!(local["agreement_pct"].as_f64() > Some(99.0), "{local}");
    assert_eq!(of("linux-4.14", "local mm shootdown")["agreement_pct"], local["agreement_pct"]);
    let refilling = of("linux-6.18", "cycles: refilling");
    assert!(refilling["low"] == 0.0 && refilling["recorded"].is_null(), "{refilling}");
}

#[test]
fn a_trace_that_is_cut_short_gives_an_answer_that_says_so() {
    let packed = fs::read(shared(BUILD)).unwrap();
    let cut = scratch("cut.script.txt.zst");
    fs::write(&cut, &packed[..packed.len() / 2]).unwrap();
    let text = text(&["replay", cut.to_str().unwrap(), "--policy", "xnu"]);
    assert!(text.contains("\nREAD IN PART (line "), "{text}");
}

#[test]
fn a_pipe_that_ends_early_is_blamed_for_what_came_and_cannot_be_replayed() {
    let (pipe, part) = (scratch("pipe"), scratch("part.tlbtrace"));
    let whole = fs::read(shared("service.tlbtrace")).unwrap();
    // Within the mark at its end: all events are there.
    fs::write(&part, &whole[..whole.len() - 20]).unwrap();
    _ = fs::remove_file(&pipe);
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = run(&["replay", pipe.to_str().unwrap()]);
    let message = str::from_utf8(&output.stderr).unwrap();
    assert!(message.ends_with(": no file that can be read twice, as it must be: copy it into one\n"), "{message}");
    assert_eq!(output.status.code(), Some(2));
    let writer = std::thread::spawn({
        let (pipe, bytes) = (pipe.clone(), fs::read(&part).unwrap());
        move || fs::write(pipe, bytes)
    });
    let from_pipe = text(&["explain", pipe.to_str().unwrap()]);
    writer.join().unwrap().unwrap();
    assert_eq!(from_pipe, text(&["explain", part.to_str().unwrap()]));
    assert!(from_pipe.contains("parts unusable (first: byte "), "{from_pipe}");
}

/// A load whose compiler run is recorded, too: threads that allocate and free.
const LOAD: &str = r#"
fn work(seed: usize) -> usize {
    let (mut state, mut blocks) = (seed, Vec::new());
    for _ in 0..10_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        blocks.push(vec![1u8; 1000 + (state >> 33) % 100_000]);
        if blocks.len() > 20 {
            blocks.drain(..15);
        }
    }
    blocks.len()
}

fn main() {
    let threads: Vec<_> = (1..=4).map(|seed| std::thread::spawn(move || work(seed))).collect();
    assert!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>() > 0);
}
"#;

/// Records a command; false, and a line that says why, if nothing can be recorded here.
fn is_recorded(to: &Path, command: &[&str]) -> bool {
    let output = run(&[&["--json", "record", "-o", to.to_str().unwrap(), "--"], command].concat());
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(is_not_here(&said), "{}: {said}", output.status);
        println!("skipped: {said}");
        return false;
    }
    let row = String::from_utf8(output.stdout).unwrap();
    let row: Value = serde_json::from_str(row.lines().next().unwrap()).expect("the row of the recording is first");
    if row["missing_events"].as_array().is_some_and(|missing| !missing.is_empty()) {
        println!("skipped: this kernel lacks {}", row["missing_events"]);
        return false;
    }
    assert_eq!(row["status"], 0, "{row}");
    true
}

#[test]
fn a_compiler_and_an_allocator_recorded_on_the_spot_are_replayed() {
    let (source, program) = (scratch("load.rs"), scratch("load"));
    fs::write(&source, LOAD).unwrap();
    let (source, program) = (source.to_str().unwrap(), program.to_str().unwrap());
    let (compiler, allocator) = (scratch("compiler.tlbtrace"), scratch("allocator.tlbtrace"));
    let is_here =
        is_recorded(&compiler, &["rustc", "-O", source, "-o", program]) && is_recorded(&allocator, &[program]);
    if !is_here {
        return;
    }
    for trace in [&compiler, &allocator] {
        let rows = rows(&["--json", "replay", trace.to_str().unwrap(), "--policy", "linux-4.14"]);
        let local = rows.iter().find(|row| row["quantity"] == "local mm shootdown").unwrap();
        // What else runs here is older than the recording, and so only guessed: 99 % where nothing else runs.
        assert!(local["agreement_pct"].as_f64() > Some(50.0), "{}: {local}", trace.display());
    }
}

/// The value of a quantity in the first row that has it.
fn value(rows: &[Value], quantity: &str) -> f64 {
    let row = rows.iter().find(|row| row["quantity"] == quantity).expect(quantity);
    row["value"].as_f64().unwrap()
}

#[test]
fn what_is_asked_about_is_told_apart_from_the_machine() {
    let all = rows(&["--json", "replay", &shared(BUILD), "--policy", "linux-4.14"]);
    let own = rows(&["--json", "replay", &shared(BUILD), "--policy", "linux-4.14", "--process", "cc1"]);
    assert_eq!(value(&own, "cycles: all"), value(&all, "cycles: process cc1"));
    assert!(value(&own, "cycles: all") < value(&all, "cycles: all"));
    assert_eq!(value(&own, "local mm shootdown"), value(&all, "local mm shootdown"), "counts are the machine's");
}

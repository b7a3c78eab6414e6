//! `replay` and `tune` on the shared traces: what a person sees, what a program reads, and what is said of bad input.

mod command;
#[path = "command/not_here.rs"]
mod not_here;

use std::path::{Path, PathBuf};
use std::{fs, str};

use command::{run, text};
use not_here::is_not_here;
use serde_json::Value;
use tlbkit_machine::Machine;

const BUILD: &str = "build-zlib.script.txt.zst";
const STRESS: &str = "stress-ng-tlb-shootdown.script.txt.zst";

fn shared(name: &str) -> String {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../linux/tlbkit-trace/tests/data");
    Path::new(data).join(name).display().to_string()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replay");
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    text(arguments).lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

#[test]
fn health_comes_first_then_agreement_then_the_policies_then_the_callers() {
    let text = text(&["replay", &shared(BUILD), "--policy", "linux-4.14,linux-6.18:ceiling=0"]);
    assert!(text.contains("\n\"remote IPI send\" is Linux's name for a flush that has others to ask"), "{text}");
    let places: Vec<_> = ["247211 events, 0 lost", "| agreement ", "| quantity ", "| cycles of "]
        .iter()
        .map(|part| text.find(part).unwrap_or_else(|| panic!("{part} in {text}")))
        .collect();
    assert!(places.is_sorted(), "{text}");
    let heading = text.lines().find(|line| line.starts_with("| quantity")).unwrap();
    let cells: Vec<_> = heading.split('|').map(str::trim).collect();
    assert_eq!(cells, ["", "quantity", "recorded", "linux-6.18", "linux-4.14", "linux-6.18:ceiling=0", ""]);
    let kinds = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(kinds("| process "), 5, "{text}");
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
fn tuning_a_build_finds_nothing_sure_and_says_nothing_is_worth_changing_only_if_so() {
    let path = shared(BUILD);
    let text = text(&["tune", &path]);
    assert!(text.contains("o setting is sure to gain 0.1 % of CPU time"), "{text}");
    // What this machine says of cc1's allocator, and of huge pages, differs from one to the next.
    let has_more = ["\nPerhaps: ", "\nCannot tell: ", "\nWithheld: "].iter().any(|begin| text.contains(begin));
    assert_eq!(text.contains("\nNothing worth changing: "), !has_more, "{text}");
    let rows = rows(&["--json", "tune", &path]);
    let settings: Vec<_> = rows.iter().filter(|row| row["kind"] == "setting").collect();
    let has_way = |row: &Value| {
        let remark = row["remark"].as_str().unwrap();
        let has_command = !row["commands"].as_array().unwrap().is_empty();
        has_command || remark.starts_with("Which allocator calls is not known") || !row["moot"].is_null()
    };
    assert!(settings.iter().all(|row| row["worth"] != "worth trying" && has_way(row)), "{settings:?}");
    let knobs: Vec<_> = settings.iter().map(|row| row["knob"].as_str().unwrap()).collect();
    for knob in ["ceiling", "pcid", "pti", "thp", "allocator"] {
        assert!(knobs.contains(&knob), "{knob} in {knobs:?}");
    }
}

#[test]
fn a_setting_names_what_it_saves_and_a_file_that_warns_of_itself_supports_none() {
    let trace = shared(STRESS);
    let settings = |machine: &str| {
        let rows = rows(&["--json", "tune", &trace, "--machine", machine, "--recorded-by", "linux-6.18:pti=on"]);
        rows.into_iter().filter(|row| row["kind"] == "setting").collect::<Vec<_>>()
    };
    let good = settings("recent-vm");
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap();
    let is_stress = |row: &Value| row["setting"].as_str().unwrap().starts_with("stress-ng-tlb-s keeps");
    assert!(!good.iter().any(is_stress), "what it gives back is shared memory, which no allocator has: {good:?}");
    let build = rows(&["--json", "tune", &shared(BUILD)]);
    let kept = build.iter().find(|row| row["knob"] == "allocator").unwrap();
    assert!(number(kept, "faults_saved") > 1000.0 && number(kept, "calls_saved") > 100.0, "{kept}");
    assert!(number(kept, "value_ms") > 1.0 && number(kept, "low_ms") <= number(kept, "value_ms"), "{kept}");
    let ceiling = good.iter().find(|row| row["knob"] == "ceiling").unwrap();
    assert_eq!(["faults_saved", "flushes_saved", "calls_saved"].map(|key| number(ceiling, key)), [0.0; 3]);
    let text = include_str!("../../../sim/machines/recent-vm.toml");
    let warned = scratch("warned.toml");
    fs::write(&warned, text.replacen("\ndescription", "\ncaution = \"all too noisy\"\ndescription", 1)).unwrap();
    let warned = warned.to_str().unwrap();
    let pti = |rows: &[Value]| rows.iter().find(|row| row["knob"] == "pti").unwrap().clone();
    if !pti(&good)["moot"].is_null() {
        return println!("skipped: the processors of this machine need isolation");
    }
    let worth = |rows: &[Value]| pti(rows)["worth"].clone();
    assert_eq!((worth(&good), worth(&settings(warned))), ("perhaps".into(), "cannot tell".into()));
    let words = self::text(&["tune", &trace, "--machine", warned, "--recorded-by", "linux-6.18:pti=on"]);
    assert!(words.contains("Cannot tell: the machine file says of itself: all too noisy."), "{words}");
}

#[test]
fn tuning_for_a_kernel_with_isolation_finds_it() {
    let rows = rows(&["--json", "tune", &shared(STRESS), "--recorded-by", "linux-6.18:pti=on"]);
    let pti = rows.iter().find(|row| row["knob"] == "pti").unwrap();
    assert!(pti["setting"] == "off" && pti["low"].as_f64() > Some(1.0), "{pti}");
    // What needs a boot no trial applies; and where processors leak without isolation it is no advice at all.
    let worth = if pti["moot"].is_null() { "perhaps" } else { "no" };
    assert_eq!(pti["worth"], worth, "{pti}");
}

#[test]
fn pictures_are_whole_files() {
    let (page, window, tuned) = (scratch("replay.html"), scratch("window.json"), scratch("tune.html"));
    let trace = shared(BUILD);
    let (html, json) = (page.to_str().unwrap(), window.to_str().unwrap());
    text(&["replay", &trace, "--policy", "xnu", "--html", html, "--perfetto", json, "--window", "5"]);
    text(&["tune", &trace, "--html", tuned.to_str().unwrap()]);
    let page = fs::read_to_string(page).unwrap();
    for part in ["Flushes over time", "Flushes of the own space by pages", "Cycles by policy", "Who flushes", "</html>"]
    {
        assert!(page.contains(part), "{part}");
    }
    let tuned = fs::read_to_string(tuned).unwrap();
    assert!(tuned.contains("Gain by ceiling") && tuned.contains("likeliest setting (bar)"), "{tuned}");
    let answer = tuned.find("<p class=\"verdict").expect("the answer in large letters");
    assert!(answer < tuned.find("Priced on").unwrap(), "before everything else");
    let window: Value = serde_json::from_slice(&fs::read(window).unwrap()).unwrap();
    let times: Vec<f64> =
        window["traceEvents"].as_array().unwrap().iter().filter_map(|row| row["ts"].as_f64()).collect();
    let first = times.iter().copied().fold(f64::MAX, f64::min);
    assert!(times.len() > 50 && times.iter().all(|us| us - first <= 5000.0), "{} events", times.len());
}

#[test]
fn a_trace_that_is_cut_short_gives_an_answer_that_says_so() {
    let packed = fs::read(shared(BUILD)).unwrap();
    let cut = scratch("cut.script.txt.zst");
    fs::write(&cut, &packed[..packed.len() / 2]).unwrap();
    let text = text(&["replay", cut.to_str().unwrap(), "--policy", "xnu"]);
    assert!(text.lines().nth(1).unwrap().starts_with("READ IN PART (line "), "{text}");
}

#[test]
fn wrong_input_is_one_line_and_status_2() {
    let (empty, trace) = (scratch("empty"), shared(BUILD));
    // A trace, but of nothing that asks a kernel for anything.
    fs::write(
        &empty,
        "     swapper     0/0     [000]  1.000000001: irq_vectors:call_function_single_entry: vector=251\n",
    )
    .unwrap();
    let noise = scratch("noise");
    fs::write(&noise, [7; 100]).unwrap();
    let (empty, noise) = (empty.to_str().unwrap(), noise.to_str().unwrap());
    let cases: [(&[&str], &str); 7] = [
        (
            &["replay", "/nowhere"],
            "tlbscope: /nowhere: no such file; tlbscope record -o /nowhere -- COMMAND makes one\n",
        ),
        (&["replay", empty], "no event that a replay can use; tlbscope record -o FILE"),
        (&["tune", noise], "begins no trace"),
        (&["replay", &trace, "--policy", "linux-9"], "tlbscope: no policy linux-9; see tlbkit list policies"),
        (&["replay", &trace, "--policy", "xnu:ceiling=x"], "ceiling=x: must be"),
        (
            &["tune", &trace, "--machine", "vax"],
            "tlbscope: no machine vax; see tlbkit list machines, and no such file is there",
        ),
        (&["replay", &trace, "--html", "/nowhere/a.html"], "tlbscope: cannot write /nowhere/a.html: "),
    ];
    for (arguments, part) in cases {
        let output = run(arguments);
        let message = str::from_utf8(&output.stderr).unwrap();
        assert!(message.contains(part) && message.lines().count() == 1, "{arguments:?}: {message}");
        assert_eq!(output.status.code(), Some(2), "{message}");
    }
}

#[test]
fn what_is_no_trace_is_one_line_and_status_2_in_every_verb() {
    let (empty, folder) = (scratch("nothing"), scratch("folder"));
    fs::write(&empty, "").unwrap();
    fs::create_dir_all(&folder).unwrap();
    let program = scratch("program");
    fs::write(&program, b"\x7fELF\x02\x01\x01\0\0\x80\xff\0\x1b[31m").unwrap();
    let absurd = scratch("absurd");
    let number = "9".repeat(40);
    fs::write(&absurd, format!("a 1/1 [000] {number}.5: tlb:tlb_flush: pages:1 reason:local MM shootdown (3)\n"))
        .unwrap();
    for (path, part) in [
        (empty.to_str().unwrap(), ": byte 0: the file is empty\n"),
        (folder.to_str().unwrap(), ": Is a directory (os error 21)\n"),
        (program.to_str().unwrap(), ": byte 0: \"\\x7fELF\\x02\\x01\\x01\\x00...\" begins no trace: want perf.data"),
        (absurd.to_str().unwrap(), ": byte 0: \"a 1/1 [000] 9999"),
        ("/dev/zero", ": "),
    ] {
        for verb in ["explain", "replay", "tune"] {
            let output = run(&[verb, path]);
            let message = str::from_utf8(&output.stderr).unwrap();
            assert!(message.starts_with(&format!("tlbscope: {path}")) && message.contains(part), "{verb}: {message}");
            assert_eq!((message.lines().count(), output.status.code()), (1, Some(2)), "{verb}: {message}");
        }
    }
}

#[test]
fn a_pipe_that_ends_early_is_blamed_for_what_came_and_cannot_be_replayed() {
    let (pipe, part) = (scratch("pipe"), scratch("part.tlbtrace"));
    let whole = fs::read(shared("service.tlbtrace")).unwrap();
    // Within the mark at its end: all events are there.
    fs::write(&part, &whole[..whole.len() - 20]).unwrap();
    _ = fs::remove_file(&pipe);
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for verb in ["replay", "tune"] {
        let output = run(&[verb, pipe.to_str().unwrap()]);
        let message = str::from_utf8(&output.stderr).unwrap();
        assert!(message.ends_with(": no file that can be read twice, as it must be: copy it into one\n"), "{message}");
        assert_eq!(output.status.code(), Some(2));
    }
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
fn a_compiler_and_an_allocator_recorded_on_the_spot_are_replayed_and_tuned() {
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
        // Whatever else runs here is older than the recording, and so only guessed: 99 % where nothing else runs.
        assert!(local["agreement_pct"].as_f64() > Some(50.0), "{}: {local}", trace.display());
    }
    let rows = rows(&["--json", "tune", allocator.to_str().unwrap()]);
    let silent = rows.iter().find(|row| row["knob"] == "allocator").expect("threads give memory back");
    assert!(silent["low"].as_f64() >= Some(0.0), "silence never costs: {silent}");
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

#[test]
fn a_gain_is_of_the_process_and_of_all_programs() {
    let rows = rows(&["--json", "tune", &shared(STRESS), "--process", "stress-ng-tlb-s"]);
    let settings: Vec<_> = rows.iter().filter(|row| row["kind"] == "setting").collect();
    assert!(settings.iter().all(|row| row["about"] == "process stress-ng-tlb-s"), "{rows:?}");
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap();
    let gains: Vec<_> = settings.iter().filter(|row| number(row, "value").abs() > 1e-6).collect();
    assert!(!gains.is_empty(), "{rows:?}");
    for row in gains {
        assert!(number(row, "of_machine").abs() < number(row, "value").abs(), "a part of a part: {row}");
    }
    let text = text(&["tune", &shared(STRESS), "--process", "bash"]);
    assert!(text.contains("gain, of its CPU time") && text.contains("about process bash"), "{text}");
    assert!(!text.contains("stress-ng-tlb-s without"), "another program's calls are not its own: {text}");
}

#[test]
fn no_output_takes_the_place_of_what_is_read_or_of_another_output() {
    let (trace, machine, both) = (scratch("kept.txt.zst"), scratch("kept.toml"), scratch("both"));
    let _ = fs::remove_file(&trace);
    fs::copy(shared(STRESS), &trace).unwrap();
    fs::write(&machine, include_str!("../../../sim/machines/recent-vm.toml")).unwrap();
    let [trace, machine, both] = [&trace, &machine, &both].map(|path| path.to_str().unwrap());
    for (arguments, said) in [
        (&["replay", trace, "--html", trace][..], format!("--html {trace}: is the trace, which is read")),
        (&["replay", trace, "--perfetto", trace], format!("--perfetto {trace}: is the trace, which is read")),
        (&["tune", trace, "--html", trace], format!("--html {trace}: is the trace, which is read")),
        (
            &["tune", trace, "--machine", machine, "--html", machine],
            format!("--html {machine}: is the machine file, which is read"),
        ),
        (
            &["replay", trace, "--html", both, "--perfetto", both],
            format!("--perfetto {both}: --html writes there as well"),
        ),
    ] {
        let output = run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(message, format!("tlbscope: {said}; want another file\n"), "{arguments:?}");
        assert_eq!(output.status.code(), Some(2));
    }
    assert_eq!(fs::read(trace).unwrap(), fs::read(shared(STRESS)).unwrap(), "the trace is as it was");
    assert_eq!(fs::read_to_string(machine).unwrap(), include_str!("../../../sim/machines/recent-vm.toml"));
}

#[test]
fn an_option_that_would_do_nothing_is_refused() {
    let trace = shared(STRESS);
    for (line, said) in [
        ("blame TRACE -- true", "a command and --duration are of --live, and a trace is there already"),
        ("blame TRACE --duration 3", "a command and --duration are of --live, and a trace is there already"),
        ("tune TRACE --pairs 9", "--pairs, --by, --least and --root are of --try, which is not there"),
        ("tune TRACE --by wall", "--pairs, --by, --least and --root are of --try, which is not there"),
    ] {
        let line = line.replace("TRACE", &trace);
        let output = run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("tlbscope: {said}\n"), "{line}");
        assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn what_a_machine_file_says_against_itself_is_said() {
    let known = Machine::text("recent-bare").unwrap();
    let caution = "\ncaution = \"others\\nwere \\u001b[31mthere\"\ndescription";
    let file = scratch("cautious.toml");
    fs::write(&file, known.replacen("\ndescription", caution, 1)).unwrap();
    let trace = shared("stress-ng-tlb-shootdown.script.txt.zst");
    let output = run(&["--json", "replay", &trace, "--machine", file.to_str().unwrap(), "--policy", "xnu"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "tlbscope: machine recent-bare says of itself: others\\nwere \\u{1b}[31mthere\n");
}

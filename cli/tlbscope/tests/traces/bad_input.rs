//! Bad input, in every verb: one clear line, and status 2.

use std::fs;

use crate::command::run;
use crate::{scratch, shared};

/// The line that the command says.
fn refused(arguments: &[&str]) -> String {
    let output = run(arguments);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((message.lines().count(), output.status.code()), (1, Some(2)), "{arguments:?}: {message}");
    message
}

#[test]
fn wrong_arguments_are_one_line() {
    let build = shared("build-zlib.script.txt.zst");
    let live_alone = "tlbscope: a command and --duration are of --live, and a trace is there already";
    for (line, start) in [
        ("explain /nowhere.data", "tlbscope: /nowhere.data: no such file; tlbscope record -o /nowhere.data -- COMMAND"),
        ("explain BUILD --top 0", "tlbscope: --top 0: must be 1 or more"),
        ("explain BUILD --thread 0", "tlbscope: --thread 0: must be 1 or more"),
        ("explain --live", "tlbscope: nobody to watch: want a command after --, or --duration"),
        ("explain BUILD -- true", live_alone),
        ("explain BUILD --duration 3", live_alone),
        ("replay /nowhere", "tlbscope: /nowhere: no such file; tlbscope record -o /nowhere -- COMMAND makes one\n"),
        ("replay BUILD --policy linux-9", "tlbscope: no policy linux-9; see tlbkit list policies"),
        ("replay BUILD --policy xnu:ceiling=x", "tlbscope: policy xnu:ceiling=x: ceiling=x: must be"),
        ("replay BUILD --machine vax", "tlbscope: no machine vax; see tlbkit list machines, and no such file is there"),
        ("record -o /nowhere/a.tlbtrace -- ls", "tlbscope: cannot write /nowhere/a.tlbtrace: "),
        ("record", "tlbscope: nobody to watch: "),
        ("record --all-cpus --duration=0", "tlbscope: --duration 0: must be above 0"),
        ("record --pid 999999999", "tlbscope: --pid 999999999: no such process; ps -e lists"),
    ] {
        let line = line.replace("BUILD", &build);
        let message = refused(&line.split(' ').collect::<Vec<_>>());
        assert!(message.starts_with(start), "{line}: {message}");
    }
}

#[test]
fn what_is_no_trace_is_one_line_in_every_verb() {
    let (empty, folder, noise) = (scratch("nothing"), scratch("folder"), scratch("noise"));
    fs::write(&empty, "").unwrap();
    fs::create_dir_all(&folder).unwrap();
    fs::write(&noise, [7; 100]).unwrap();
    let program = scratch("program");
    fs::write(&program, b"\x7fELF\x02\x01\x01\0\0\x80\xff\0\x1b[31m").unwrap();
    let absurd = scratch("absurd");
    let number = "9".repeat(40);
    fs::write(&absurd, format!("a 1/1 [000] {number}.5: tlb:tlb_flush: pages:1 reason:local MM shootdown (3)\n"))
        .unwrap();
    for (path, part) in [
        (empty.to_str().unwrap(), ": byte 0: the file is empty\n"),
        (folder.to_str().unwrap(), ": Is a directory (os error 21)\n"),
        (noise.to_str().unwrap(), "begins no trace"),
        (program.to_str().unwrap(), ": byte 0: \"\\x7fELF\\x02\\x01\\x01\\x00...\" begins no trace: want perf.data"),
        (absurd.to_str().unwrap(), ": byte 0: \"a 1/1 [000] 9999"),
        ("/dev/zero", ": "),
    ] {
        for verb in ["explain", "replay"] {
            let message = refused(&[verb, path]);
            assert!(message.starts_with(&format!("tlbscope: {path}")) && message.contains(part), "{verb}: {message}");
        }
    }
}

/// A trace, but of nothing that asks a kernel for anything.
#[test]
fn a_trace_that_has_nothing_to_replay_is_refused() {
    let calls = scratch("calls");
    let call = "irq_vectors:call_function_single_entry: vector=251";
    fs::write(&calls, format!("     swapper     0/0     [000]  1.000000001: {call}\n")).unwrap();
    let message = refused(&["replay", calls.to_str().unwrap()]);
    assert!(message.contains("no event that a replay can use; tlbscope record -o FILE"), "{message}");
}

#[test]
fn a_trace_that_ends_before_its_first_event_is_refused() {
    let (whole, cut) = (fs::read(shared("service.tlbtrace")).unwrap(), scratch("cut"));
    for bytes in [200, 9000] {
        fs::write(&cut, &whole[..bytes]).unwrap();
        let message = refused(&["explain", cut.to_str().unwrap()]);
        assert!(message.contains(": no event that can be read"), "{message}");
        assert!(message.contains("; tlbscope record -o FILE -- COMMAND records"), "{message}");
    }
}

#[test]
fn who_is_not_in_the_trace_is_refused_with_those_that_are() {
    for (option, whom, said) in [
        ("--process", "nobody", "--process nobody: no such process in the trace, which has "),
        ("--thread", "999999", "--thread 999999: no such thread in the trace, which has "),
    ] {
        for verb in ["explain", "replay"] {
            let message = refused(&[verb, &shared("service.tlbtrace"), option, whom]);
            assert!(message.contains(said), "{verb}: {message}");
        }
    }
}

//! Recordings of this very machine, compared with what `perf script` itself says about them.

use crate::common::record::{record, record_pipe, script, with};
use crate::common::{describe_all, drain};
use std::io::Cursor;
use tlbkit_trace::{CompactWriter, EventKind, FlushReason, Health, ScriptReader, Summary, open, open_pipe};

const FIELDS: &str = "comm,pid,tid,cpu,time,event,trace";

/// Both readings, event by event. Where one tool knows a function's name and the other does not is no difference in
/// the recording: neither is asked to.
fn compare(ours: &[String], theirs: &[String]) {
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours, theirs);
    }
}

/// On a busy machine perf loses events now and then, and prints nothing of that unless it is asked to.
fn is_lost(line: &str) -> bool {
    line.contains(" Lost {")
}

fn is_map(line: &str) -> bool {
    line.contains(" map 0x")
}

/// On a crowded machine the recorder itself breaks the order that its rounds promise, now and then.
fn check_health(health: &Health) {
    assert_eq!(health.damaged, 0, "{health}");
    assert!(health.late * 100 <= health.events, "{health}");
}

#[test]
fn a_recording_reads_as_perf_script_prints_it() {
    with(record(&[]), |recording| {
        let mut source = open(&recording.file).expect("a recording");
        // What is mapped where is no tracepoint: the text has it only where it is asked for.
        let (maps, mut ours): (Vec<_>, Vec<_>) = describe_all(&mut *source).into_iter().partition(|line| is_map(line));
        ours.retain(|line| !is_lost(line));
        assert!(maps.iter().any(|line| line.contains("/libc")), "every program has it: {maps:?}");
        let text = script(&recording, FIELDS);
        let mut text = ScriptReader::new(&text[..]).expect("text of perf script");
        compare(&ours, &describe_all(&mut text));
        check_health(source.health());
    });
}

#[test]
fn packed_recordings_and_stacks_are_read() {
    with(record(&["-z", "-g"]), |recording| {
        let mut source = open(&recording.file).expect("a recording");
        let mut summary = Summary::default();
        let (mut frames, mut unprinted) = (0, 0);
        while let Some(event) = source.next_event().expect("no error") {
            summary.add(&event);
            unprinted += u64::from(matches!(event.kind, EventKind::Map { .. } | EventKind::Lost { .. }));
            frames += event.stack.map_or(0, |id| source.names().stack(id).len());
        }
        assert!(summary.flushes(FlushReason::LocalMmShootdown) > 0);
        assert!(frames as u64 > source.health().events, "hardly any frames: {frames}");
        let text = script(&recording, "comm,pid,tid,cpu,time,event,ip,sym,trace");
        let mut text = ScriptReader::new(&text[..]).expect("text of perf script");
        let theirs = drain(&mut text).0;
        assert_eq!(theirs.len() as u64 + unprinted, source.health().events);
        assert!(theirs.iter().filter(|event| event.stack.is_some()).count() * 2 > theirs.len());
    });
}

#[test]
fn a_pipe_is_read_as_it_comes() {
    with(record_pipe(), |bytes| {
        let mut source = open_pipe(Cursor::new(bytes)).expect("a pipe");
        let (events, error) = drain(&mut *source);
        assert!(error.is_none() && events.len() > 1000, "{error:?} after {} events", events.len());
        check_health(source.health());
    });
}

#[test]
fn the_compact_form_is_a_tenth_of_the_recording_or_less() {
    with(record(&[]), |recording| {
        let mut source = open(&recording.file).expect("a recording");
        let mut writer = CompactWriter::new(Vec::new()).expect("memory takes it");
        while let Some(event) = source.next_event().expect("no error") {
            writer.add(&event, source.names()).expect("memory takes it");
        }
        let compact = writer.finish(source.health()).expect("memory takes it").len() as u64;
        let original = recording.file.metadata().expect("its size").len();
        println!("{original} bytes recorded, {compact} compact: {:.1} times", original as f64 / compact as f64);
        assert!(compact * 10 <= original, "{compact} of {original} bytes");
    });
}

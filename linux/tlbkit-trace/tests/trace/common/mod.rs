//! What the tests share: recordings made on the spot, `perf.data` files made by hand, and reading to the end.

pub(crate) mod made;
pub(crate) mod record;

use std::path::{Path, PathBuf};
use tlbkit_trace::{Error, Event, Source};

/// One of the two shared traces.
pub(crate) fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub(crate) const BUILD: &str = "build-zlib.script.txt.zst";
pub(crate) const STRESS: &str = "stress-ng-tlb-shootdown.script.txt.zst";

/// All events, and the error that ended them.
pub(crate) fn drain(source: &mut dyn Source) -> (Vec<Event>, Option<Error>) {
    let mut events = Vec::new();
    loop {
        match source.next_event() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, None),
            Err(error) => return (events, Some(error)),
        }
    }
}

/// An event with texts instead of their numbers, so that events of two sources can be compared.
pub(crate) fn describe(event: &Event, source: &dyn Source) -> String {
    let names = source.names();
    let stack: Vec<_> = event.stack.map_or(&[][..], |id| names.stack(id)).iter().map(|&c| names.code(c)).collect();
    let Event { time_ns, cpu, pid, tid, comm, .. } = *event;
    let kind = describe_kind(event, source);
    format!("{time_ns} [{cpu}] {} {pid}/{tid} {kind} {stack:?}", names.text(comm))
}

fn describe_kind(event: &Event, source: &dyn Source) -> String {
    use tlbkit_trace::EventKind;
    let names = source.names();
    match event.kind {
        EventKind::Switch { prev, prev_comm, prev_is_runnable, next, next_comm } => {
            let (prev_comm, next_comm) = (names.text(prev_comm), names.text(next_comm));
            format!("switch {prev} {prev_comm} {prev_is_runnable} -> {next} {next_comm}")
        }
        EventKind::Fork { parent, child, child_comm } => format!("fork {parent} {child} {}", names.text(child_comm)),
        EventKind::Exec { path, tid, old_tid } => format!("exec {} {tid} {old_tid}", names.text(path)),
        EventKind::Fault { mode, address, ip, error_code } => {
            format!("fault {mode:?} {address:#x} {} {error_code}", names.code(ip))
        }
        EventKind::IpiSend { cpu, callsite, callback } => {
            format!("send {cpu} {} {}", names.code(callsite), names.code(callback))
        }
        EventKind::IpiSendMask { targets, callsite, callback } => {
            format!("send {targets} {} {}", names.code(callsite), names.code(callback))
        }
        EventKind::CallQueue { cpu, callsite, func, csd } => {
            format!("queue {cpu} {} {} {csd:#x}", names.code(callsite), names.code(func))
        }
        EventKind::CallRun { edge, func, csd } => format!("run {edge:?} {} {csd:#x}", names.code(func)),
        EventKind::Map { address, bytes, offset, protection, file } => {
            format!("map {address:#x} {bytes:#x} {offset:#x} {protection} {}", names.text(file))
        }
        kind => format!("{kind:?}"),
    }
}

pub(crate) fn describe_all(source: &mut dyn Source) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(event) = source.next_event().expect("no error") {
        lines.push(describe(&event, source));
    }
    lines
}

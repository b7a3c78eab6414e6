//! Draws a window of time of a trace as JSON in Chrome's trace-event format, which Perfetto's viewer opens.
//!
//! Each CPU has a track with the threads that run, interrupts, functions called across CPUs, and flushes. Each thread
//! has a track with its system calls and page faults.

use crate::error::Error;
use crate::event::{Edge, Event, EventKind, Fan, FlushReason, FlushSize, Syscall};
use crate::names::Names;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};
use std::io::Write;
use std::ops::Range;

/// The number of the process under which the viewer shows the tracks of CPUs. No process of Linux has this number.
const CPUS_PID: i64 = -1;

/// Writes the events of a window. Without [`PerfettoWriter::finish`] at the end the file is not valid JSON.
pub struct PerfettoWriter<W> {
    out: W,
    window_ns: Range<u64>,
    is_first: bool,
    named: FxHashSet<(i64, i64)>,
    /// What has begun and not ended on each track, the innermost last. An end without a begin is not drawn.
    open: FxHashMap<(i64, i64), Vec<What>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Running,
    Interrupt,
    Function,
    Call(Syscall),
}

impl<W: Write> PerfettoWriter<W> {
    /// Begins a picture of the window `window_ns`, in nanoseconds of the recording's clock.
    ///
    /// # Errors
    ///
    /// If writing to `out` fails.
    pub fn new(mut out: W, window_ns: Range<u64>) -> Result<Self, Error> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let (named, open) = (FxHashSet::default(), FxHashMap::default());
        let mut new = Self { out, window_ns, is_first: true, named, open };
        new.write(&json!({ "ph": "M", "name": "process_name", "pid": CPUS_PID, "args": { "name": "CPUs" } }))?;
        Ok(new)
    }

    /// Draws `event` if it lies within the window. Its texts are in `names`, the names of its source.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn add(&mut self, event: &Event, names: &Names) -> Result<(), Error> {
        if !self.window_ns.contains(&event.time_ns) {
            return Ok(());
        }
        let cpu = self.cpu_track(event.cpu)?;
        let text = |name| names.text(name).to_owned();
        match event.kind {
            EventKind::Switch { next, next_comm, .. } => {
                self.end(event, cpu, What::Running)?;
                if next != 0 {
                    self.begin(event, cpu, What::Running, &format!("{} {next}", text(next_comm)), json!({}))?;
                }
            }
            EventKind::CallInterrupt { edge: Edge::Begin, fan } => {
                let name = if fan == Fan::Single { "interrupt" } else { "interrupt (one of several)" };
                self.begin(event, cpu, What::Interrupt, name, json!({}))?;
            }
            EventKind::CallInterrupt { edge: Edge::End, .. } => self.end(event, cpu, What::Interrupt)?,
            EventKind::CallRun { edge: Edge::Begin, func, .. } => {
                self.begin(event, cpu, What::Function, &names.code(func), json!({}))?;
            }
            EventKind::CallRun { edge: Edge::End, .. } => self.end(event, cpu, What::Function)?,
            EventKind::TlbFlush { reason, size } => self.flush(event, cpu, reason, size, &text(event.comm))?,
            EventKind::IpiSend { cpu: target, callback, .. } => {
                let args = json!({ "target": target, "callback": names.code(callback) });
                self.instant(event, cpu, "IPI send", args)?;
            }
            EventKind::IpiSendMask { targets, callback, .. } => {
                let args = json!({ "targets": targets, "callback": names.code(callback) });
                self.instant(event, cpu, "IPI send to several", args)?;
            }
            EventKind::Lost { count } => self.instant(event, cpu, "lost events", json!({ "count": count }))?,
            _ => self.add_to_thread(event, names)?,
        }
        Ok(())
    }

    fn add_to_thread(&mut self, event: &Event, names: &Names) -> Result<(), Error> {
        let track = self.thread_track(event, names)?;
        match event.kind {
            EventKind::Enter { call, args } => {
                let names = call.arguments().iter().map(|&name| name.to_owned());
                let args: serde_json::Map<_, _> = names.zip(args.map(|arg| json!(format!("{arg:#x}")))).collect();
                self.begin(event, track, What::Call(call), call.label(), Value::Object(args))
            }
            EventKind::Leave { call, .. } => self.end(event, track, What::Call(call)),
            EventKind::Fault { address, ip, error_code, .. } => {
                let args = json!({
                    "address": format!("{address:#x}"), "ip": names.code(ip), "error_code": error_code
                });
                self.instant(event, track, "page fault", args)
            }
            EventKind::Fork { child, .. } => self.instant(event, track, "fork", json!({ "child": child })),
            EventKind::Exec { path, .. } => self.instant(event, track, "exec", json!({ "path": names.text(path) })),
            EventKind::Exit { .. } => self.instant(event, track, "exit", json!({})),
            _ => Ok(()),
        }
    }

    fn flush(
        &mut self,
        event: &Event,
        track: (i64, i64),
        reason: FlushReason,
        size: FlushSize,
        comm: &str,
    ) -> Result<(), Error> {
        let pages = if let FlushSize::Pages(pages) = size { json!(pages) } else { json!("all") };
        let args = json!({ "pages": pages, "reason": reason.label(), "comm": comm, "pid": event.pid });
        self.instant(event, track, &format!("flush: {}", reason.label()), args)
    }

    fn cpu_track(&mut self, cpu: u32) -> Result<(i64, i64), Error> {
        let track = (CPUS_PID, i64::from(cpu));
        if self.named.insert(track) {
            self.name("thread_name", track, &format!("CPU {cpu}"))?;
        }
        Ok(track)
    }

    fn thread_track(&mut self, event: &Event, names: &Names) -> Result<(i64, i64), Error> {
        let track = (event.pid.into(), event.tid.into());
        if self.named.insert(track) {
            let comm = names.text(event.comm);
            self.name("thread_name", track, comm)?;
            if event.pid == event.tid {
                self.name("process_name", track, comm)?;
            }
        }
        Ok(track)
    }

    fn name(&mut self, what: &str, track: (i64, i64), name: &str) -> Result<(), Error> {
        self.write(&json!({ "ph": "M", "name": what, "pid": track.0, "tid": track.1, "args": { "name": name } }))
    }

    fn begin(&mut self, event: &Event, track: (i64, i64), what: What, name: &str, args: Value) -> Result<(), Error> {
        self.open.entry(track).or_default().push(what);
        let ts = micros(event.time_ns);
        self.write(&json!({
            "ph": "B", "name": name, "pid": track.0, "tid": track.1, "ts": ts, "args": args
        }))
    }

    /// Ends `what`, and all that began within it and whose end was lost.
    fn end(&mut self, event: &Event, track: (i64, i64), what: What) -> Result<(), Error> {
        let open = self.open.entry(track).or_default();
        let Some(at) = open.iter().rposition(|&other| other == what) else { return Ok(()) };
        let ends = open.drain(at..).count();
        for _ in 0..ends {
            self.write(&json!({ "ph": "E", "pid": track.0, "tid": track.1, "ts": micros(event.time_ns) }))?;
        }
        Ok(())
    }

    fn instant(&mut self, event: &Event, track: (i64, i64), name: &str, args: Value) -> Result<(), Error> {
        let ts = micros(event.time_ns);
        self.write(&json!({
            "ph": "i", "s": "t", "name": name, "pid": track.0, "tid": track.1, "ts": ts, "args": args
        }))
    }

    fn write(&mut self, value: &Value) -> Result<(), Error> {
        self.out.write_all(if std::mem::replace(&mut self.is_first, false) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut self.out, value).map_err(std::io::Error::from)?;
        Ok(())
    }

    /// Ends the picture, and returns what was written to. What has not ended by then reaches to the right edge.
    ///
    /// # Errors
    ///
    /// If writing fails.
    pub fn finish(mut self) -> Result<W, Error> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// The time in microseconds, the unit of the format, with nanoseconds behind the point.
fn micros(time_ns: u64) -> f64 {
    time_ns as f64 / 1000.0
}

//! What a trace comes to: how many flushes, why, whose, how large, how long, when, and who was interrupted.
//!
//! A [`Summary`] takes events one by one, in memory that does not grow with the trace.

mod calls;
mod cause;
mod process;
mod series;
mod sizes;
mod timing;

pub use calls::CallRow;
pub use cause::Cause;
pub use process::{ProcessRow, ProgramRow};
pub use series::{Bucket, Series};
pub use sizes::{SizeRow, Sizes};
pub use timing::MOST_CPUS;

use crate::event::{Edge, Event, EventKind, FlushReason, FlushSize};
use crate::names::{Code, Names, StackId};
use calls::Calls;
use cause::Causes;
use process::Processes;
use rustc_hash::FxHashMap;
use std::fmt;
use timing::{Ended, Timing};

/// Interrupts of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuRow {
    /// Function-call interrupts sent to it by name; those sent to several at once are only in
    /// [`Summary::ipis_to_many`].
    pub ipis_sent_to: u64,
    /// Function-call interrupts that it handled.
    pub interrupts: u64,
    /// Flushes that it did because another CPU asked.
    pub remote_flushes: u64,
}

/// What a trace comes to.
#[derive(Default)]
pub struct Summary {
    span_ns: Option<(u64, u64)>,
    sizes: [Sizes; FlushReason::ALL.len()],
    processes: Processes,
    cpus: Vec<CpuRow>,
    ipis_to_many: u64,
    calls: Calls,
    causes: Causes,
    stacks: FxHashMap<StackId, u64>,
    series: Series,
    timing: Timing,
}

impl Summary {
    /// Adds an event; `names` are those of its source.
    pub fn add(&mut self, event: &Event, names: &Names) {
        let (first, last) = self.span_ns.unwrap_or((event.time_ns, event.time_ns));
        self.span_ns = Some((first.min(event.time_ns), last.max(event.time_ns)));
        self.causes.see(event);
        match event.kind {
            EventKind::TlbFlush { reason, size } => self.add_flush(event, reason, size, names),
            EventKind::CallRun { edge: Edge::Begin, .. } => self.timing.begin(event.cpu, event.time_ns),
            EventKind::CallRun { edge: Edge::End, func, .. } => self.end_call(event, func),
            EventKind::CallQueue { func, .. } => self.calls.queue(func),
            EventKind::CallInterrupt { edge: Edge::Begin, .. } => self.on_cpu(event.cpu, |row| row.interrupts += 1),
            EventKind::IpiSend { cpu, .. } => self.on_cpu(cpu, |row| row.ipis_sent_to += 1),
            EventKind::IpiSendMask { targets, .. } => self.ipis_to_many += u64::from(targets),
            _ => {}
        }
    }

    fn add_flush(&mut self, event: &Event, reason: FlushReason, size: FlushSize, names: &Names) {
        self.sizes[reason as usize].count(size);
        self.processes.count(event, reason, names);
        self.causes.count(event, reason);
        self.series.count(event.time_ns, reason);
        self.timing.flush(event.cpu, reason, size);
        if reason == FlushReason::RemoteShootdown {
            self.on_cpu(event.cpu, |row| row.remote_flushes += 1);
        }
        if let Some(stack) = event.stack {
            *self.stacks.entry(stack).or_default() += 1;
        }
    }

    fn end_call(&mut self, event: &Event, func: Code) {
        let Some(ended) = self.timing.end(event.cpu, event.time_ns) else { return };
        self.calls.end(func, ended);
        if let Ended::Flush(reason, size, took_ns) = ended {
            self.sizes[reason as usize].time(size, took_ns);
        }
    }

    fn on_cpu(&mut self, cpu: u32, count: impl FnOnce(&mut CpuRow)) {
        if cpu >= MOST_CPUS {
            return;
        }
        let needed = cpu as usize + 1;
        if self.cpus.len() < needed {
            self.cpus.resize(needed, CpuRow::default());
        }
        count(&mut self.cpus[cpu as usize]);
    }

    /// From the first event to the last, in nanoseconds.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.span_ns.map_or(0, |(first, last)| last - first)
    }

    /// Flushes for `reason`.
    #[must_use]
    pub fn flushes(&self, reason: FlushReason) -> u64 {
        self.sizes[reason as usize].samples()
    }

    /// The sizes and times of flushes for `reason`.
    #[must_use]
    pub fn sizes(&self, reason: FlushReason) -> &Sizes {
        &self.sizes[reason as usize]
    }

    /// Processes, those with the most flushes first.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessRow> {
        self.processes.rows()
    }

    /// Names of processes, those with the most flushes first.
    #[must_use]
    pub fn programs(&self) -> Vec<ProgramRow> {
        self.processes.by_name()
    }

    /// Interrupts by CPU.
    #[must_use]
    pub fn cpus(&self) -> &[CpuRow] {
        &self.cpus
    }

    /// Interrupts that went to several CPUs at once, each counted for each of its targets.
    #[must_use]
    pub fn ipis_to_many(&self) -> u64 {
        self.ipis_to_many
    }

    /// Functions that ran across CPUs, those that ran most first.
    #[must_use]
    pub fn calls(&self) -> Vec<CallRow> {
        self.calls.rows()
    }

    /// Requests to flush, one for each CPU that was asked: those for the functions that did flush.
    #[must_use]
    pub fn shootdown_targets(&self) -> u64 {
        self.calls().iter().filter(|row| row.flushes > 0).map(|row| row.queued).sum()
    }

    /// What flushes of the own space were for, the most frequent first.
    #[must_use]
    pub fn causes(&self) -> Vec<(Cause, u64)> {
        self.causes.rows()
    }

    /// Call stacks that flushed, the most frequent first; empty if the recording has none.
    #[must_use]
    pub fn stacks(&self) -> Vec<(StackId, u64)> {
        let mut rows: Vec<_> = self.stacks.iter().map(|(&stack, &flushes)| (stack, flushes)).collect();
        rows.sort_by_key(|&(stack, flushes)| (std::cmp::Reverse(flushes), stack));
        rows
    }

    /// Flushes over time.
    #[must_use]
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// What the two tracepoints around a function take when the function does next to nothing: the shortest call
    /// across CPUs that was seen without a flush in it. Times of flushes include about as much.
    #[must_use]
    pub fn floor_ns(&self) -> Option<u64> {
        self.timing.floor_ns()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.length_ns() as f64 / 1e9)?;
        for reason in FlushReason::ALL {
            write!(f, ", {}: {}", reason.label(), self.flushes(reason))?;
        }
        Ok(())
    }
}

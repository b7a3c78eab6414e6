//! Sums up a trace: how many flushes there were, why, by whom, how large, how long and when, and who was interrupted.
//!
//! A [`Summary`] takes one event after the other. Its memory does not grow with the length of the trace.

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

/// The function-call interrupts of one CPU.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuRow {
    /// Interrupts that were sent to this CPU alone. Those that went to several CPUs at once are counted only in
    /// [`Summary::ipis_to_many`].
    pub ipis_sent_to: u64,
    /// Interrupts that it handled.
    pub interrupts: u64,
    /// Flushes that it did because another CPU asked for them.
    pub remote_flushes: u64,
}

/// The counts and times of a trace.
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
    /// Counts `event`, whose texts are in `names`, the names of its source.
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

    /// The time from the first event to the last, in nanoseconds.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.span_ns.map_or(0, |(first, last)| last - first)
    }

    /// How many flushes there were for `reason`.
    #[must_use]
    pub fn flushes(&self, reason: FlushReason) -> u64 {
        self.sizes[reason as usize].samples()
    }

    /// The histogram of sizes and times of the flushes for `reason`.
    #[must_use]
    pub fn sizes(&self, reason: FlushReason) -> &Sizes {
        &self.sizes[reason as usize]
    }

    /// The flushes of each process, the processes with the most flushes first.
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessRow> {
        self.processes.rows()
    }

    /// The flushes of all processes of each name, the names with the most flushes first.
    #[must_use]
    pub fn programs(&self) -> Vec<ProgramRow> {
        self.processes.by_name()
    }

    /// The interrupts of each CPU, by its number. CPUs behind the last one that was met are left out.
    #[must_use]
    pub fn cpus(&self) -> &[CpuRow] {
        &self.cpus
    }

    /// How many interrupts went to several CPUs at once, each counted once for each of its targets.
    #[must_use]
    pub fn ipis_to_many(&self) -> u64 {
        self.ipis_to_many
    }

    /// The functions that were called across CPUs, those that ran most often first.
    #[must_use]
    pub fn calls(&self) -> Vec<CallRow> {
        self.calls.rows()
    }

    /// How many requests to flush there were, one for each CPU that was asked. A request counts if its function has
    /// flushed anywhere in the trace.
    #[must_use]
    pub fn shootdown_targets(&self) -> u64 {
        self.calls().iter().filter(|row| row.flushes > 0).map(|row| row.queued).sum()
    }

    /// The causes of the flushes that threads asked for, with the number of flushes of each, the most frequent first.
    #[must_use]
    pub fn causes(&self) -> Vec<(Cause, u64)> {
        self.causes.rows()
    }

    /// The call stacks of flushes with the number of flushes of each, the most frequent first. Empty if the recording
    /// has no stacks.
    #[must_use]
    pub fn stacks(&self) -> Vec<(StackId, u64)> {
        let mut rows: Vec<_> = self.stacks.iter().map(|(&stack, &flushes)| (stack, flushes)).collect();
        rows.sort_by_key(|&(stack, flushes)| (std::cmp::Reverse(flushes), stack));
        rows
    }

    /// The number of flushes over time.
    #[must_use]
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The time that the two tracepoints around a function add to its own, in nanoseconds: the shortest call across
    /// CPUs that was seen without a flush in it. The measured times of flushes include about as much. None if no such
    /// call was seen.
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

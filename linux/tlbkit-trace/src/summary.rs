//! Sums up a trace: how long it is, how many flushes there were, why and how large, and how many CPUs were asked for
//! them. A [`Summary`] takes one event after the other, and its memory does not grow with the length of the trace.

use crate::event::{Edge, Event, EventKind, FlushReason, FlushSize};
use crate::names::Code;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fmt;

/// The most CPUs that a trace may have: no machine on which Linux runs has more. Events of CPUs with higher numbers,
/// which only a hostile trace has, are left out.
pub const MOST_CPUS: u32 = 8192;
/// The largest size that is told apart, in pages. No kernel flushes so many pages one by one.
const MAX_PAGES: u64 = 1 << 12;
/// The most functions that are told apart. A kernel has some tens, and a hostile file cannot make the memory grow
/// further.
const MAX_FUNCTIONS: usize = 1 << 12;
/// How deep calls of functions are followed that run within each other. Interrupts do not nest deeper.
const MAX_DEPTH: usize = 8;

/// The counts of a trace.
#[derive(Default)]
pub struct Summary {
    span_ns: Option<(u64, u64)>,
    sizes: [BTreeMap<FlushSize, u64>; FlushReason::ALL.len()],
    /// Functions that were called across CPUs.
    calls: FxHashMap<Code, Call>,
    /// Of the calls that run on each CPU, the innermost last: whether it has flushed.
    running: Vec<Vec<bool>>,
}

/// A function that was called across CPUs. One that has flushed is the kernel's flush handler, under any name, so that
/// requests can be counted even where the names of functions are hidden.
#[derive(Default)]
struct Call {
    /// How often it was queued, once for each target.
    queued: u64,
    has_flushed: bool,
}

impl Summary {
    /// Counts `event`.
    pub fn add(&mut self, event: &Event) {
        let (first, last) = self.span_ns.unwrap_or((event.time_ns, event.time_ns));
        self.span_ns = Some((first.min(event.time_ns), last.max(event.time_ns)));
        match event.kind {
            EventKind::TlbFlush { reason, size } => self.add_flush(event.cpu, reason, size),
            EventKind::CallRun { edge: Edge::Begin, .. } => self.begin_call(event.cpu),
            EventKind::CallRun { edge: Edge::End, func, .. } => self.end_call(event.cpu, func),
            EventKind::CallQueue { func, .. } => self.on(func, |call| call.queued += 1),
            _ => {}
        }
    }

    fn add_flush(&mut self, cpu: u32, reason: FlushReason, size: FlushSize) {
        let size = if let FlushSize::Pages(pages) = size { FlushSize::Pages(pages.min(MAX_PAGES)) } else { size };
        *self.sizes[reason as usize].entry(size).or_default() += 1;
        // The sender notes that it sends interrupts, which is not a flush.
        let call = self.running.get_mut(cpu as usize).and_then(|calls| calls.last_mut());
        if let Some(has_flushed) = call.filter(|_| reason != FlushReason::RemoteSendIpi) {
            *has_flushed = true;
        }
    }

    fn begin_call(&mut self, cpu: u32) {
        if cpu >= MOST_CPUS {
            return;
        }
        if self.running.len() <= cpu as usize {
            self.running.resize_with(cpu as usize + 1, Vec::new);
        }
        let calls = &mut self.running[cpu as usize];
        // So many open calls mean that events of their ends were lost.
        if calls.len() == MAX_DEPTH {
            calls.clear();
        }
        calls.push(false);
    }

    fn end_call(&mut self, cpu: u32, func: Code) {
        // None if its begin was not seen.
        if let Some(has_flushed) = self.running.get_mut(cpu as usize).and_then(Vec::pop) {
            self.on(func, |call| call.has_flushed |= has_flushed);
        }
    }

    fn on(&mut self, func: Code, count: impl FnOnce(&mut Call)) {
        if self.calls.len() < MAX_FUNCTIONS || self.calls.contains_key(&func) {
            count(self.calls.entry(func).or_default());
        }
    }

    /// The time from the first event to the last, in nanoseconds.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.span_ns.map_or(0, |(first, last)| last - first)
    }

    /// How many flushes there were for `reason`.
    #[must_use]
    pub fn flushes(&self, reason: FlushReason) -> u64 {
        self.sizes[reason as usize].values().sum()
    }

    /// How many flushes for `reason` had exactly this size.
    #[must_use]
    pub fn sized(&self, reason: FlushReason, size: FlushSize) -> u64 {
        self.sizes[reason as usize].get(&size).copied().unwrap_or(0)
    }

    /// How many requests to flush there were, one for each CPU that was asked. A request counts if its function has
    /// flushed anywhere in the trace. None if the trace has no events of calls across CPUs.
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        let flushing = self.calls.values().filter(|call| call.has_flushed);
        (!self.calls.is_empty()).then(|| flushing.map(|call| call.queued).sum())
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

#[cfg(test)]
mod tests {
    use super::*;

    const FLUSHING: Code = Code(1);
    const OTHER: Code = Code(2);

    #[test]
    fn requests_are_those_of_functions_that_flush_in_their_own_calls() {
        let mut summary = Summary::default();
        assert_eq!(summary.requests(), None, "no event of a call");
        for func in [FLUSHING, FLUSHING, OTHER] {
            summary.on(func, |call| call.queued += 1);
        }
        summary.begin_call(0);
        summary.add_flush(1, FlushReason::LocalMmShootdown, FlushSize::All);
        summary.add_flush(0, FlushReason::RemoteSendIpi, FlushSize::All);
        summary.end_call(0, OTHER);
        assert_eq!(summary.requests(), Some(0), "another CPU's flush, and a sender's note");
        summary.begin_call(0);
        summary.begin_call(0);
        summary.end_call(0, OTHER);
        summary.add_flush(0, FlushReason::RemoteShootdown, FlushSize::Pages(3));
        summary.end_call(0, FLUSHING);
        summary.end_call(0, OTHER);
        assert_eq!(summary.requests(), Some(2), "an inner call does not end the outer, and nothing is open at the end");
        assert_eq!(summary.flushes(FlushReason::RemoteShootdown), 1);
    }

    #[test]
    fn absurd_sizes_and_cpus_take_no_memory_without_end() {
        let mut summary = Summary::default();
        (0..100_000).for_each(|pages| summary.add_flush(0, FlushReason::TaskSwitch, FlushSize::Pages(pages)));
        assert_eq!(summary.sizes[FlushReason::TaskSwitch as usize].len() as u64, MAX_PAGES + 1);
        assert_eq!(summary.flushes(FlushReason::TaskSwitch), 100_000);
        (0..100).for_each(|_| summary.begin_call(u32::MAX));
        (0..100).for_each(|_| summary.begin_call(3));
        assert!(summary.running.len() == 4 && summary.running[3].len() <= MAX_DEPTH);
    }
}

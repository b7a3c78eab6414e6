//! What the flushes of each process cost itself and others, from four tracepoints alone: `tlb:tlb_flush` and the three
//! of calls across CPUs. For those who watch all the time, and cannot afford to record why.

use super::Interrupted;
use super::request::{Place, Requests};
use crate::event::{Edge, Event, EventKind, FlushReason, FlushSize};
use rustc_hash::FxHashMap;

/// What one process did since the counts were last taken, and whom it met.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Shootdown {
    /// How often its threads flushed.
    pub flushes: u64,
    /// How many pages these flushes invalidated one by one.
    pub pages: u64,
    /// How many of them flushed everything.
    pub everything: u64,
    /// How often other CPUs were asked to flush.
    pub asked: u64,
    /// The time from asking to the last answer, in nanoseconds, summed up.
    pub waited_ns: u64,
    /// Which processes were interrupted, by their numbers; 0 stands for idle CPUs.
    pub interrupted: FxHashMap<i32, Interrupted>,
}

/// The counts of all processes, by their numbers.
#[derive(Default)]
pub struct Shootdowns {
    requests: Requests<i32>,
    processes: FxHashMap<i32, Shootdown>,
}

impl Shootdowns {
    /// Takes an event. Events must come in order of time.
    pub fn add(&mut self, event: &Event) {
        match event.kind {
            EventKind::TlbFlush { reason, size } => self.flush(event, reason, size),
            EventKind::CallQueue { csd, .. } => self.requests.queue(event.cpu, event.tid, csd),
            EventKind::CallRun { edge: Edge::Begin, csd, .. } => {
                if let Some(of) = self.requests.begin(event.cpu, csd, event.time_ns) {
                    self.process(of).interrupted.entry(event.pid).or_default().times += 1;
                }
            }
            EventKind::CallRun { edge: Edge::End, .. } => {
                if let Some(answered) = self.requests.end(event.cpu, event.time_ns) {
                    let process = self.process(answered.of);
                    process.waited_ns = process.waited_ns.saturating_add(answered.waited_ns);
                    let took = Interrupted { times: 0, took_ns: answered.took_ns };
                    process.interrupted.entry(event.pid).or_default().add(&took);
                }
            }
            _ => {}
        }
    }

    fn process(&mut self, pid: i32) -> &mut Shootdown {
        self.processes.entry(pid).or_default()
    }

    fn flush(&mut self, event: &Event, reason: FlushReason, size: FlushSize) {
        let process = self.processes.entry(event.pid);
        match (reason, size) {
            (FlushReason::RemoteSendIpi, _) => {
                process.or_default().asked += 1;
                self.requests.send(event.cpu, event.tid, event.pid, event.time_ns, Place::InACall);
            }
            (FlushReason::LocalMmShootdown | FlushReason::LocalShootdown, size) => {
                let process = process.or_default();
                process.flushes += 1;
                match size {
                    FlushSize::Pages(pages) => process.pages = process.pages.saturating_add(pages),
                    FlushSize::All => process.everything += 1,
                }
            }
            _ => {}
        }
    }

    /// The counts of all processes that had any since the last call.
    pub fn take(&mut self) -> FxHashMap<i32, Shootdown> {
        std::mem::take(&mut self.processes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Code, Names};

    #[test]
    fn a_shootdown_costs_its_process_the_wait_and_the_other_the_handler() {
        let mut shootdowns = Shootdowns::default();
        let mut add = |time_ns, cpu, pid, kind| {
            shootdowns.add(&Event { time_ns, cpu, pid, tid: pid, comm: Names::UNKNOWN, stack: None, kind });
        };
        let (func, callsite) = (Code::address(1), Code::address(2));
        let flush = |reason| EventKind::TlbFlush { reason, size: FlushSize::Pages(4) };
        add(100, 0, 7, flush(FlushReason::RemoteSendIpi));
        add(110, 0, 7, EventKind::CallQueue { cpu: 1, callsite, func, csd: 9 });
        add(150, 1, 8, EventKind::CallRun { edge: Edge::Begin, func, csd: 9 });
        add(155, 1, 8, flush(FlushReason::RemoteShootdown));
        add(160, 1, 8, EventKind::CallRun { edge: Edge::End, func, csd: 9 });
        add(170, 0, 7, flush(FlushReason::LocalMmShootdown));
        add(180, 0, 7, flush(FlushReason::TaskSwitch));
        let mut taken = shootdowns.take();
        let interrupted = FxHashMap::from_iter([(8, Interrupted { times: 1, took_ns: 10 })]);
        let wanted = Shootdown { flushes: 1, pages: 4, asked: 1, waited_ns: 60, interrupted, everything: 0 };
        assert_eq!(taken.remove(&7), Some(wanted));
        assert!(shootdowns.take().is_empty());
    }
}

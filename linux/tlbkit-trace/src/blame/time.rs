//! The CPU time of threads and programs, counted from switch to switch; and to which process a thread belongs.

use crate::event::{Event, EventKind, MAX_THREADS};
use crate::names::{Name, Names};
use rustc_hash::FxHashMap;

/// The most threads, and the most processes, whose time is counted. The time of further ones is left out.
const MAX_ENTRIES: usize = 1 << 18;

/// A process and the program that it runs: whose time or flushes something is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    /// Number of the process.
    pub pid: i32,
    /// Name of its main thread at that time, which is mostly that of the program.
    pub program: Name,
}

#[derive(Clone, Copy)]
struct Running {
    tid: i32,
    owner: Owner,
    since_ns: u64,
    /// When the last event of the thread on this CPU happened, in nanoseconds.
    seen_ns: u64,
    /// Whether the thread has begun to end. A recording of one process does not say when it has left the CPU.
    is_ending: bool,
}

/// The CPU time that was used so far.
#[derive(Default)]
pub(super) struct Times {
    running: FxHashMap<u32, Running>,
    threads: FxHashMap<i32, u64>,
    owners: FxHashMap<Owner, u64>,
}

impl Times {
    /// An event says that the thread runs on this CPU. If the thread before it was not seen to leave, that one's time
    /// ends with its last event, since nothing says who ran in between.
    pub(super) fn runs(&mut self, cpu: u32, tid: i32, owner: Owner, now_ns: u64) {
        let now = Running { tid, owner, since_ns: now_ns, seen_ns: now_ns, is_ending: false };
        let running = self.running.entry(cpu).or_insert(now);
        running.seen_ns = if running.tid == tid { running.seen_ns.max(now_ns) } else { running.seen_ns };
        if running.tid == tid && (running.owner == owner || running.owner.pid != owner.pid) {
            // It is the same stretch of running: only the process of the thread was not known before.
            running.owner = owner;
            return;
        }
        let before = std::mem::replace(running, now);
        self.charge(before, before.seen_ns);
    }

    /// The thread begins to end, if it runs on this CPU.
    pub(super) fn ends(&mut self, cpu: u32, tid: i32) {
        if let Some(running) = self.running.get_mut(&cpu).filter(|running| running.tid == tid) {
            running.is_ending = true;
        }
    }

    fn charge(&mut self, before: Running, now_ns: u64) {
        let ns = now_ns.saturating_sub(before.since_ns);
        if before.tid == 0 {
            return;
        }
        if self.threads.len() < MAX_ENTRIES || self.threads.contains_key(&before.tid) {
            let sum = self.threads.entry(before.tid).or_default();
            *sum = sum.saturating_add(ns);
        }
        if self.owners.len() < MAX_ENTRIES || self.owners.contains_key(&before.owner) {
            let sum = self.owners.entry(before.owner).or_default();
            *sum = sum.saturating_add(ns);
        }
    }

    /// The CPU time that the thread has used up to `now_ns`, in nanoseconds, if it runs on this CPU.
    pub(super) fn of_thread(&self, tid: i32, cpu: u32, now_ns: u64) -> u64 {
        let now = self.running.get(&cpu).filter(|running| running.tid == tid);
        let open = now.map_or(0, |running| now_ns.saturating_sub(running.since_ns));
        self.threads.get(&tid).copied().unwrap_or(0).saturating_add(open)
    }

    /// The CPU time of each process and program up to `now_ns`, in nanoseconds.
    pub(super) fn owners(&self, now_ns: u64) -> FxHashMap<Owner, u64> {
        let mut owners = self.owners.clone();
        for running in self.running.values().filter(|running| running.tid != 0) {
            let until_ns = if running.is_ending { running.seen_ns } else { now_ns };
            let sum = owners.entry(running.owner).or_default();
            *sum = sum.saturating_add(until_ns.saturating_sub(running.since_ns));
        }
        owners
    }
}

/// To which process a thread belongs, and what the process is called.
///
/// All threads and processes of which events have told.
#[derive(Default)]
pub(super) struct People {
    process: FxHashMap<i32, i32>,
    /// The name of the main thread of each process.
    programs: FxHashMap<i32, Name>,
}

impl People {
    /// Learns from an event, and returns the process that it belongs to.
    pub(super) fn meet(&mut self, event: &Event) -> Owner {
        // The event of a thread that has ended names no process any more. The one that it had before is meant.
        if event.pid > 0 {
            if self.process.len() >= MAX_THREADS {
                self.process.clear();
                self.programs.clear();
            }
            self.process.insert(event.tid, event.pid);
        }
        if event.pid == event.tid && event.comm != Names::UNKNOWN {
            self.programs.insert(event.pid, event.comm);
        }
        if let EventKind::Fork { child, .. } = event.kind {
            self.process.remove(&child);
            self.programs.remove(&child);
        }
        self.owner(event.tid, event.comm)
    }

    /// The process of the thread `tid`, whose name is `comm`. If its process is not known, the thread stands for it.
    pub(super) fn owner(&self, tid: i32, comm: Name) -> Owner {
        let pid = self.process.get(&tid).copied().unwrap_or(tid);
        Owner { pid, program: self.programs.get(&pid).copied().unwrap_or(comm) }
    }
}

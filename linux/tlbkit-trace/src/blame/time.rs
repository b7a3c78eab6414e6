//! CPU time of threads and programs, from the switches.

use crate::names::Name;
use rustc_hash::FxHashMap;

/// More threads or processes than this are not told apart.
const MAX_ENTRIES: usize = 1 << 18;

/// Whose time it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Owner {
    /// Process.
    pub pid: i32,
    /// Name of its main thread at that time.
    pub program: Name,
}

#[derive(Clone, Copy)]
struct Running {
    tid: i32,
    owner: Owner,
    since_ns: u64,
    /// When it was last seen there.
    seen_ns: u64,
    /// It has said that it ends. In a recording of one process nothing says when it has left.
    is_ending: bool,
}

/// CPU time so far.
#[derive(Default)]
pub(super) struct Times {
    running: FxHashMap<u32, Running>,
    threads: FxHashMap<i32, u64>,
    owners: FxHashMap<Owner, u64>,
}

impl Times {
    /// The thread runs on this CPU, as an event of its says. If the one before it was not seen to leave, its time there
    /// ends with its last event: what came between may be anybody's.
    pub(super) fn runs(&mut self, cpu: u32, tid: i32, owner: Owner, now_ns: u64) {
        let now = Running { tid, owner, since_ns: now_ns, seen_ns: now_ns, is_ending: false };
        let running = self.running.entry(cpu).or_insert(now);
        running.seen_ns = if running.tid == tid { running.seen_ns.max(now_ns) } else { running.seen_ns };
        if running.tid == tid && (running.owner == owner || running.owner.pid != owner.pid) {
            // Whose thread it is was not known yet.
            running.owner = owner;
            return;
        }
        let before = std::mem::replace(running, now);
        self.charge(before, before.seen_ns);
    }

    /// The thread, which runs on this CPU, begins to end.
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

    /// CPU time of the thread, which runs on this CPU now.
    pub(super) fn of_thread(&self, tid: i32, cpu: u32, now_ns: u64) -> u64 {
        let now = self.running.get(&cpu).filter(|running| running.tid == tid);
        let open = now.map_or(0, |running| now_ns.saturating_sub(running.since_ns));
        self.threads.get(&tid).copied().unwrap_or(0).saturating_add(open)
    }

    /// CPU time by process and program, until `now_ns`.
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

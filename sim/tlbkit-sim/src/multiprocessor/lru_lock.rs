//! The lock of a memory node's LRU lists, and the lines that it guards.
//!
//! Linux keeps the pages of a node in LRU lists under one lock (the `lruvec` of its mm/swap.c). The CPU that holds it
//! changes the head of a list, the page that was first or next in it, and counters of the node. So three lines move
//! with the lock if another CPU had it before. A CPU that waits for it spins on a separate line with interrupts off,
//! which is one move more (kernel/locking/qspinlock.c). Each socket is a node. The lock is given in the order of
//! arrival.

use std::cell::Cell;

use super::linux_lines::LinuxLine;

/// Lines that move with the lock: the lock, the head of a list, the page next to it, and counters.
const LINES: usize = 4;

/// The CPU that took the lock last, and when it releases it.
#[derive(Clone, Copy, Debug, Default)]
struct LastHolder {
    cpu: usize,
    free_at: u64,
}

/// The locks, by node.
#[derive(Debug)]
pub(super) struct LruLocks(Box<[Cell<LastHolder>]>);

impl LruLocks {
    pub(super) fn new(nodes: usize) -> Self {
        Self(vec![Cell::default(); nodes].into())
    }

    /// When another CPU releases the lock of `node`, if that is after `now`.
    pub(super) fn others_until(&self, node: usize, cpu: usize, now: u64) -> Option<u64> {
        let hold = self.0[node].get();
        (hold.cpu != cpu && hold.free_at > now).then_some(hold.free_at)
    }

    /// The CPU takes the lock.
    pub(super) fn take(&self, node: usize, cpu: usize, now: u64) {
        let free_at = self.0[node].get().free_at.max(now);
        self.0[node].set(LastHolder { cpu, free_at });
    }

    /// The CPU keeps the lock for `cycles` more. If another CPU has it by now, as can be when many pages are freed at
    /// once, these cycles keep no CPU waiting.
    pub(super) fn keep(&self, node: usize, cpu: usize, now: u64, cycles: u64) {
        let hold = self.0[node].get();
        if hold.cpu == cpu {
            self.0[node].set(LastHolder { cpu, free_at: hold.free_at.max(now) + cycles });
        }
    }

    /// The CPU releases the lock at `time` at the earliest.
    pub(super) fn keep_until(&self, node: usize, cpu: usize, time: u64) {
        let hold = self.0[node].get();
        if hold.cpu == cpu {
            self.0[node].set(LastHolder { cpu, free_at: hold.free_at.max(time) });
        }
    }

    /// The place of the lock itself in [`lines`](Self::lines).
    pub(super) const LOCK: usize = 0;

    /// The lines that move with the lock of `node`.
    pub(super) fn lines(node: usize) -> impl Iterator<Item = LinuxLine> {
        (0..LINES).map(move |part| LinuxLine::LruLock(node * LINES + part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_lock_keeps_others_waiting_and_not_itself() {
        let locks = LruLocks::new(2);
        locks.take(1, 7, 100);
        locks.keep(1, 7, 100, 50);
        assert_eq!(locks.others_until(1, 8, 120), Some(150));
        assert_eq!(locks.others_until(1, 7, 120), None);
        assert_eq!(locks.others_until(0, 8, 120), None, "another node");
        locks.keep(1, 7, 120, 10);
        assert_eq!(locks.others_until(1, 8, 120), Some(160), "it goes on");
        locks.keep_until(1, 7, 170);
        assert_eq!(locks.others_until(1, 8, 160), Some(170), "not before its stores are seen");
        locks.keep_until(1, 7, 165);
        locks.keep_until(1, 8, 1000);
        assert_eq!(locks.others_until(1, 8, 160), Some(170), "it is later anyway, or not its lock");
        locks.take(1, 8, 170);
        locks.keep(1, 7, 170, 1000);
        assert_eq!(locks.others_until(1, 9, 175), None, "who has it no more holds nobody up");
    }

    #[test]
    fn nodes_share_no_line() {
        let all: std::collections::BTreeSet<_> = (0..3).flat_map(LruLocks::lines).map(LinuxLine::name).collect();
        assert_eq!(all.len(), 3 * LINES);
    }
}

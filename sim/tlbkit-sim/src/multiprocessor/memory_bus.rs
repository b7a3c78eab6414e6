//! The memory of each socket: the pages that its CPUs zero and copy share what its channels carry.
//!
//! A page that the socket's last-level cache still has passes no channel. A cache still has a page that was filled
//! before, if since then fewer pages were filled from this socket than the cache holds. Pages that programs read and
//! write push nothing out, and pass no channel.

use std::cell::{Cell, RefCell};

use crate::machine::Machine;

/// Bytes of a page.
const PAGE: f64 = 4096.0;
const PAGE_KIB: u64 = 4;

/// When a page was last filled: from which socket, as the how manieth page there.
#[derive(Clone, Copy)]
struct Fill {
    socket: u32,
    turn: u64,
}

/// What one socket has.
#[derive(Debug, Default)]
struct Socket {
    /// Pages filled so far.
    filled: Cell<u64>,
    /// When its channels have carried all that was given to them.
    free_at: Cell<f64>,
}

/// The memory of all sockets, where the machine's file says what it carries.
pub(super) struct MemoryBus {
    cycles_per_page: f64,
    cached_pages: u64,
    sockets: Box<[Socket]>,
    /// By the number of the page.
    last: RefCell<Vec<Option<Fill>>>,
}

impl MemoryBus {
    pub(super) fn of(machine: &Machine, sockets: usize) -> Option<Self> {
        let memory = machine.memory.as_ref()?;
        let bytes_per_cycle = memory.socket_gb_per_s.value * 1e3 / machine.system.frequency_mhz.value;
        Some(Self::new(PAGE / bytes_per_cycle, memory.last_level_kib.count() as u64 / PAGE_KIB, sockets))
    }

    fn new(cycles_per_page: f64, cached_pages: u64, sockets: usize) -> Self {
        let sockets = (0..sockets).map(|_| Socket::default()).collect();
        Self { cycles_per_page, cached_pages, sockets, last: RefCell::default() }
    }

    /// A CPU of `socket` begins at `now` to fill the page of this number; returns when the channels have carried it.
    pub(super) fn fill(&self, socket: usize, page: usize, now: u64) -> u64 {
        let at = &self.sockets[socket];
        let turn = at.filled.get();
        at.filled.set(turn + 1);
        let before = self.note(page, Fill { socket: socket as u32, turn });
        let is_cached =
            before.is_some_and(|fill| fill.socket as usize == socket && turn - fill.turn <= self.cached_pages);
        if is_cached && self.cached_pages > 0 {
            return now;
        }
        let free_at = at.free_at.get().max(now as f64) + self.cycles_per_page;
        at.free_at.set(free_at);
        free_at.round() as u64
    }

    /// Remembers this fill in place of the last one.
    fn note(&self, page: usize, fill: Fill) -> Option<Fill> {
        let mut last = self.last.borrow_mut();
        if last.len() <= page {
            last.resize(page + 1, None);
        }
        last[page].replace(fill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_one_socket_follow_each_other_and_those_of_another_do_not_wait() {
        let bus = MemoryBus::new(100.5, 0, 2);
        assert_eq!(bus.fill(0, 1, 1000), 1101);
        assert_eq!(bus.fill(0, 2, 1000), 1201, "behind the first");
        assert_eq!(bus.fill(1, 3, 1000), 1101, "another socket");
        assert_eq!(bus.fill(0, 2, 5000), 5101, "the channels were free");
    }

    #[test]
    fn a_page_that_the_cache_has_passes_no_channel() {
        let bus = MemoryBus::new(100.0, 2, 2);
        assert_eq!(bus.fill(0, 7, 0), 100, "for the first time");
        assert_eq!(bus.fill(0, 7, 500), 500);
        assert_eq!((bus.fill(0, 8, 1000), bus.fill(0, 7, 2000)), (1100, 2000), "one page since");
        assert_eq!([8, 9, 10].map(|page| bus.fill(0, page, 9000)), [9000, 9100, 9200]);
        assert_eq!(bus.fill(0, 7, 20_000), 20_100, "three since");
        assert_eq!(bus.fill(1, 7, 30_000), 30_100, "the other socket's cache");
        assert_eq!(bus.fill(0, 7, 40_000), 40_100, "which has it now");
    }
}

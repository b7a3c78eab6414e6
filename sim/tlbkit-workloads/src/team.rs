//! What the tasks of one workload share: how they start, take turns, meet and stop, without a byte allocated.

use crate::os::{Backing, Channel, Os, Protection, TaskId, read_expecting};
use crate::pattern::{PAGES_OF_A_TABLE, page_at, stamp};

/// Counts rounds: a fixed number of them, or, at 0, as many as fit before the run is over.
pub(crate) struct Rounds {
    limit: u64,
    begun: u64,
}

impl Rounds {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, begun: 0 }
    }

    /// The number of the next round, from 0; none when there is no next one.
    pub(crate) fn next(&mut self, os: &dyn Os) -> Option<u64> {
        let is_done = if self.limit == 0 { os.is_over() } else { self.begun == self.limit };
        if is_done {
            return None;
        }
        self.begun += 1;
        Some(self.begun - 1)
    }
}

/// Tasks started by one stack frame of [`crew`].
const CREW_BLOCK: usize = 64;

/// Starts the tasks `from..to` by `start`, does `work`, then joins them all.
///
/// Ids are kept in blocks on nested frames: any number of tasks, and small crews stay small on a small stack.
pub(crate) fn crew(os: &dyn Os, from: u32, to: u32, start: &dyn Fn(u32) -> TaskId, work: &mut dyn FnMut()) {
    let mut ids = [TaskId(0); CREW_BLOCK];
    let end = to.min(from.saturating_add(CREW_BLOCK as u32));
    let mut started = 0;
    for index in from..end {
        ids[started] = start(index);
        started += 1;
    }
    if end < to {
        crew(os, end, to, start, work);
    } else {
        work();
    }
    for id in &ids[..started] {
        os.join(*id);
    }
}

/// A ring of tasks that hand one token round: `of` channels from `first`, the task `me` blocking on its own.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    pub(crate) first: u32,
    pub(crate) of: u32,
    pub(crate) me: u32,
}

impl Ring {
    fn wait(self, os: &dyn Os) {
        os.wait(Channel(self.first + self.me));
    }

    fn pass(self, os: &dyn Os) {
        os.post(Channel(self.first + (self.me + 1) % self.of));
    }

    /// Runs the leader: it holds the token first, and sends one last token so that no follower stays blocked.
    pub(crate) fn lead(self, os: &dyn Os, rounds: u64, turn: &mut dyn FnMut(u64)) {
        let mut rounds = Rounds::new(rounds);
        while let Some(round) = rounds.next(os) {
            turn(round);
            self.pass(os);
            self.wait(os);
        }
        self.pass(os);
    }

    /// Runs a follower. It passes the token on even when it ends, so that those behind it see the end too.
    pub(crate) fn follow(self, os: &dyn Os, rounds: u64, turn: &mut dyn FnMut(u64)) {
        let mut rounds = Rounds::new(rounds);
        loop {
            self.wait(os);
            let Some(round) = rounds.next(os) else {
                return self.pass(os);
            };
            turn(round);
            self.pass(os);
        }
    }
}

/// Owner of the words that say what a parent and a child must each see after a fork.
const BEFORE_FORK: u64 = 0xb4;
const PARENT_AFTER_FORK: u64 = 0xaf;
const CHILD_AFTER_FORK: u64 = 0xc4;

/// One page written on both sides of a fork: neither may see what the other wrote after it.
#[derive(Clone, Copy)]
pub(crate) struct Keepsake(pub(crate) u64);

impl Keepsake {
    pub(crate) fn write_before_fork(self, os: &dyn Os) {
        os.write(self.0, stamp(BEFORE_FORK, 0));
    }

    /// For the parent, once the last child was started: breaks the sharing from its side.
    pub(crate) fn write_after_fork(self, os: &dyn Os) {
        os.write(self.0, stamp(PARENT_AFTER_FORK, 0));
    }

    /// For a child, after its work: it still sees what stood there at the fork.
    pub(crate) fn check_in_child(self, os: &dyn Os) {
        read_expecting(os, self.0, stamp(BEFORE_FORK, 0));
        os.write(self.0, stamp(CHILD_AFTER_FORK, 0));
    }

    /// For the parent, once the children have ended.
    pub(crate) fn check_in_parent(self, os: &dyn Os) {
        read_expecting(os, self.0, stamp(PARENT_AFTER_FORK, 0));
    }
}

/// Owner of a set stop word; its page field is the round before which all stop.
const STOP: u64 = 0x570;

/// One page by which the leader of a process tells its other threads in which round all of them stop.
#[derive(Clone, Copy)]
pub(crate) struct StopPage(pub(crate) u64);

impl StopPage {
    /// Maps the page and reads it once, so that the loop does not begin with a fault.
    pub(crate) fn new(os: &dyn Os) -> Self {
        let page = Self(os.map(1, Backing::AnonPrivate, Protection::ReadWrite));
        read_expecting(os, page.0, 0);
        page
    }

    /// The same, away from what the program maps by itself: no last-level page table maps both.
    pub(crate) fn in_data(os: &dyn Os) -> Self {
        let data = os.map(2 * PAGES_OF_A_TABLE, Backing::AnonPrivate, Protection::ReadWrite);
        let page = Self(page_at(data, PAGES_OF_A_TABLE));
        read_expecting(os, page.0, 0);
        page
    }

    /// Tells all threads to stop before they begin `round`.
    pub(crate) fn stop_before(self, os: &dyn Os, round: u64) {
        os.write(self.0, stamp(STOP, round));
    }

    /// The round that no thread begins any more. What is not a stop word is reported, and stops the thread at once.
    fn limit(self, os: &dyn Os) -> u64 {
        let word = os.read(self.0);
        let limit = (word & 0xffff_ffff).wrapping_sub(1);
        if word == 0 {
            u64::MAX
        } else if word == stamp(STOP, limit) {
            limit
        } else {
            os.wrong_value(self.0, word, 0);
            0
        }
    }

    /// Whether thread `me` goes on with `round`; of an endless run, thread 0 decides `notice` rounds ahead.
    pub(crate) fn goes_on(self, os: &dyn Os, me: u32, round: u64, rounds: u64, notice: u64) -> bool {
        if rounds != 0 {
            return round < rounds;
        }
        let limit = self.limit(os);
        if me == 0 && limit == u64::MAX && os.is_over() {
            self.stop_before(os, round + notice);
        }
        round < limit
    }
}

/// A meeting of all `of` threads: channel `first` for arrivals, the `of` ones after it to let each go.
#[derive(Clone, Copy)]
pub(crate) struct Barrier {
    pub(crate) first: u32,
    pub(crate) of: u32,
}

impl Barrier {
    /// Returns when all threads have called it.
    pub(crate) fn meet(self, os: &dyn Os, me: u32) {
        if me != 0 {
            os.post(Channel(self.first));
            return os.wait(Channel(self.first + 1 + me));
        }
        (1..self.of).for_each(|_| os.wait(Channel(self.first)));
        (1..self.of).for_each(|other| os.post(Channel(self.first + 1 + other)));
    }
}

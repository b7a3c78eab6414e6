//! The LRU lists of pages: which pages of each CPU wait to be put into them, and when the lock of the lists is taken.
//!
//! A new page waits in a batch of its CPU. A full batch is put into the lists under their lock. A page that is given
//! back is taken out of them under the lock, together with others that the same call frees (Linux's mm/swap.c). Before
//! an older kernel sweeps a range, it *drains* the batch, so a program that gives back page by page takes the lock
//! twice for each page. A newer kernel does not (a commit of December 2024): a page that still waits is held by the
//! batch, and is freed when the batch is full. Which pages a CPU has in the lists is not followed. A page that is given
//! back is taken to be the one that came last.

use std::cell::Cell;

use crate::code::{Code, CountedLruLists, LruWork, Sweep};

/// Pages that are taken out of the lists under one hold.
const MOST_A_HOLD: u32 = 32;

/// Work under the lock. Pages are put in under the first hold of the lock, and those of them that were given back come
/// out under the second. A hold without work is none.
pub(super) type Holds = [Option<LruWork>; 2];

const NO_HOLDS: Holds = [None; 2];

/// What freeing a page takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TakenOut {
    /// Nothing now: the page waits in a batch, which frees it later, or there are no lists.
    Later,
    /// A hold of the lock, with this work.
    Hold(LruWork),
    /// This work more under the lock that the call has already.
    More(LruWork),
}

/// The pages of one CPU that are not yet where they belong.
#[derive(Clone, Copy, Default)]
struct Owed {
    /// Pages that wait to be put in.
    new: u32,
    /// Of these, pages that were given back.
    given_back: u32,
    /// Pages that the current call took out of the lists.
    taken_out: u32,
}

/// The LRU lists as all CPUs use them, if it is known how the kernel's code keeps them.
pub(crate) struct LruLists {
    code: Option<&'static CountedLruLists>,
    sweep: Sweep,
    owed: Box<[Cell<Owed>]>,
}

impl LruLists {
    /// The lists of a kernel with this code. Before a sweep the kernel does what `sweep` says, or else what the code
    /// does.
    pub(crate) fn new(code: Code, sweep: Option<Sweep>, cpus: usize) -> Self {
        let code = code.lru_lists();
        let sweep = sweep.or(code.map(|code| code.sweep)).unwrap_or(Sweep::Leaves);
        Self { code, sweep, owed: vec![Cell::new(Owed::default()); cpus].into() }
    }

    /// A call or a fault begins on the CPU.
    pub(super) fn begin_call(&self, cpu: usize) {
        let owed = &self.owed[cpu];
        owed.set(Owed { taken_out: 0, ..owed.get() });
    }

    /// A page was allocated for a program.
    pub(super) fn add(&self, cpu: usize) -> Holds {
        let Some(code) = self.code else { return NO_HOLDS };
        let owed = self.owed[cpu].get();
        self.owed[cpu].set(Owed { new: owed.new + 1, ..owed });
        if owed.new + 1 < code.batch { NO_HOLDS } else { self.drain(cpu) }
    }

    /// A range is about to be swept.
    pub(super) fn begin_sweep(&self, cpu: usize) -> Holds {
        if self.sweep == Sweep::Drains { self.drain(cpu) } else { NO_HOLDS }
    }

    /// A page of a program is freed.
    pub(super) fn take_out(&self, cpu: usize) -> TakenOut {
        let Some(code) = self.code else { return TakenOut::Later };
        let owed = self.owed[cpu].get();
        if owed.given_back < owed.new {
            self.owed[cpu].set(Owed { given_back: owed.given_back + 1, ..owed });
            return TakenOut::Later;
        }
        self.owed[cpu].set(Owed { taken_out: owed.taken_out + 1, ..owed });
        let is_first = owed.taken_out.is_multiple_of(MOST_A_HOLD);
        if is_first { TakenOut::Hold(code.taking_out(1)) } else { TakenOut::More(code.taking_out_one_more()) }
    }

    /// The CPU's batch is put into the lists, and what of it was given back is taken out again.
    fn drain(&self, cpu: usize) -> Holds {
        let Some(code) = self.code else { return NO_HOLDS };
        let Owed { new, given_back, taken_out } = self.owed[cpu].get();
        self.owed[cpu].set(Owed { taken_out, ..Owed::default() });
        [(new > 0).then(|| code.putting_in(new)), (given_back > 0).then(|| code.taking_out(given_back))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(preset: &str) -> (LruLists, &'static CountedLruLists) {
        let code = Code::of_preset(preset);
        (LruLists::new(code, None, 2), code.lru_lists().expect("Linux has lists"))
    }

    #[test]
    fn an_older_kernel_takes_the_lock_twice_for_a_page_that_is_given_back_alone() {
        let (lists, code) = lists("linux-4.20");
        assert_eq!(lists.add(0), NO_HOLDS);
        assert_eq!(lists.begin_sweep(1), NO_HOLDS, "another CPU's batch");
        assert_eq!(lists.begin_sweep(0), [Some(code.putting_in(1)), None]);
        assert_eq!(lists.take_out(0), TakenOut::Hold(code.taking_out(1)));
    }

    #[test]
    fn a_newer_one_takes_it_when_a_batch_is_full() {
        let (lists, code) = lists("linux-6.18");
        for _ in 1..code.batch {
            assert_eq!(lists.add(0), NO_HOLDS);
            assert_eq!(lists.begin_sweep(0), NO_HOLDS);
            assert_eq!(lists.take_out(0), TakenOut::Later);
        }
        let holds = [Some(code.putting_in(code.batch)), Some(code.taking_out(code.batch - 1))];
        assert_eq!(lists.add(0), holds);
    }

    #[test]
    fn many_pages_that_one_call_frees_share_a_hold() {
        let (lists, code) = lists("linux-4.20");
        let freed = |count: u32| (0..count).filter(|_| matches!(lists.take_out(0), TakenOut::Hold(_))).count();
        lists.begin_call(0);
        assert_eq!(lists.take_out(0), TakenOut::Hold(code.taking_out(1)));
        assert_eq!(lists.take_out(0), TakenOut::More(code.taking_out_one_more()));
        assert_eq!(freed(MOST_A_HOLD), 1, "the next hold");
        lists.begin_call(0);
        assert_eq!(freed(1), 1, "another call");
    }

    #[test]
    fn a_page_that_goes_in_takes_more_locked_operations_than_one_that_comes_out() {
        let (_, code) = lists("linux-6.18");
        let [into, out] = [code.putting_in(3), code.taking_out(3)];
        assert_eq!(into.instructions, u64::from(code.hold + 3 * code.page));
        assert_eq!(out.instructions, into.instructions);
        assert_eq!([into.locked, out.locked], [6, 2], "two for each, and one for each but the first");
        assert_eq!(code.taking_out_one_more().locked, 1);
    }

    #[test]
    fn what_is_said_of_a_sweep_goes_before_what_the_code_does() {
        let lists = LruLists::new(Code::of_preset("linux-6.18"), Some(Sweep::Drains), 1);
        lists.add(0);
        assert!(lists.begin_sweep(0)[0].is_some());
        let none = LruLists::new(Code::of_preset("netbsd-10"), Some(Sweep::Drains), 1);
        assert_eq!((none.add(0), none.begin_sweep(0), none.take_out(0)), (NO_HOLDS, NO_HOLDS, TakenOut::Later));
    }
}

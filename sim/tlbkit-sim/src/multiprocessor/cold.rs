//! How long a call into the protocol waits because other work has pushed its code and data out of the caches.
//!
//! No single line is followed. The cycles of other work and the pages filled since the last call of its kind say how
//! many new lines came into the caches. Each new line falls into a set by chance. A line of the protocol is gone when
//! as many new lines fell into its set as the set has ways, because the least recently used line is replaced. The
//! number of lines in a set has a binomial distribution, which gives the share of the call's lines that is gone, and so
//! what the call pays. That the threads of a core share its caches is not modelled. Sleep leaves the caches as they
//! are.

use std::cell::Cell;

use tlbkit_machine::{ColdModel, Machine};

use crate::code::CallLines;
use crate::observer::{Cause, Ledger};

/// Calls that have code and data in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallKind {
    /// Switches, and lazy mode.
    Switch,
    /// A flush, by its initiator.
    Flush,
    /// The handler.
    Answer,
}

/// Sets of a first-level cache: those that the bits of a page offset choose.
const L1_SETS: u32 = 64;
/// Lines of a page.
const PAGE_LINES: u64 = 64;
/// The accounts that are other work: neither the protocol nor waiting.
const WORK: [Cause; 5] = [Cause::User, Cause::WalkUser, Cause::Kernel, Cause::WalkKernel, Cause::Fault];

/// The caches of a core, and what work does to them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caches {
    l1i_ways: u32,
    l1d_ways: u32,
    l2_sets: u32,
    l2_ways: u32,
    /// What is waited for a line that only the first level lacks.
    near_cycles: f64,
    /// The same where both lack it.
    far_cycles: f64,
    code_lines_per_cycle: f64,
    data_lines_per_cycle: f64,
    l2_lines_per_cycle: f64,
}

impl Caches {
    /// Those of the machine, if its file has them.
    pub(super) fn of(machine: &Machine) -> Option<Self> {
        let (caches, model) = (machine.caches.as_ref()?, ColdModel::builtin());
        let stall = model.stall_percent.value / 100.0;
        Some(Self {
            l1i_ways: caches.l1i_ways.count() as u32,
            l1d_ways: caches.l1d_ways.count() as u32,
            l2_sets: caches.l2_sets.count() as u32,
            l2_ways: caches.l2_ways.count() as u32,
            near_cycles: caches.l2_hit_cycles.value * stall,
            far_cycles: caches.beyond_l2_cycles.value * stall,
            code_lines_per_cycle: model.code_lines_per_kilocycle.value / 1000.0,
            data_lines_per_cycle: model.data_lines_per_kilocycle.value / 1000.0,
            l2_lines_per_cycle: model.l2_lines_per_kilocycle.value / 1000.0,
        })
    }

    /// What a line of code costs, and one of data, after so much work.
    fn prices(&self, work: Work) -> Prices {
        let lines = |per_cycle: f64| (work.cycles as f64 * per_cycle) as u64;
        let filled = work.pages * PAGE_LINES;
        let code = share_gone(lines(self.code_lines_per_cycle), L1_SETS, self.l1i_ways);
        let data = share_gone(lines(self.data_lines_per_cycle) + filled, L1_SETS, self.l1d_ways);
        let far = share_gone(lines(self.l2_lines_per_cycle) + filled, self.l2_sets, self.l2_ways);
        let line = far * self.far_cycles + (1.0 - far) * self.near_cycles;
        Prices { code: code * line, data: data * line }
    }
}

/// The share of lines that are gone from a cache after `new` others came: `ways` or more of them fell into its set.
fn share_gone(new: u64, sets: u32, ways: u32) -> f64 {
    let new = new.min(1 << 30);
    if new < u64::from(ways) {
        return 0.0;
    }
    let elsewhere = 1.0 - 1.0 / f64::from(sets);
    // The probability that `fell` of them fell into one set, from none on.
    let mut exactly = elsewhere.powi(new as i32);
    let mut kept = 0.0;
    for fell in 0..ways {
        kept += exactly;
        exactly *= (new - u64::from(fell)) as f64 / (f64::from(fell + 1) * f64::from(sets - 1));
    }
    1.0 - kept
}

/// Work of a CPU since the run began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Work {
    cycles: u64,
    pages: u64,
}

/// What a line of each kind costs in a call.
#[derive(Clone, Copy, Debug, Default)]
struct Prices {
    code: f64,
    data: f64,
}

/// The calls of one CPU.
#[derive(Debug, Default)]
pub(super) struct Warmth {
    /// The work that had been done when a call of each kind began last.
    seen: [Cell<Work>; 3],
    /// What lines cost in that call.
    prices: [Cell<Prices>; 3],
    pages: Cell<u64>,
}

impl Warmth {
    /// The CPU filled `pages`.
    pub(super) fn note_pages(&self, pages: u64) {
        self.pages.set(self.pages.get() + pages);
    }

    /// A call of this kind begins.
    pub(super) fn begin(&self, caches: &Caches, kind: CallKind, ledger: &Ledger) {
        let cycles = WORK.into_iter().map(|cause| ledger.of(cause)).sum();
        let now = Work { cycles, pages: self.pages.get() };
        let before = self.seen[kind as usize].replace(now);
        let since = Work { cycles: now.cycles - before.cycles, pages: now.pages - before.pages };
        self.prices[kind as usize].set(caches.prices(since));
    }

    /// What the call that began last waits for these lines of it.
    pub(super) fn cycles(&self, kind: CallKind, lines: CallLines) -> u64 {
        let prices = self.prices[kind as usize].get();
        (f64::from(lines.code) * prices.code + f64::from(lines.data) * prices.data).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_loses_a_line_when_its_ways_are_filled_anew() {
        assert_eq!(share_gone(7, 64, 8), 0.0);
        assert!(share_gone(8, 64, 8) > 0.0);
        assert!((share_gone(64 * 8, 64, 8) - 0.5).abs() < 0.06);
        assert!(share_gone(64 * 80, 64, 8) > 0.999_999);
        assert_eq!(share_gone(u64::MAX, 64, 8), 1.0);
        // One way of two sets: gone unless both new lines fell into the other.
        assert_eq!(share_gone(2, 2, 1), 0.75);
    }

    const CACHES: Caches = Caches {
        l1i_ways: 8,
        l1d_ways: 8,
        l2_sets: 1024,
        l2_ways: 4,
        near_cycles: 6.0,
        far_cycles: 20.0,
        code_lines_per_cycle: 0.006,
        data_lines_per_cycle: 0.005,
        l2_lines_per_cycle: 0.002,
    };

    fn cycles_after(work: u64, pages: u64) -> (u64, u64) {
        let (warmth, mut ledger) = (Warmth::default(), Ledger::default());
        warmth.begin(&CACHES, CallKind::Flush, &ledger);
        ledger.charge(crate::observer::Class::Task, Cause::User, work);
        ledger.charge(crate::observer::Class::Task, Cause::Idle, 1 << 40);
        warmth.note_pages(pages);
        warmth.begin(&CACHES, CallKind::Flush, &ledger);
        let of = |code, data| warmth.cycles(CallKind::Flush, CallLines { code, data });
        (of(10, 0), of(0, 10))
    }

    #[test]
    fn lines_come_from_further_away_after_more_work_and_not_after_sleep() {
        assert_eq!(cycles_after(0, 0), (0, 0));
        let (code, data) = cycles_after(1_000_000, 0);
        assert!((60..90).contains(&code) && (60..90).contains(&data), "{code} {data}");
        assert_eq!(cycles_after(100_000_000, 0), (200, 200));
    }

    #[test]
    fn pages_that_are_filled_push_data_out_and_no_code_of_the_first_level() {
        let (code, data) = cycles_after(0, 32);
        assert_eq!(code, 0);
        assert!(data >= 60, "{data}");
    }

    #[test]
    fn each_kind_has_its_own_age() {
        let (warmth, mut ledger) = (Warmth::default(), Ledger::default());
        ledger.charge(crate::observer::Class::Task, Cause::User, 1 << 30);
        warmth.begin(&CACHES, CallKind::Flush, &ledger);
        warmth.begin(&CACHES, CallKind::Flush, &ledger);
        warmth.begin(&CACHES, CallKind::Answer, &ledger);
        let lines = CallLines { code: 1, data: 1 };
        assert_eq!(warmth.cycles(CallKind::Flush, lines), 0);
        assert_eq!(warmth.cycles(CallKind::Answer, lines), 40);
        assert_eq!(warmth.cycles(CallKind::Switch, lines), 0);
    }
}

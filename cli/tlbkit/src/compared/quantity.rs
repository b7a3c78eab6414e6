//! What is compared of several runs: how it is made of an outcome, and how it is written.

use tlbkit_sim::RunOutcome;
use tlbkit_sim::observer::{Cause, Needed};
use tlbkit_sim::statistics::mean;

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// A whole number.
    Count,
    /// A part of something, in percent.
    Percent,
}

impl Unit {
    /// For a program.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Percent => "percent",
        }
    }
}

/// Events in a run of which percents are given.
pub(crate) const FEWEST_EVENTS: f64 = 10.0;

/// Percent of the cycles of which percents are given: less than this is 0.0 in a table.
pub(crate) const LEAST_CYCLES: f64 = 0.05;

/// What is compared.
pub(crate) struct Quantity {
    pub(crate) title: &'static str,
    of: Of,
    /// What a short table calls it, if it has it.
    short: Option<&'static str>,
    /// Most machines have nothing of it: a short table has it where a run has.
    is_seldom: bool,
}

/// How much of what is compared a table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    /// What most questions are about.
    Short,
    /// Everything.
    Full,
}

/// What a table of this extent has of these outcomes.
pub(crate) fn shown_of<'o>(
    extent: Extent,
    outcomes: impl Iterator<Item = &'o RunOutcome> + Clone,
) -> impl Iterator<Item = &'static Quantity> {
    let has_any = move |quantity: &Quantity| outcomes.clone().any(|outcome| quantity.value(outcome) > Some(0.0));
    QUANTITIES.iter().filter(move |quantity| quantity.is_in(extent) || quantity.is_seldom && has_any(quantity))
}

/// The quantity with this title.
pub(crate) fn titled(title: &str) -> Option<&'static Quantity> {
    QUANTITIES.iter().find(|quantity| quantity.title.trim() == title)
}

/// What each table of this extent has.
pub(crate) fn shown(extent: Extent) -> impl Iterator<Item = &'static Quantity> {
    QUANTITIES.iter().filter(move |quantity| quantity.is_in(extent))
}

/// How a value is made of a run. Functions for a part return the part and the whole.
enum Of {
    Measure(fn(&RunOutcome) -> Option<f64>),
    Events(fn(&RunOutcome) -> u64),
    PartOfEvents(fn(&RunOutcome) -> [u64; 2]),
    PartOfCycles(fn(&RunOutcome) -> [u64; 2]),
}

impl Quantity {
    fn is_in(&self, extent: Extent) -> bool {
        extent == Extent::Full || self.short.is_some()
    }

    /// The title with the titles of the rows that it is a part of before it, so that it can be understood alone.
    pub(crate) fn full_title(&self) -> String {
        let depth = |title: &str| title.len() - title.trim_start().len();
        let before = QUANTITIES.iter().take_while(|other| other.title != self.title);
        let mut left = depth(self.title);
        let mut titles = vec![self.title.trim()];
        for above in before.collect::<Vec<_>>().into_iter().rev() {
            if depth(above.title) < left {
                left = depth(above.title);
                titles.push(above.title.trim());
            }
        }
        titles.reverse();
        titles.join(": ")
    }

    /// What a table of `extent` calls it.
    pub(crate) fn title_in(&self, extent: Extent) -> String {
        self.short.filter(|_| extent == Extent::Short).unwrap_or(self.title).to_owned()
    }

    pub(crate) const fn unit(&self) -> Unit {
        match self.of {
            Of::Measure(_) | Of::Events(_) => Unit::Count,
            Of::PartOfEvents(_) | Of::PartOfCycles(_) => Unit::Percent,
        }
    }

    /// None where there is nothing to have a part of.
    pub(crate) fn value(&self, outcome: &RunOutcome) -> Option<f64> {
        match self.of {
            Of::Measure(of) => of(outcome),
            Of::Events(of) => Some(of(outcome) as f64),
            Of::PartOfEvents(of) | Of::PartOfCycles(of) => part(of(outcome)),
        }
    }

    /// Whether these outcomes have enough of it, in the mean, that percents of it say something.
    pub(crate) fn is_enough<'o>(&self, outcomes: impl Iterator<Item = &'o RunOutcome> + Clone) -> bool {
        let mean_of = |of: &dyn Fn(&RunOutcome) -> f64| mean(&outcomes.clone().map(of).collect::<Vec<_>>());
        match self.of {
            Of::Measure(_) => true,
            Of::Events(of) => mean_of(&|outcome| of(outcome) as f64) >= FEWEST_EVENTS,
            Of::PartOfEvents(of) => mean_of(&|outcome| of(outcome)[0] as f64) >= FEWEST_EVENTS,
            Of::PartOfCycles(of) => mean_of(&|outcome| part(of(outcome)).unwrap_or(0.0)) >= LEAST_CYCLES,
        }
    }

    /// The values of the outcomes that have one. If an outcome lacks a count there are none, as the other outcomes
    /// would be a biased choice.
    pub(crate) fn values(&self, outcomes: &[RunOutcome]) -> Option<Vec<f64>> {
        let values: Vec<_> = outcomes.iter().filter_map(|outcome| self.value(outcome)).collect();
        (self.unit() == Unit::Percent || values.len() == outcomes.len()).then_some(values)
    }
}

/// All that is compared, in the order of the table. Shares are of busy cycles, so that idle CPUs hide nothing.
pub(crate) const QUANTITIES: &[Quantity] = &[
    always(measure("score a second", RunOutcome::rate)),
    seldom(measure("nanoseconds of each timed call", timed_ns)),
    measure("milliseconds, start and end included", |o| Some(1e3 * o.elapsed_seconds)),
    always(count("flush interrupts sent", |o| o.ipis.sent)),
    always(events("  of them needed at once", |o| needed(o.flushes.interrupts))),
    events("  to walkers of the 2 MiB", |o| of_sent(o, o.bounds.regions[0])),
    events("  to walkers of the GiB", |o| of_sent(o, o.bounds.regions[1])),
    events("  to walkers of the 512 GiB", |o| of_sent(o, o.bounds.regions[2])),
    events("  to walkers of the 2 MiB, each thread its own", |o| of_sent(o, o.bounds.regions_apart[0])),
    events("  to walkers of the GiB, each thread its own", |o| of_sent(o, o.bounds.regions_apart[1])),
    events("  to walkers of the 512 GiB, each thread its own", |o| of_sent(o, o.bounds.regions_apart[2])),
    events("  to walkers of the pages", |o| of_sent(o, o.bounds.pages)),
    events("  for an entry that was accessed", |o| of_sent(o, o.bounds.accessed)),
    events("  for addresses that the program keeps", |o| of_sent(o, o.bounds.kept)),
    count("faults that private tables above 2 MiB add", |o| o.bounds.region_faults[0]),
    count("faults that they add, each thread its own regions", |o| o.bounds.region_apart_faults[0]),
    measure("pages held, were it left to entry or exit", |o| mean_held(o, o.bounds.crossing_page_cycles)),
    measure("pages held, were it left to tick or switch", |o| mean_held(o, o.bounds.tick_page_cycles)),
    count("  the most at a time", |o| o.bounds.tick_pages_most),
    seldom(count("  to CPUs that the host had taken away", |o| o.ipis.to_preempted)),
    seldom(count("interrupts spared until the CPU entered the kernel", |o| o.flushes.spared_until_entry)),
    seldom(count("interrupts spared by the host", |o| o.flushes.spared_by_host)),
    seldom(count("pages retired", |o| o.kernel.retired_pages)),
    seldom(count("  the most of them held at a time", |o| o.kernel.held_pages_most)),
    always(count("flushes", |o| o.flushes.flushes)),
    seldom(count("  INVLPGB executed for them", |o| o.flushes.broadcasts)),
    count("  other CPUs of the set left alone", |o| o.flushes.left_alone),
    always(count("  of everything", |o| o.flushes.full_flushes)),
    count("pages invalidated singly", |o| o.flushes.pages.done),
    events("  of them needed", |o| needed(o.flushes.pages)),
    count("switches that kept entries", |o| o.flushes.switches_kept),
    count("switches that flushed", |o| o.flushes.switches_flushed),
    count("tasks moved while they ran", |o| o.kernel.moves),
    count("page walks", |o| o.tlb.walks),
    alone("walks that refill what was flushed", count("  refilling what was flushed", |o| o.tlb.refills)),
    cycles("busy cycles: user", |o| of_busy(o, Cause::User)),
    cycles("busy cycles: kernel", |o| of_busy(o, Cause::Kernel)),
    cycles("busy cycles: faults", |o| of_busy(o, Cause::Fault)),
    cycles("busy cycles: switch path", |o| of_busy(o, Cause::Switch)),
    cycles("busy cycles: own invalidations", |o| of_busy(o, Cause::FlushLocal)),
    cycles("busy cycles: telling others", |o| of_busy(o, Cause::FlushSend)),
    always(cycles("busy cycles: waiting for answers", |o| of_busy(o, Cause::FlushWait))),
    cycles("busy cycles: waiting that early answers save", |o| of_busy_cycles(o, o.bounds.early_cycles)),
    always(cycles("busy cycles: answering", |o| of_busy(o, Cause::Interrupt))),
    cycles("busy cycles: walks, user", |o| of_busy(o, Cause::WalkUser)),
    cycles("busy cycles: walks, kernel", |o| of_busy(o, Cause::WalkKernel)),
    cycles("busy cycles: locks", |o| of_busy(o, Cause::LockSpin)),
    seldom(count("CPUs that the host took away", |o| o.kernel.host_preemptions)),
    seldom(cycles("all cycles: taken away by the host", |o| [o.cycles(Cause::Preempted), o.ledger.total()])),
    cycles("all cycles: idle", |o| [o.cycles(Cause::Idle), o.ledger.total()]),
];

/// One that a short table has where there is any of it.
const fn seldom(quantity: Quantity) -> Quantity {
    Quantity { is_seldom: true, ..quantity }
}

/// One that a short table has as well.
const fn always(quantity: Quantity) -> Quantity {
    Quantity { short: Some(quantity.title), ..quantity }
}

/// One that a short table has under another title, as it lacks the row of which this is a part.
const fn alone(short: &'static str, quantity: Quantity) -> Quantity {
    Quantity { short: Some(short), ..quantity }
}

const fn measure(title: &'static str, of: fn(&RunOutcome) -> Option<f64>) -> Quantity {
    Quantity { title, of: Of::Measure(of), short: None, is_seldom: false }
}

const fn count(title: &'static str, of: fn(&RunOutcome) -> u64) -> Quantity {
    Quantity { title, of: Of::Events(of), short: None, is_seldom: false }
}

const fn events(title: &'static str, of: fn(&RunOutcome) -> [u64; 2]) -> Quantity {
    Quantity { title, of: Of::PartOfEvents(of), short: None, is_seldom: false }
}

const fn cycles(title: &'static str, of: fn(&RunOutcome) -> [u64; 2]) -> Quantity {
    Quantity { title, of: Of::PartOfCycles(of), short: None, is_seldom: false }
}

/// A row for each quantity, a column for each of `outcomes`.
pub(crate) fn compared_rows(outcomes: &[(&str, RunOutcome)]) -> Vec<Vec<String>> {
    let row = |quantity: &Quantity| {
        let cells = outcomes.iter().map(|(_, outcome)| cell(quantity.value(outcome), quantity.unit()));
        [quantity.title.to_owned()].into_iter().chain(cells).collect()
    };
    QUANTITIES.iter().map(row).collect()
}

fn cell(value: Option<f64>, unit: Unit) -> String {
    match (value, unit) {
        (None, _) => "-".to_owned(),
        (Some(value), Unit::Count) => format!("{value:.0}"),
        (Some(value), Unit::Percent) => format!("{value:.1} %"),
    }
}

fn needed(needed: Needed) -> [u64; 2] {
    [needed.needed, needed.done]
}

/// Interrupts, and all that were sent.
const fn of_sent(outcome: &RunOutcome, interrupts: u64) -> [u64; 2] {
    [interrupts, outcome.flushes.interrupts.done]
}

/// Of the calls that a workload times, one a unit.
fn timed_ns(outcome: &RunOutcome) -> Option<f64> {
    let cycles_a_ns = outcome.elapsed_cycles as f64 / (1e9 * outcome.elapsed_seconds);
    let timed = outcome.kernel.timed_cycles as f64 / cycles_a_ns;
    (outcome.score > 0).then(|| timed / outcome.score as f64)
}

/// Pages in the mean of the run, of pages times cycles.
fn mean_held(outcome: &RunOutcome, page_cycles: u64) -> Option<f64> {
    (outcome.elapsed_cycles > 0).then(|| page_cycles as f64 / outcome.elapsed_cycles as f64)
}

/// The cycles of a cause, and all that were busy.
pub(super) fn of_busy(outcome: &RunOutcome, cause: Cause) -> [u64; 2] {
    of_busy_cycles(outcome, outcome.cycles(cause))
}

fn of_busy_cycles(outcome: &RunOutcome, cycles: u64) -> [u64; 2] {
    let not_busy = outcome.cycles(Cause::Idle) + outcome.cycles(Cause::Preempted);
    [cycles, outcome.ledger.total() - not_busy]
}

/// The part in percent of the whole; none if that is nothing.
pub(super) fn part([part, whole]: [u64; 2]) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_table_has_eight_rows_and_a_full_one_all() {
        assert_eq!([Extent::Short, Extent::Full].map(|extent| shown(extent).count()), [8, QUANTITIES.len()]);
    }

    #[test]
    fn a_part_is_named_with_what_it_is_a_part_of() {
        let titles: Vec<_> = QUANTITIES.iter().map(Quantity::full_title).collect();
        assert!(titles.contains(&"flush interrupts sent: of them needed at once".into()));
        assert!(titles.contains(&"pages invalidated singly: of them needed".into()));
        assert!(titles.contains(&"busy cycles: user".into()));
        let again = |title: &String| titles.iter().filter(|other| *other == title).count() > 1;
        assert!(!titles.iter().any(again), "{titles:?}");
    }
}

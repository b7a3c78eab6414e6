//! The outcomes of several policies side by side: one column for each policy.

use tlbkit_sim::RunOutcome;
use tlbkit_sim::observer::{Cause, Needed};

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

/// What is compared.
pub(crate) struct Quantity {
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
    /// None where there is nothing to have a part of.
    pub(crate) of: fn(&RunOutcome) -> Option<f64>,
}

impl Quantity {
    /// The title behind those that it is a part of, so that it says by itself what it is about.
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

    /// Of the outcomes that have a value; none of a count that one of them lacks, as the others are not a fair choice.
    pub(crate) fn values(&self, outcomes: &[RunOutcome]) -> Option<Vec<f64>> {
        let values: Vec<_> = outcomes.iter().filter_map(self.of).collect();
        (self.unit == Unit::Percent || values.len() == outcomes.len()).then_some(values)
    }
}

/// All that is compared, in the order of the table. Shares are of busy cycles, so that idle CPUs hide nothing.
pub(crate) const QUANTITIES: &[Quantity] = &[
    count("score a second", RunOutcome::rate),
    count("milliseconds, start and end included", |o| Some(1e3 * o.elapsed_seconds)),
    count("flush interrupts sent", |o| Some(o.ipis.sent as f64)),
    percent("  of them needed at once", |o| needed(o.flushes.interrupts)),
    percent("    of these before the next use", |o| part(o.later_needs.before_use, o.later_needs.followed)),
    percent("    of these before a frame's reuse", |o| part(o.later_needs.before_reuse, o.later_needs.followed)),
    count("flushes", |o| Some(o.flushes.flushes as f64)),
    count("  other CPUs of the set left alone", |o| Some(o.flushes.left_alone as f64)),
    count("  of everything", |o| Some(o.flushes.full_flushes as f64)),
    count("pages invalidated singly", |o| Some(o.flushes.pages.done as f64)),
    percent("  of them needed", |o| needed(o.flushes.pages)),
    count("switches that kept entries", |o| Some(o.flushes.switches_kept as f64)),
    count("switches that flushed", |o| Some(o.flushes.switches_flushed as f64)),
    count("tasks moved while they ran", |o| Some(o.kernel.moves as f64)),
    count("page walks", |o| Some(o.tlb.walks as f64)),
    count("  refilling what was flushed", |o| Some(o.tlb.refills as f64)),
    percent("busy cycles: user", |o| of_busy(o, Cause::User)),
    percent("busy cycles: kernel", |o| of_busy(o, Cause::Kernel)),
    percent("busy cycles: faults", |o| of_busy(o, Cause::Fault)),
    percent("busy cycles: switch path", |o| of_busy(o, Cause::Switch)),
    percent("busy cycles: own invalidations", |o| of_busy(o, Cause::FlushLocal)),
    percent("busy cycles: telling others", |o| of_busy(o, Cause::FlushSend)),
    percent("busy cycles: waiting for answers", |o| of_busy(o, Cause::FlushWait)),
    percent("busy cycles: answering", |o| of_busy(o, Cause::Interrupt)),
    percent("busy cycles: walks, user", |o| of_busy(o, Cause::WalkUser)),
    percent("busy cycles: walks, kernel", |o| of_busy(o, Cause::WalkKernel)),
    percent("busy cycles: locks", |o| of_busy(o, Cause::LockSpin)),
    percent("all cycles: idle", |o| part(o.cycles(Cause::Idle), o.ledger.total())),
];

const fn count(title: &'static str, of: fn(&RunOutcome) -> Option<f64>) -> Quantity {
    Quantity { title, unit: Unit::Count, of }
}

const fn percent(title: &'static str, of: fn(&RunOutcome) -> Option<f64>) -> Quantity {
    Quantity { title, unit: Unit::Percent, of }
}

/// A row for each quantity, a column for each of `outcomes`.
pub(crate) fn compared_rows(outcomes: &[(&str, RunOutcome)]) -> Vec<Vec<String>> {
    let row = |quantity: &Quantity| {
        let cells = outcomes.iter().map(|(_, outcome)| cell((quantity.of)(outcome), quantity.unit));
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

fn needed(needed: Needed) -> Option<f64> {
    part(needed.needed, needed.done)
}

fn of_busy(outcome: &RunOutcome, cause: Cause) -> Option<f64> {
    part(outcome.cycles(cause), outcome.ledger.total() - outcome.cycles(Cause::Idle))
}

fn part(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_named_with_what_it_is_a_part_of() {
        let titles: Vec<_> = QUANTITIES.iter().map(Quantity::full_title).collect();
        assert!(titles.contains(&"flush interrupts sent: of them needed at once: of these before the next use".into()));
        assert!(titles.contains(&"pages invalidated singly: of them needed".into()));
        assert!(titles.contains(&"busy cycles: user".into()));
        let again = |title: &String| titles.iter().filter(|other| *other == title).count() > 1;
        assert!(!titles.iter().any(again), "{titles:?}");
    }
}

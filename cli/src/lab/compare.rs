//! The outcomes of several policies side by side: one column for each policy.

use tlbkit_sim::RunOutcome;
use tlbkit_sim::observer::Cause;

use crate::output::table::grid;

/// Makes one cell of an outcome.
type MakeCell = fn(&RunOutcome) -> String;

/// What is compared, with how a cell is made of an outcome.
const QUANTITIES: &[(&str, MakeCell)] = &[
    ("score a second", |o| format!("{:.0}", o.score_per_second)),
    ("flush interrupts sent", |o| o.ipis.sent.to_string()),
    ("  of them needed", |o| ratio(o.flushes.interrupts.needed, o.flushes.interrupts.done)),
    ("flushes", |o| o.flushes.flushes.to_string()),
    ("  of everything", |o| o.flushes.full_flushes.to_string()),
    ("pages invalidated singly", |o| o.flushes.pages.done.to_string()),
    ("  of them needed", |o| ratio(o.flushes.pages.needed, o.flushes.pages.done)),
    ("switches that kept entries", |o| o.flushes.switches_kept.to_string()),
    ("switches that flushed", |o| o.flushes.switches_flushed.to_string()),
    ("page walks", |o| o.tlb.walks.to_string()),
    ("  refilling what was flushed", |o| o.tlb.refills.to_string()),
    ("cycles: user", |o| share(o, Cause::User)),
    ("cycles: kernel", |o| share(o, Cause::Kernel)),
    ("cycles: faults", |o| share(o, Cause::Fault)),
    ("cycles: switch path", |o| share(o, Cause::Switch)),
    ("cycles: own invalidations", |o| share(o, Cause::FlushLocal)),
    ("cycles: telling others", |o| share(o, Cause::FlushSend)),
    ("cycles: waiting for answers", |o| share(o, Cause::FlushWait)),
    ("cycles: answering", |o| share(o, Cause::Interrupt)),
    ("cycles: walks, user", |o| share(o, Cause::WalkUser)),
    ("cycles: walks, kernel", |o| share(o, Cause::WalkKernel)),
    ("cycles: locks", |o| share(o, Cause::LockSpin)),
    ("cycles: idle", |o| share(o, Cause::Idle)),
];

/// A table of `outcomes`, a column a policy.
pub(crate) fn compare(outcomes: &[(&str, RunOutcome)]) -> String {
    let head: Vec<_> =
        ["quantity"].into_iter().chain(outcomes.iter().map(|(name, _)| *name)).map(String::from).collect();
    grid(&head, &compared_rows(outcomes))
}

/// The rows of that table.
pub(crate) fn compared_rows(outcomes: &[(&str, RunOutcome)]) -> Vec<Vec<String>> {
    QUANTITIES
        .iter()
        .map(|(title, cell)| [(*title).to_owned()].into_iter().chain(outcomes.iter().map(|(_, o)| cell(o))).collect())
        .collect()
}

fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

fn share(outcome: &RunOutcome, cause: Cause) -> String {
    ratio(outcome.cycles(cause), outcome.ledger.total())
}

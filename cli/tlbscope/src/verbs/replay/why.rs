//! Why a row of the agreement is bad: what is known of Linux, told where the row stands.

use tlbkit_replay::{Agreement, ComparedCount, Coverage};

/// A row of the agreement below this is wrong, in percent.
pub(super) const AGREES: f64 = 80.0;
/// Rows with fewer flushes are not worth a word.
pub(super) const ROW_LEAST: u64 = 100;

const SWITCHES: &str = "Linux gives its own tables one of six tags, and so recycles tags that a replay keeps";
const TAKEN_AWAY: &str = "in a guest, a CPU that the host has taken away is not interrupted: the host flushes it, and \
    no event says so";
const GAP: &str = "in a guest, a CPU that the host had taken away finds a gap at its next own flush, and flushes \
    everything instead of pages: no event says which CPUs those were";
const OVERTAKEN: &str = "another CPU's flush had overtaken these, or they were for page tables alone, which shared \
    memory had freed: Linux records 0 pages of both, and a replay has neither";
const ARGUMENTS: &str =
    "an exec moves the pages of a program's arguments and environment, whose number no event tells: one is taken";
const ALONE: &str = "only some processes were recorded, and who else ran on their CPUs is not known";
const OLDER: &str = "of processes that are older than the trace, nothing tells which CPUs had run them";

/// The rows that agree badly, each with the likely reason if there is one that goes in its direction; none where
/// nothing was recorded, which is said once above the table.
pub(super) fn reasons(rows: &[Agreement], coverage: Coverage) -> Vec<String> {
    if rows.iter().all(|row| row.recorded == 0) {
        return Vec::new();
    }
    let is_bad = |row: &&Agreement| {
        row.deduced().into_iter().max() >= Some(ROW_LEAST) && row.percent().is_some_and(|percent| percent < AGREES)
    };
    let line = |row: &Agreement| {
        let why = match coverage {
            Coverage::Everybody => reason(row).unwrap_or("no reason is known"),
            Coverage::SomeProcesses => ALONE,
        };
        format!("{}, {:.0} %: {why}.", row.quantity.label(), row.percent().unwrap_or_default())
    };
    rows.iter().filter(is_bad).map(line).collect()
}

fn reason(row: &Agreement) -> Option<&'static str> {
    let is_less_recorded = row.recorded < row.replayed;
    match (row.quantity, is_less_recorded) {
        (ComparedCount::SwitchKept, true) | (ComparedCount::SwitchFlushed, false) => Some(SWITCHES),
        (ComparedCount::OwnNothing, false) => Some(OVERTAKEN),
        (ComparedCount::OwnAll, false)
        | (ComparedCount::OwnPage | ComparedCount::OwnFew | ComparedCount::OwnMore, true) => Some(GAP),
        (ComparedCount::OwnFew, false) => Some(ARGUMENTS),
        (ComparedCount::Interrupts | ComparedCount::Answer | ComparedCount::WrongCpu, true) => Some(TAKEN_AWAY),
        (ComparedCount::Interrupts | ComparedCount::Asking, false) => Some(OLDER),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What no trace has is said once, not in each row.
    #[test]
    fn where_nothing_was_recorded_no_row_has_a_reason() {
        let row = |quantity, recorded| Agreement { quantity, recorded, replayed: 500, told: 0 };
        let both = |recorded| {
            reasons(&[row(ComparedCount::SwitchKept, recorded), row(ComparedCount::OwnAll, 0)], Coverage::Everybody)
        };
        assert_eq!((both(0).len(), both(1).len()), (0, 2));
    }

    #[test]
    fn a_bad_row_has_its_reason_where_one_goes_in_its_direction() {
        let row = |quantity, recorded, replayed| Agreement { quantity, recorded, replayed, told: 0 };
        let of = |row: Agreement| reasons(&[row], Coverage::Everybody).pop();
        let all = |recorded, replayed| of(row(ComparedCount::OwnAll, recorded, replayed));
        assert_eq!(all(200, 100).unwrap(), format!("local mm shootdown, all, 50 %: {GAP}."));
        assert_eq!(all(100, 200).unwrap(), "local mm shootdown, all, 50 %: no reason is known.");
        assert_eq!((all(200, 190), all(20, 10)), (None, None), "it agrees, or is small");
        let alone = reasons(&[row(ComparedCount::Answer, 100, 300)], Coverage::SomeProcesses);
        assert_eq!(alone, [format!("remote shootdown, 33 %: {ALONE}.")], "other reasons or not");
        let few = of(row(ComparedCount::OwnFew, 155, 116)).unwrap();
        assert!(few.ends_with(&format!("{ARGUMENTS}.")), "{few}");
        let sent = |recorded, replayed| of(row(ComparedCount::Interrupts, recorded, replayed)).unwrap();
        assert!(sent(100, 300).ends_with(&format!("{TAKEN_AWAY}.")) && sent(300, 100).ends_with(&format!("{OLDER}.")));
    }
}

//! How far a replay under the recording kernel's own policy agrees with what that kernel recorded.

use crate::deduce::Deduced;
use crate::tally::Tally;
use tlbkit_trace::{FlushReason, FlushSize, Summary};

/// One row: what the trace says, what the replay says.
#[derive(Clone, PartialEq, Debug)]
pub struct Agreement {
    /// What is compared.
    pub quantity: String,
    /// Counted by the recording kernel.
    pub recorded: u64,
    /// Counted by the replay.
    pub replayed: u64,
    /// In both counts, because the replay was told them by the recording: they agree of themselves.
    pub told: u64,
}

impl Agreement {
    /// 100 for equal, of what was deduced alone; none if neither has any of that.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        let [recorded, replayed] = self.deduced();
        let (less, more) = (recorded.min(replayed), recorded.max(replayed));
        (more > 0).then(|| 100.0 * less as f64 / more as f64)
    }

    /// Both counts without what was told.
    #[must_use]
    pub fn deduced(&self) -> [u64; 2] {
        [self.recorded, self.replayed].map(|count| count.saturating_sub(self.told))
    }
}

/// Sizes as Linux's ceiling makes them differ.
const CLASSES: [(&str, u64, u64); 4] =
    [("0 pages", 0, 0), ("1 page", 1, 1), ("2-8 pages", 2, 8), ("9-33 pages", 9, 33)];

/// Compares by reason, and the initiator's flushes by size.
#[must_use]
pub fn agreement(recorded: &Summary, replayed: &Tally, deduced: &Deduced) -> Vec<Agreement> {
    let row = |quantity: String, recorded, replayed| Agreement { quantity, recorded, replayed, told: 0 };
    let told = |size: FlushSize| deduced.told_sizes.get(&size).copied().unwrap_or(0);
    let sized = |reason: FlushReason, name: &str, size| {
        let quantity = format!("{}, {name}", reason.label());
        row(quantity, recorded.sizes(reason).of(size), replayed.sized(reason, size))
    };
    let local = FlushReason::LocalMmShootdown;
    let mut rows = vec![
        sized(FlushReason::TaskSwitch, "kept", FlushSize::Pages(0)),
        sized(FlushReason::TaskSwitch, "flushed", FlushSize::All),
        Agreement {
            told: deduced.told_sizes.values().sum(),
            ..row(local.label().to_owned(), recorded.flushes(local), replayed.of(local))
        },
    ];
    rows.extend(CLASSES.map(|(name, least, most)| {
        let sum = |of: &dyn Fn(FlushSize) -> u64| (least..=most).map(|pages| of(FlushSize::Pages(pages))).sum();
        let recorded = sum(&|size| recorded.sizes(local).of(size));
        let of_class = row(format!("{}, {name}", local.label()), recorded, sum(&|size| replayed.sized(local, size)));
        Agreement { told: sum(&told), ..of_class }
    }));
    rows.push(Agreement { told: told(FlushSize::All), ..sized(local, "all", FlushSize::All) });
    for reason in [FlushReason::RemoteSendIpi, FlushReason::RemoteShootdown, FlushReason::RemoteWrongCpu] {
        rows.push(row(reason.label().to_owned(), recorded.flushes(reason), replayed.of(reason)));
    }
    // One for each CPU that was asked, for any page of any space: where the trace has the calls across CPUs.
    if !recorded.calls().is_empty() {
        rows.push(row("interrupts sent".to_owned(), recorded.shootdown_targets(), replayed.interrupts));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::Agreement;

    #[test]
    fn what_was_told_agrees_of_itself_and_is_left_out() {
        let row = |recorded, replayed, told| Agreement { quantity: String::new(), recorded, replayed, told };
        assert_eq!(row(100, 80, 0).percent(), Some(80.0));
        assert_eq!(row(100, 80, 60).percent(), Some(50.0));
        assert_eq!(row(60, 60, 60).percent(), None);
        assert_eq!(row(0, 0, 0).percent(), None);
    }
}

//! How far a replay under the recording kernel's own policy agrees with what that kernel recorded.

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
}

impl Agreement {
    /// 100 for equal; none if neither has any.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        let (less, more) = (self.recorded.min(self.replayed), self.recorded.max(self.replayed));
        (more > 0).then(|| 100.0 * less as f64 / more as f64)
    }
}

/// Sizes as Linux's ceiling makes them differ.
const CLASSES: [(&str, u64, u64); 4] =
    [("0 pages", 0, 0), ("1 page", 1, 1), ("2-8 pages", 2, 8), ("9-33 pages", 9, 33)];

/// Compares by reason, and the initiator's flushes by size.
#[must_use]
pub fn agreement(recorded: &Summary, replayed: &Tally) -> Vec<Agreement> {
    let row = |quantity: String, recorded, replayed| Agreement { quantity, recorded, replayed };
    let sized = |reason: FlushReason, name: &str, size| {
        let quantity = format!("{}, {name}", reason.label());
        row(quantity, recorded.sizes(reason).of(size), replayed.sized(reason, size))
    };
    let local = FlushReason::LocalMmShootdown;
    let mut rows = vec![
        sized(FlushReason::TaskSwitch, "kept", FlushSize::Pages(0)),
        sized(FlushReason::TaskSwitch, "flushed", FlushSize::All),
        row(local.label().to_owned(), recorded.flushes(local), replayed.of(local)),
    ];
    rows.extend(CLASSES.map(|(name, least, most)| {
        let sum = |of: &dyn Fn(FlushSize) -> u64| (least..=most).map(|pages| of(FlushSize::Pages(pages))).sum();
        let recorded = sum(&|size| recorded.sizes(local).of(size));
        row(format!("{}, {name}", local.label()), recorded, sum(&|size| replayed.sized(local, size)))
    }));
    rows.push(sized(local, "all", FlushSize::All));
    for reason in [FlushReason::RemoteSendIpi, FlushReason::RemoteShootdown, FlushReason::RemoteWrongCpu] {
        rows.push(row(reason.label().to_owned(), recorded.flushes(reason), replayed.of(reason)));
    }
    // One for each CPU that was asked, for any page of any space: where the trace has the calls across CPUs.
    if !recorded.calls().is_empty() {
        rows.push(row("interrupts sent".to_owned(), recorded.shootdown_targets(), replayed.interrupts));
    }
    rows
}

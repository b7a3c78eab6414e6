//! How far a replay under the recording kernel's own policy agrees with what that kernel recorded.

use crate::deduce::Deduced;
use crate::tally::Tally;
use tlbkit_trace::{FlushReason, FlushSize, Summary};

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Row {
    /// Switches to a space that kept what its tag held.
    SwitchKept,
    /// Switches to a space that dropped it.
    SwitchFlushed,
    /// A CPU's own flushes of its own space.
    Own,
    /// Those of them that found all flushed already.
    OwnNothing,
    /// Those of one page.
    OwnPage,
    /// Those of 2 to 8 pages.
    OwnFew,
    /// Those of 9 to 33 pages.
    OwnMore,
    /// Those of everything.
    OwnAll,
    /// Flushes that had others to ask.
    Asking,
    /// Flushes because another CPU asked.
    Answer,
    /// Requests that met another space.
    WrongCpu,
    /// Interrupts that were sent for flushes.
    Interrupts,
}

impl Row {
    /// Its name in tables: the kernel's for the reason, and what of it is meant.
    #[must_use]
    pub fn label(self) -> String {
        let (reason, part) = match self {
            Self::SwitchKept => (FlushReason::TaskSwitch, "kept"),
            Self::SwitchFlushed => (FlushReason::TaskSwitch, "flushed"),
            Self::Own => (FlushReason::LocalMmShootdown, ""),
            Self::OwnNothing => (FlushReason::LocalMmShootdown, "0 pages"),
            Self::OwnPage => (FlushReason::LocalMmShootdown, "1 page"),
            Self::OwnFew => (FlushReason::LocalMmShootdown, "2-8 pages"),
            Self::OwnMore => (FlushReason::LocalMmShootdown, "9-33 pages"),
            Self::OwnAll => (FlushReason::LocalMmShootdown, "all"),
            Self::Asking => (FlushReason::RemoteSendIpi, ""),
            Self::Answer => (FlushReason::RemoteShootdown, ""),
            Self::WrongCpu => (FlushReason::RemoteWrongCpu, ""),
            Self::Interrupts => return "interrupts sent".to_owned(),
        };
        if part.is_empty() { reason.label().to_owned() } else { format!("{}, {part}", reason.label()) }
    }
}

/// One row: what the trace says, what the replay says.
#[derive(Clone, PartialEq, Debug)]
pub struct Agreement {
    /// What is compared.
    pub quantity: Row,
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

/// Sizes as Linux's ceiling makes them differ: the least and the most pages.
const CLASSES: [(Row, u64, u64); 4] =
    [(Row::OwnNothing, 0, 0), (Row::OwnPage, 1, 1), (Row::OwnFew, 2, 8), (Row::OwnMore, 9, 33)];

/// Compares by reason, and the initiator's flushes by size.
#[must_use]
pub fn agreement(recorded: &Summary, replayed: &Tally, deduced: &Deduced) -> Vec<Agreement> {
    let row = |quantity, recorded, replayed| Agreement { quantity, recorded, replayed, told: 0 };
    let told = |size: FlushSize| deduced.told_sizes.get(&size).copied().unwrap_or(0);
    let sized = |quantity, reason, size| row(quantity, recorded.sizes(reason).of(size), replayed.sized(reason, size));
    let all = |quantity, reason| row(quantity, recorded.flushes(reason), replayed.of(reason));
    let local = FlushReason::LocalMmShootdown;
    let mut rows = vec![
        sized(Row::SwitchKept, FlushReason::TaskSwitch, FlushSize::Pages(0)),
        sized(Row::SwitchFlushed, FlushReason::TaskSwitch, FlushSize::All),
        Agreement { told: deduced.told_sizes.values().sum(), ..all(Row::Own, local) },
    ];
    rows.extend(CLASSES.map(|(quantity, least, most)| {
        let sum = |of: &dyn Fn(FlushSize) -> u64| (least..=most).map(|pages| of(FlushSize::Pages(pages))).sum();
        let recorded = sum(&|size| recorded.sizes(local).of(size));
        let of_class = row(quantity, recorded, sum(&|size| replayed.sized(local, size)));
        Agreement { told: sum(&told), ..of_class }
    }));
    rows.push(Agreement { told: told(FlushSize::All), ..sized(Row::OwnAll, local, FlushSize::All) });
    rows.extend([
        all(Row::Asking, FlushReason::RemoteSendIpi),
        all(Row::Answer, FlushReason::RemoteShootdown),
        all(Row::WrongCpu, FlushReason::RemoteWrongCpu),
    ]);
    // One for each CPU that was asked, for any page of any space: where the trace has the calls across CPUs.
    if !recorded.calls().is_empty() {
        rows.push(row(Row::Interrupts, recorded.shootdown_targets(), replayed.interrupts));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::{Agreement, Row};

    #[test]
    fn what_was_told_agrees_of_itself_and_is_left_out() {
        let row = |recorded, replayed, told| Agreement { quantity: Row::Own, recorded, replayed, told };
        assert_eq!(row(100, 80, 0).percent(), Some(80.0));
        assert_eq!(row(100, 80, 60).percent(), Some(50.0));
        assert_eq!(row(60, 60, 60).percent(), None);
        assert_eq!(row(0, 0, 0).percent(), None);
    }
}

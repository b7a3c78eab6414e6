//! Compares what a replay under the recording kernel's own policy counts with what that kernel recorded.

use crate::deduce::Deduced;
use crate::tally::Tally;
use tlbkit_trace::{FlushReason, FlushSize, Summary};

/// A count that is compared: events of one reason or size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ComparedCount {
    /// Switches to a space that kept the entries of its tag.
    SwitchKept,
    /// Switches to a space that flushed its tag.
    SwitchFlushed,
    /// Flushes that a CPU does for a space that it runs itself, of any size.
    Own,
    /// Own flushes that had nothing left to do.
    OwnNothing,
    /// Own flushes of one page.
    OwnPage,
    /// Own flushes of 2 to 8 pages.
    OwnFew,
    /// Own flushes of 9 to 33 pages.
    OwnMore,
    /// Own flushes of everything.
    OwnAll,
    /// Flushes for which other CPUs had to be asked.
    Asking,
    /// Flushes that a CPU does because another one asked.
    Answer,
    /// Requests for a flush that reached a CPU while it ran another space.
    WrongCpu,
    /// Interrupts that were sent for flushes, one for each CPU that was asked.
    Interrupts,
}

impl ComparedCount {
    /// A name for tables: the kernel's name of the reason, and what of it is counted.
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

/// One count in the trace and in the replay.
#[derive(Clone, PartialEq, Debug)]
pub struct Agreement {
    /// Which count it is.
    pub quantity: ComparedCount,
    /// How many the recording kernel counted.
    pub recorded: u64,
    /// How many the replay counted.
    pub replayed: u64,
    /// How many of both were not deduced but taken from the recording. They agree in any case, and so prove nothing.
    pub told: u64,
}

impl Agreement {
    /// The smaller of the two deduced counts in percent of the larger one: 100 if they are equal. None if both are
    /// zero.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        let [recorded, replayed] = self.deduced();
        let (less, more) = (recorded.min(replayed), recorded.max(replayed));
        (more > 0).then(|| 100.0 * less as f64 / more as f64)
    }

    /// The recorded and the replayed count, without what was taken from the recording.
    #[must_use]
    pub fn deduced(&self) -> [u64; 2] {
        [self.recorded, self.replayed].map(|count| count.saturating_sub(self.told))
    }
}

/// The classes of sizes, up to Linux's ceiling: the fewest and the most pages of each.
const CLASSES: [(ComparedCount, u64, u64); 4] = [
    (ComparedCount::OwnNothing, 0, 0),
    (ComparedCount::OwnPage, 1, 1),
    (ComparedCount::OwnFew, 2, 8),
    (ComparedCount::OwnMore, 9, 33),
];

/// Compares the counts of each reason, and of own flushes also those of each class of sizes.
///
/// `replayed` must come from a replay of `deduced` under the policy of the kernel that recorded, and `recorded` from
/// the same trace. Otherwise the comparison means nothing.
#[must_use]
pub fn agreement(recorded: &Summary, replayed: &Tally, deduced: &Deduced) -> Vec<Agreement> {
    let row = |quantity, recorded, replayed| Agreement { quantity, recorded, replayed, told: 0 };
    let told = |size: FlushSize| deduced.told_sizes.get(&size).copied().unwrap_or(0);
    let sized = |quantity, reason, size| row(quantity, recorded.sized(reason, size), replayed.sized(reason, size));
    let all = |quantity, reason| row(quantity, recorded.flushes(reason), replayed.of(reason));
    let local = FlushReason::LocalMmShootdown;
    let mut rows = vec![
        sized(ComparedCount::SwitchKept, FlushReason::TaskSwitch, FlushSize::Pages(0)),
        sized(ComparedCount::SwitchFlushed, FlushReason::TaskSwitch, FlushSize::All),
        Agreement { told: deduced.told_sizes.values().sum(), ..all(ComparedCount::Own, local) },
    ];
    rows.extend(CLASSES.map(|(quantity, least, most)| {
        let sum = |of: &dyn Fn(FlushSize) -> u64| (least..=most).map(|pages| of(FlushSize::Pages(pages))).sum();
        let recorded = sum(&|size| recorded.sized(local, size));
        let of_class = row(quantity, recorded, sum(&|size| replayed.sized(local, size)));
        Agreement { told: sum(&told), ..of_class }
    }));
    rows.push(Agreement { told: told(FlushSize::All), ..sized(ComparedCount::OwnAll, local, FlushSize::All) });
    rows.extend([
        all(ComparedCount::Asking, FlushReason::RemoteSendIpi),
        all(ComparedCount::Answer, FlushReason::RemoteShootdown),
        all(ComparedCount::WrongCpu, FlushReason::RemoteWrongCpu),
    ]);
    // Interrupts can only be compared if the trace has the events of calls across CPUs.
    rows.extend(recorded.requests().map(|sent| row(ComparedCount::Interrupts, sent, replayed.interrupts)));
    rows
}

#[cfg(test)]
mod tests {
    use super::{Agreement, ComparedCount};

    #[test]
    fn what_was_told_agrees_of_itself_and_is_left_out() {
        let row = |recorded, replayed, told| Agreement { quantity: ComparedCount::Own, recorded, replayed, told };
        assert_eq!(row(100, 80, 0).percent(), Some(80.0));
        assert_eq!(row(100, 80, 60).percent(), Some(50.0));
        assert_eq!(row(60, 60, 60).percent(), None);
        assert_eq!(row(0, 0, 0).percent(), None);
    }
}

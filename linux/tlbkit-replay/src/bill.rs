//! What was done, item by item, and what that costs at the prices of a machine.
//!
//! A bill holds counts and no cycles, so that two policies are compared item by item: both run on the same machine,
//! at the same prices, whatever these are.

use std::ops::{Add, AddAssign};

/// A figure that is not known exactly, but only to lie between two values.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Estimate {
    /// The lowest value that is possible.
    pub low: f64,
    /// The most likely value or, for want of one, the middle.
    pub value: f64,
    /// The highest value that is possible.
    pub high: f64,
}

impl Estimate {
    /// `count` times as much; a negative count turns the range round.
    #[must_use]
    pub fn times(self, count: f64) -> Self {
        let ends = (self.low * count, self.high * count);
        Self { low: ends.0.min(ends.1), value: self.value * count, high: ends.0.max(ends.1) }
    }
}

impl Add for Estimate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { low: self.low + other.low, value: self.value + other.value, high: self.high + other.high }
    }
}

impl std::iter::Sum for Estimate {
    fn sum<I: Iterator<Item = Self>>(ranges: I) -> Self {
        ranges.fold(Self::default(), Add::add)
    }
}

/// What has a price.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CostItem {
    /// CR3 written, and its tag kept.
    Keep,
    /// CR3 written, and its tag flushed.
    Flush,
    /// INVLPG.
    Page,
    /// INVPCID of one page: the user half under isolation.
    UserPage,
    /// Everything in every tag flushed.
    Everything,
    /// An interrupt sent.
    Send,
    /// Its way to the target.
    Deliver,
    /// Interrupt entry and exit.
    Interrupt,
    /// A page walk for an entry that a flush dropped: nothing if the program never comes back to it.
    Walk,
    /// A fault that takes a new page of anonymous memory: entry, allocation, zeroing, table work.
    Fault,
    /// The same with 2 MiB at once.
    HugeFault,
    /// A fault that finds its page: of a file, of zeros, or with other rights.
    OtherFault,
    /// A call that takes pages away, without its flush and without the pages.
    Call,
    /// A page that such a call unmaps and frees.
    GiveBack,
    /// A page that such a call only marks, to be taken when memory is short.
    LazyFree,
    /// The next store to a page that was only marked: no fault, but the processor marks it as written.
    LazyStore,
}

/// What cycles went into.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CostPart {
    /// Loading spaces.
    Switching,
    /// From user mode into the kernel and back, under isolation.
    Crossing,
    /// The initiator's own half of flushes.
    Flushing,
    /// Sending interrupts.
    Asking,
    /// Waiting for the answers.
    Waiting,
    /// Taking interrupts and flushing for others.
    Answering,
    /// Walks to find again what was flushed.
    Refilling,
    /// Faults.
    Faulting,
    /// Calls that take pages away.
    Calling,
}

impl CostPart {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Switching,
        Self::Crossing,
        Self::Flushing,
        Self::Asking,
        Self::Waiting,
        Self::Answering,
        Self::Refilling,
        Self::Faulting,
        Self::Calling,
    ];
    /// Those of flushes and switches alone, which a policy decides.
    pub const OF_FLUSHES: [Self; 7] = *Self::ALL.first_chunk().expect("the first of all parts");

    /// Short name for tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Switching => "switching",
            Self::Crossing => "user/kernel crossings",
            Self::Flushing => "own flushes",
            Self::Asking => "sending interrupts",
            Self::Waiting => "waiting for answers",
            Self::Answering => "answering",
            Self::Refilling => "refilling",
            Self::Faulting => "faults",
            Self::Calling => "calls that take pages",
        }
    }
}

/// Kinds of [`CostItem`].
pub(crate) const ITEMS: usize = 16;
/// How many of each item.
pub(crate) type Counts = [u64; ITEMS];

/// Cycles of each item.
#[derive(Clone, Copy, Debug)]
pub struct Prices(pub(crate) [Estimate; ITEMS]);

impl Prices {
    /// Of one.
    #[must_use]
    pub const fn of(&self, item: CostItem) -> Estimate {
        self.0[item as usize]
    }
}

/// How many of each item, by part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bill([Counts; CostPart::ALL.len()]);

impl Bill {
    pub(crate) fn charge(&mut self, part: CostPart, item: CostItem, count: u64) {
        self.0[part as usize][item as usize] += count;
    }

    pub(crate) fn charge_all(&mut self, part: CostPart, counts: &Counts) {
        self.0[part as usize].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }

    /// How often it was done. Waiting is not doing.
    #[must_use]
    pub fn count(&self, item: CostItem) -> u64 {
        let doing = CostPart::ALL.into_iter().filter(|&part| part != CostPart::Waiting);
        doing.map(|part| self.0[part as usize][item as usize]).sum()
    }

    /// Cycles of one part.
    #[must_use]
    pub fn cost(&self, part: CostPart, prices: &Prices) -> Estimate {
        self.0[part as usize].iter().zip(prices.0).map(|(&count, price)| price.times(count as f64)).sum()
    }

    /// Cycles of flushes and switches, without faults and calls.
    #[must_use]
    pub fn of_flushes(&self, prices: &Prices) -> Estimate {
        CostPart::OF_FLUSHES.into_iter().map(|part| self.cost(part, prices)).sum()
    }

    /// Cycles of all parts.
    #[must_use]
    pub fn total(&self, prices: &Prices) -> Estimate {
        self.saving(&Self::default(), prices)
    }

    /// By how many cycles `other` is cheaper, whatever the prices are within their bands; below zero if it is dearer.
    #[must_use]
    pub fn saving(&self, other: &Self, prices: &Prices) -> Estimate {
        let sum = |bill: &Self, item: usize| bill.0.iter().map(|part| part[item]).sum::<u64>() as f64;
        (0..ITEMS).map(|item| prices.0[item].times(sum(self, item) - sum(other, item))).sum()
    }
}

impl AddAssign<&Self> for Bill {
    fn add_assign(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(part, other)| {
            part.iter_mut().zip(other).for_each(|(sum, count)| *sum += count);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saving_is_counted_item_by_item() {
        let mut prices = Prices([Estimate::default(); ITEMS]);
        prices.0[CostItem::Page as usize] = Estimate { low: 100.0, value: 200.0, high: 300.0 };
        prices.0[CostItem::Flush as usize] = Estimate { low: 400.0, value: 400.0, high: 400.0 };
        let (mut by_page, mut whole) = (Bill::default(), Bill::default());
        by_page.charge(CostPart::Flushing, CostItem::Page, 5);
        whole.charge(CostPart::Flushing, CostItem::Page, 2);
        whole.charge(CostPart::Flushing, CostItem::Flush, 1);
        // Three pages against one flush: the two that both have fall out, dear or cheap.
        let saving = Estimate { low: -100.0, value: 200.0, high: 500.0 };
        assert_eq!(by_page.saving(&whole, &prices), saving);
        assert_eq!(whole.saving(&by_page, &prices), Estimate { low: -500.0, value: -200.0, high: 100.0 });
        assert_eq!(whole.total(&prices).value, 800.0);
    }

    #[test]
    fn waiting_costs_but_does_nothing() {
        let mut bill = Bill::default();
        bill.charge(CostPart::Answering, CostItem::Flush, 1);
        bill.charge(CostPart::Waiting, CostItem::Flush, 1);
        assert_eq!(bill.count(CostItem::Flush), 1);
        let mut prices = Prices([Estimate::default(); ITEMS]);
        prices.0[CostItem::Flush as usize] = Estimate { low: 1.0, value: 2.0, high: 3.0 };
        assert_eq!(bill.total(&prices), Estimate { low: 2.0, value: 4.0, high: 6.0 });
    }
}

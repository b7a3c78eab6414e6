//! Counts what was done, item by item, and says what that costs at the prices of a machine.
//!
//! A bill holds counts and no cycles. So two policies are compared item by item, at the same prices, and an uncertain
//! price affects both in the same way.

use std::ops::{Add, AddAssign};

/// A number that is known only to lie between two values. Its unit is that of the function which returns it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Estimate {
    /// The lowest value that is possible.
    pub low: f64,
    /// The most likely value, or the middle of the range if none is more likely.
    pub value: f64,
    /// The highest value that is possible.
    pub high: f64,
}

impl Estimate {
    /// `count` times as much. With a negative count the ends of the range change places.
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

/// An item of a bill: something that takes cycles, whose number a machine file gives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CostItem {
    /// A write of CR3 that keeps the entries of its tag.
    Keep,
    /// A write of CR3 that flushes the entries of its tag.
    Flush,
    /// An INVLPG.
    Page,
    /// An INVPCID of one page: of the user half under isolation.
    UserPage,
    /// A flush of all entries of all tags.
    Everything,
    /// The sending of an interrupt, on the sender's CPU.
    Send,
    /// The way of an interrupt to its target.
    Deliver,
    /// The entry into and the exit from an interrupt.
    Interrupt,
    /// A page walk for an entry that a flush dropped. Its price begins at 0, as the program may never use the page
    /// again.
    Walk,
}

/// A part of a bill: the work that cycles were spent on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum CostPart {
    /// Loading address spaces.
    Switching,
    /// Going from user mode into the kernel and back, under page-table isolation.
    Crossing,
    /// Flushing on the initiator's own CPU.
    Flushing,
    /// Sending interrupts.
    Asking,
    /// Waiting for the answers.
    Waiting,
    /// Taking interrupts and flushing for others.
    Answering,
    /// Walking for entries again that were flushed.
    Refilling,
}

impl CostPart {
    /// All parts.
    pub const ALL: [Self; 7] = [
        Self::Switching,
        Self::Crossing,
        Self::Flushing,
        Self::Asking,
        Self::Waiting,
        Self::Answering,
        Self::Refilling,
    ];

    /// A short name for tables.
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
        }
    }
}

/// How many kinds of [`CostItem`] there are.
pub(crate) const ITEMS: usize = 9;
/// A count of each item, by its discriminant.
pub(crate) type Counts = [u64; ITEMS];

/// The price of each item, in cycles of the machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct Prices(pub(crate) [Estimate; ITEMS]);

impl Prices {
    /// The price of one `item`, in cycles.
    #[must_use]
    pub const fn of(&self, item: CostItem) -> Estimate {
        self.0[item as usize]
    }
}

/// How many of each item there were in each part of the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bill([Counts; CostPart::ALL.len()]);

impl Bill {
    pub(crate) fn charge(&mut self, part: CostPart, item: CostItem, count: u64) {
        self.0[part as usize][item as usize] += count;
    }

    pub(crate) fn charge_all(&mut self, part: CostPart, counts: &Counts) {
        self.0[part as usize].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }

    /// How many of `item` there were in all parts but [`CostPart::Waiting`], in which the work of others is counted
    /// again.
    #[must_use]
    pub fn count(&self, item: CostItem) -> u64 {
        let doing = CostPart::ALL.into_iter().filter(|&part| part != CostPart::Waiting);
        doing.map(|part| self.0[part as usize][item as usize]).sum()
    }

    /// What `part` costs, in cycles.
    #[must_use]
    pub fn cost(&self, part: CostPart, prices: &Prices) -> Estimate {
        self.0[part as usize].iter().zip(prices.0).map(|(&count, price)| price.times(count as f64)).sum()
    }

    /// What all parts cost, in cycles.
    #[must_use]
    pub fn total(&self, prices: &Prices) -> Estimate {
        self.saving(&Self::default(), prices)
    }

    /// By how many cycles `other` is cheaper; negative if it is dearer. The range has all prices within their bands,
    /// each the same for both bills.
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

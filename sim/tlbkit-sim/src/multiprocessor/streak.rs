//! Loads that need not be looked up, because the one before was of the same line and nobody else has acted.

use std::cell::Cell;

use super::processor::Processor;
use crate::lines::{LINE_SHIFT, word_bit};
use crate::observer::{Cause, Class, LineUse};

/// Loads of one line in a row by the running CPU: a set is scanned word by word. While nobody else has acted and
/// nothing is due they need not be looked up; they are counted, and charged when the streak ends.
pub(super) struct Streak {
    /// Whose; nobody's when there is none.
    processor: Cell<Option<&'static Processor>>,
    /// The line's number among all of the host's lines.
    line: Cell<usize>,
    /// From then on the line may be somebody else's business, or an interrupt is due.
    until: Cell<u64>,
    class: Cell<Class>,
    cause: Cell<Cause>,
    /// Bit per word that belongs to a CPU set.
    set_words: Cell<u8>,
    hits: Cell<u64>,
    /// Of those, in words of sets.
    set_hits: Cell<u64>,
}

impl Streak {
    pub(super) const fn new() -> Self {
        Self {
            processor: Cell::new(None),
            line: Cell::new(0),
            until: Cell::new(0),
            class: Cell::new(Class::Idle),
            cause: Cell::new(Cause::Idle),
            set_words: Cell::new(0),
            hits: Cell::new(0),
            set_hits: Cell::new(0),
        }
    }

    pub(super) fn begin(&self, processor: &'static Processor, address: usize, set_words: u8, until: u64) {
        self.processor.set(Some(processor));
        self.line.set(address >> LINE_SHIFT);
        self.until.set(until);
        self.class.set(processor.class.get());
        self.cause.set(processor.cause.get());
        self.set_words.set(set_words);
    }

    /// True if the load at `address` is one more.
    #[inline]
    pub(super) fn repeats(&self, address: usize, cycles: u64) -> bool {
        let Some(processor) = self.processor.get() else { return false };
        let now = processor.clock.get();
        let goes_on = self.line.get() == address >> LINE_SHIFT && now < self.until.get();
        if !goes_on || processor.cause.get() != self.cause.get() {
            return false;
        }
        processor.clock.set(now + cycles);
        self.hits.set(self.hits.get() + 1);
        self.set_hits.set(self.set_hits.get() + u64::from(self.set_words.get() & word_bit(address) != 0));
        true
    }

    /// Ends the streak: charges its loads, `cycles` each, and returns how many there were.
    #[inline]
    pub(super) fn end(&self, cycles: u64) -> u64 {
        let Some(processor) = self.processor.take() else { return 0 };
        let hits = self.hits.take();
        if hits > 0 {
            let (class, cause) = (self.class.get(), self.cause.get());
            let set_hits = self.set_hits.take();
            let mut ledger = processor.ledger.borrow_mut();
            ledger.charge_line(class, cause, set_hits * cycles, LineUse::CpuSet);
            ledger.charge_line(class, cause, (hits - set_hits) * cycles, LineUse::Other);
        }
        hits
    }
}

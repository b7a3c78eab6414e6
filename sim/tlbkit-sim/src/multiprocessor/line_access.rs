//! One access to a shared cache line: it comes in its turn, costs what the line costs, and wakes the CPUs that watch
//! the line.

use tlbkit::sync::Access as AtomicAccess;

use super::agenda::NEVER;
use super::processor::Irqs;
use super::spin::LineFound;
use super::system::Multiprocessor;
use crate::lines::{Met, Reach, word_bit};
use crate::observer::LineUse;

/// How it is known that an access meets the line of the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repeats {
    /// By its address, as long as nobody else acts.
    KnownByAddress,
    /// It is not known: the line has only a name, and no access of the host has that as its address.
    NotKnown,
}

impl Multiprocessor {
    /// An access to the line of the byte at `address`, or that has this name.
    pub(super) fn access_line(&'static self, access: AtomicAccess, address: usize, repeats: Repeats) {
        let cpu = self.cpu();
        let processor = &self.processors[cpu];
        let met = self.lines.borrow_mut().find(cpu as u32, access, address, processor.now());
        let Met { line, reach, address } = met;
        self.sync(match reach {
            Reach::Settled if processor.irqs() == Irqs::Off => NEVER,
            Reach::Settled => self.touch_lookahead(),
            Reach::Near => self.costs.lines.nearest_cycles(),
            Reach::Far => 0,
        });
        if access == AtomicAccess::Rmw {
            processor.advance_to(processor.drained_at.get(), processor.cause());
        }
        self.tally.note_access();
        let now = processor.now();
        let charge = self.lines.borrow_mut().access(cpu as u32, access, line, now);
        let line_use = if charge.set_words & word_bit(address) != 0 { LineUse::CpuSet } else { LineUse::Other };
        processor.advance_line(charge.cycles, line_use);
        if repeats == Repeats::KnownByAddress {
            let is_settled = reach == Reach::Settled && charge.was_held;
            let ahead = if is_settled { self.touch_lookahead() } else { self.costs.lines.nearest_cycles() };
            let until = self.horizon.get().saturating_add(ahead + 1).min(processor.takes_at());
            self.streak.begin(processor, address, charge.set_words, until);
        }
        if access == AtomicAccess::Load {
            processor.spin.borrow_mut().load(line, if charge.was_held { LineFound::Held } else { LineFound::Fetched });
            return;
        }
        processor.spin.borrow_mut().disturb();
        processor.drained_at.set(processor.drained_at.get().max(charge.visible_at));
        if charge.is_watched {
            let watchers = self.lines.borrow_mut().take_watchers(line);
            watchers.into_iter().for_each(|watcher| self.wake(watcher as usize, now));
        }
    }
}

//! Spin loops that need not be simulated turn by turn.
//!
//! A turn that only loaded lines, all still held by this CPU, will find the same values again. So the CPU sleeps until
//! another CPU writes one of those lines or an interrupt is due: the same times, fewer turns.

use crate::lines::LineId;

/// More lines than a spin loop looks at: one that waits for answers looks at a word of its outbox, and at up to eight
/// of its inbox, or at what is on top of it. One that waits for calls of Linux's may look at more in one turn, and does
/// not sleep through that one.
const MOST_LINES: usize = 32;

/// Where a load found its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineFound {
    /// In this CPU's cache.
    Held,
    /// Not there, so it had to be fetched.
    Fetched,
}

/// What this CPU has done since it last said that it waits.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    loaded: Vec<LineId>,
    kind: TurnKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum TurnKind {
    /// More happened than loads: the next turn may differ.
    #[default]
    Eventful,
    /// Only loads so far.
    Pure,
}

impl Spin {
    /// A load of `line`, which this CPU holds or must fetch. One that was loaded in this turn and must be fetched again
    /// has been written meanwhile, maybe the very word that the turn looked at first.
    pub(crate) fn load(&mut self, line: LineId, found: LineFound) {
        if self.kind == TurnKind::Eventful {
            return;
        }
        match (self.loaded.contains(&line), found) {
            (true, LineFound::Held) => {}
            (false, _) if self.loaded.len() < MOST_LINES => self.loaded.push(line),
            _ => self.kind = TurnKind::Eventful,
        }
    }

    #[inline]
    pub(crate) fn disturb(&mut self) {
        self.kind = TurnKind::Eventful;
    }

    /// Ends a turn; returns the lines it looked at if it did nothing but look.
    pub(crate) fn end_turn(&mut self) -> Vec<LineId> {
        let lines = std::mem::take(&mut self.loaded);
        match std::mem::replace(&mut self.kind, TurnKind::Pure) {
            TurnKind::Pure => lines,
            TurnKind::Eventful => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: LineId = LineId(1);

    #[test]
    fn only_a_whole_turn_of_loads_may_be_slept_through() {
        let mut spin = Spin::default();
        spin.load(LINE, LineFound::Held);
        assert_eq!(spin.end_turn(), [], "what came before the first turn is unknown");
        spin.load(LINE, LineFound::Fetched);
        spin.load(LINE, LineFound::Held);
        assert_eq!(spin.end_turn(), [LINE]);
        spin.load(LINE, LineFound::Held);
        spin.disturb();
        assert_eq!(spin.end_turn(), []);
    }

    #[test]
    fn a_line_lost_and_fetched_again_within_a_turn_may_have_changed() {
        let mut spin = Spin::default();
        spin.end_turn();
        spin.load(LINE, LineFound::Held);
        spin.load(LINE, LineFound::Fetched);
        assert_eq!(spin.end_turn(), []);
    }
}

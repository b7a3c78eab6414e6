//! Spin loops that need not be simulated turn by turn.
//!
//! A turn that only loaded lines, all still held by this CPU, will find the same values again. So the CPU sleeps until
//! another CPU writes one of those lines or an interrupt is due: the same times, fewer turns.

use crate::lines::LineId;

/// More lines than a spin loop looks at.
const MOST_LINES: usize = 8;

/// What this CPU has done since it last said that it waits.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    loaded: Vec<LineId>,
    turn: Turn,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Turn {
    /// More happened than loads: the next turn may differ.
    #[default]
    Eventful,
    /// Only loads so far.
    Pure,
}

impl Spin {
    pub(crate) fn load(&mut self, line: LineId) {
        if self.turn == Turn::Eventful || self.loaded.contains(&line) {
            return;
        }
        if self.loaded.len() == MOST_LINES {
            self.turn = Turn::Eventful;
        } else {
            self.loaded.push(line);
        }
    }

    pub(crate) fn disturb(&mut self) {
        self.turn = Turn::Eventful;
    }

    /// Ends a turn; returns the lines it looked at if it did nothing but look.
    pub(crate) fn end_turn(&mut self) -> Vec<LineId> {
        let lines = std::mem::take(&mut self.loaded);
        match std::mem::replace(&mut self.turn, Turn::Pure) {
            Turn::Pure => lines,
            Turn::Eventful => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_turn_of_loads_may_be_slept_through() {
        let line = LineId::of(64);
        let mut spin = Spin::default();
        spin.load(line);
        assert_eq!(spin.end_turn(), [], "what came before the first turn is unknown");
        spin.load(line);
        spin.load(line);
        assert_eq!(spin.end_turn(), [line]);
        spin.load(line);
        spin.disturb();
        assert_eq!(spin.end_turn(), []);
    }
}

//! A schedule that was recorded, or what is left of one: where it ends, everything goes on undisturbed.

use super::Chooser;
use crate::machine::action::{Action, Turn};

/// Recorded choices.
#[derive(Debug)]
pub(crate) struct Script {
    choices: std::vec::IntoIter<u8>,
}

impl Script {
    pub(crate) fn new(choices: Vec<u8>) -> Self {
        Self { choices: choices.into_iter() }
    }

    /// The next choice among `n`; one that does not exist any more falls back to the first.
    fn next(&mut self, n: usize) -> usize {
        let choice = usize::from(self.choices.next().unwrap_or(0));
        if choice < n { choice } else { 0 }
    }
}

impl Chooser for Script {
    fn choose(&mut self, actions: &[Action], _turn: Turn, _state: u64) -> usize {
        self.next(actions.len())
    }

    fn outcome(&mut self, n: usize) -> usize {
        self.next(n)
    }
}

//! Random schedules. What is likely differs from seed to seed: some hardly ever switch, some hold interrupts or stores
//! back for as long as they can.

use super::Chooser;
use crate::digest;
use crate::machine::action::{Action, Turn};
use tlbkit_arch::SplitMix64;

/// How likely each kind of action is, relative to the others.
#[derive(Clone, Copy, Debug)]
struct Weights {
    go_on: u64,
    switch: u64,
    interrupt: u64,
    drain: u64,
}

/// A schedule from a seed.
#[derive(Debug)]
pub(crate) struct RandomChoice {
    random: SplitMix64,
    weights: Weights,
}

impl RandomChoice {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = digest::random(seed);
        let mut one_of = |weights: &[u64]| weights[random.below(weights.len() as u64) as usize];
        let weights = Weights {
            go_on: one_of(&[4, 16, 64, 256]),
            switch: one_of(&[2, 4, 8]),
            interrupt: one_of(&[0, 1, 4, 16]),
            drain: one_of(&[0, 1, 4, 16]),
        };
        Self { random, weights }
    }

    fn weight(&self, action: Action, index: usize, turn: Turn) -> u64 {
        match action {
            Action::Step(_) if index == 0 && turn == Turn::GoesOn => self.weights.go_on,
            Action::Step(_) | Action::Accessed(_) => self.weights.switch,
            Action::Interrupt(_) | Action::OneInterrupt(_) => self.weights.interrupt,
            Action::Drain(_) => self.weights.drain,
            Action::Preempt(_) | Action::Nmi(_) => 1,
            Action::RunAgain(_) => 2,
        }
    }
}

impl Chooser for RandomChoice {
    fn choose(&mut self, actions: &[Action], turn: Turn, _state: u64) -> usize {
        let total: u64 = actions.iter().enumerate().map(|(index, &action)| self.weight(action, index, turn)).sum();
        if total == 0 {
            return self.random.below(actions.len() as u64) as usize;
        }
        let mut left = self.random.below(total);
        for (index, &action) in actions.iter().enumerate() {
            let weight = self.weight(action, index, turn);
            if left < weight {
                return index;
            }
            left -= weight;
        }
        unreachable!("the weights add up to the total")
    }

    fn outcome(&mut self, n: usize) -> usize {
        self.random.below(n as u64) as usize
    }
}

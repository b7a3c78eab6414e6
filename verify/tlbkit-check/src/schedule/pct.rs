//! Probabilistic concurrency testing: priorities at random, lowered at a few random moments. A bug that needs `d`
//! ordered events among `k` steps is found with probability of at least 1 / (n k^(d-1)).
//!
//! A CPU's interrupts and its store buffer have priorities of their own, as if they were threads.

use super::Chooser;
use crate::digest;
use crate::machine::action::{Action, Turn};
use tlbkit_arch::SplitMix64;

/// Steps of an average run.
const LENGTH: u64 = 400;
/// In one of so many steps a guest's CPU is preempted, or takes a non-maskable interrupt, if it can.
const UNPLANNED: u64 = 32;
/// Kinds of agents a CPU has: itself, interrupts, store buffer.
const KINDS: usize = 3;

/// A schedule from a seed.
#[derive(Debug)]
pub(crate) struct Pct {
    random: SplitMix64,
    /// By CPU and kind; higher goes first.
    priorities: Vec<u64>,
    /// Steps at which the CPU that would run next is lowered.
    changes: Vec<u64>,
    step: u64,
    lowest: u64,
}

impl Pct {
    pub(crate) fn new(seed: u64, cpus: usize) -> Self {
        let mut random = digest::random(seed);
        let depth = 1 + random.below(5);
        let changes = (0..depth).map(|_| random.below(LENGTH)).collect();
        let priorities = (0..cpus * KINDS).map(|_| (1 << 32) + random.below(1 << 32)).collect();
        Self { random, priorities, changes, step: 0, lowest: 1 << 32 }
    }

    fn agent(action: Action) -> usize {
        let kind = match action {
            Action::Step(_) | Action::Accessed(_) | Action::RunAgain(_) => 0,
            Action::Interrupt(_) | Action::OneInterrupt(_) => 1,
            Action::Drain(_) => 2,
            Action::Preempt(_) | Action::Nmi(_) => unreachable!("they have no priority"),
        };
        action.cpu() * KINDS + kind
    }

    fn highest(&self, actions: &[Action]) -> usize {
        let priority = |&index: &usize| self.priorities[Self::agent(actions[index])];
        let planned = (0..actions.len()).filter(|&index| !actions[index].comes_unplanned());
        planned.max_by_key(priority).expect("at least one action")
    }
}

impl Chooser for Pct {
    fn choose(&mut self, actions: &[Action], _turn: Turn, _state: u64) -> usize {
        self.step += 1;
        let unplanned = actions.iter().position(|action| action.comes_unplanned());
        if let Some(first) = unplanned
            && self.random.below(UNPLANNED) == 0
        {
            return first + self.random.below((actions.len() - first) as u64) as usize;
        }
        let index = self.highest(actions);
        if !self.changes.contains(&self.step) {
            return index;
        }
        self.lowest -= 1;
        self.priorities[Self::agent(actions[index])] = self.lowest;
        self.highest(actions)
    }

    fn outcome(&mut self, n: usize) -> usize {
        self.random.below(n as u64) as usize
    }
}

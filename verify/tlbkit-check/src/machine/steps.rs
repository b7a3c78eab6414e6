//! What can happen next. Every shared access of every CPU is a step; between two steps the hardware may act.

use super::Machine;
use super::action::{Action, Turn};
use super::buffer::Place;
use super::core::{Irqs, Mode, Progress};
use super::guest::Hosted;
use super::observation::Observation;

/// Rounds of looking again that found no change, after which no CPU will ever move.
const IDLE_ROUNDS: u32 = 40;

impl Machine {
    /// Decides what happens next and lets the hardware's own actions happen, until a CPU is to act. Nothing if the
    /// run is over.
    pub(crate) fn decide(&mut self) -> Option<Action> {
        let mut actions = std::mem::take(&mut self.actions);
        let decided = loop {
            if self.is_over() {
                break None;
            }
            let turn = self.list(&mut actions);
            if actions.is_empty() {
                self.let_time_pass();
                continue;
            }
            let index = self.choose(&actions, turn);
            match actions[index] {
                Action::Drain(cpu) => {
                    let Some(store) = self.drain_one(cpu) else { continue };
                    self.log(cpu, || match store.to {
                        Place::Physical(at) => {
                            format!("its store of {:#x} to table word {at:#x} reaches memory", store.value)
                        }
                        Place::Shared(_) => format!("its store of {:#x} reaches memory", store.value),
                    });
                }
                Action::Accessed(index) => self.set_accessed(index),
                Action::Preempt(cpu) => self.preempt(cpu),
                Action::RunAgain(cpu) => self.run_again(cpu),
                action => break Some(action),
            }
        };
        self.actions = actions;
        self.granted = decided;
        decided
    }

    fn choose(&mut self, actions: &[Action], turn: Turn) -> usize {
        self.step += 1;
        if self.step >= self.step_limit {
            self.report(&Observation::Stuck("the run does not end"));
        }
        if actions.len() == 1 {
            return 0;
        }
        let state = if self.chooser.wants_state() { self.digest() } else { 0 };
        let index = self.chooser.choose(actions, turn, state);
        self.choices.push(index as u8);
        index
    }

    /// True if nothing more is to happen.
    pub(crate) fn is_over(&self) -> bool {
        self.finding.is_some()
            || self.chooser.has_given_up()
            || self.cpus.iter().all(|core| core.progress == Progress::Ended)
    }

    fn list(&self, actions: &mut Vec<Action>) -> Turn {
        actions.clear();
        let can_step = |cpu: usize| {
            let core = &self.cpus[cpu];
            let is_running = core.host == Hosted::Running;
            is_running && core.progress != Progress::Ended && core.spins_since != Some(self.changes)
        };
        let turn = if can_step(self.current) { Turn::GoesOn } else { Turn::Blocked };
        if turn == Turn::GoesOn {
            actions.push(Action::Step(self.current));
        }
        let others = (0..self.cpus.len()).filter(|&cpu| cpu != self.current);
        actions.extend(others.filter(|&cpu| can_step(cpu)).map(Action::Step));
        for (cpu, core) in self.cpus.iter().enumerate() {
            if core.host != Hosted::Running {
                actions.push(Action::RunAgain(cpu));
                continue;
            }
            let takes = core.irqs == Irqs::On && core.mode != Mode::Stopped && core.progress != Progress::Ended;
            if core.interrupts != 0 && takes {
                actions.push(Action::Interrupt(cpu));
                if !core.interrupts.is_power_of_two() {
                    actions.push(Action::OneInterrupt(cpu));
                }
            }
            if !core.buffer.is_empty() {
                actions.push(Action::Drain(cpu));
            }
        }
        actions.extend((0..self.unaccessed.len()).map(Action::Accessed));
        if !actions.is_empty() {
            // Neither brings anybody on, so both come only where something else could.
            actions.extend((0..self.cpus.len()).filter(|&cpu| self.can_be_preempted(cpu)).map(Action::Preempt));
            actions.extend((0..self.cpus.len()).filter(|&cpu| self.takes_nmi(cpu)).map(Action::Nmi));
        }
        turn
    }

    /// Everybody spins and nothing is on its way: they look again, since patience may end.
    fn let_time_pass(&mut self) {
        self.idle_rounds += 1;
        if self.idle_rounds > IDLE_ROUNDS {
            self.report(&Observation::Stuck("nobody moves any more"));
        }
        for core in &mut self.cpus {
            core.spins_since = core.spins_since.map(|_| u64::MAX);
        }
    }

    /// Which of `n` possible outcomes a step has.
    pub(crate) fn outcome(&mut self, n: usize) -> usize {
        if n == 1 {
            return 0;
        }
        let index = self.chooser.outcome(n);
        self.choices.push(index as u8);
        self.cpus[self.current].remember(index as u64);
        index
    }

    /// Takes the action that was granted.
    pub(super) fn take_granted(&mut self) -> Option<Action> {
        self.granted.take()
    }

    /// The CPU whose turn it is.
    pub(crate) fn granted(&self) -> Option<Action> {
        self.granted
    }
}

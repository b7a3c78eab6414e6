//! States into which an idle CPU goes, and how long it takes to wake up from each.
//!
//! A CPU goes into the deepest state that pays off in the time that it expects to idle. It expects a mean of the times
//! that it idled before, in which each new one counts for an eighth: so does Linux's governor correct what it knows of
//! the next timer (drivers/cpuidle/governors/menu.c). Before its first wake-up it goes as deep as it can. What a deep
//! state loses besides stays here: its translations, its caches, and the address space that Linux leaves on the way
//! into some.

use std::cell::Cell;

use crate::machine::Machine;

/// For how much of the mean a new time counts: one part in so many.
const PARTS: u64 = 8;

/// One state.
#[derive(Clone, Copy, Debug)]
struct State {
    /// What waking up takes.
    exit: u64,
    /// How long a CPU has to idle for it to pay off.
    residency: u64,
}

/// What is known of one CPU.
#[derive(Clone, Copy, Debug)]
struct Idler {
    /// How long it will idle, as far as it knows.
    expects: u64,
    /// What waking up takes from where it is, or was last.
    exit: u64,
}

/// The states of a machine, and where each of its CPUs is. All times are cycles.
pub(super) struct IdleStates {
    /// The shallowest first.
    states: Box<[State]>,
    cpus: Box<[Cell<Idler>]>,
}

impl IdleStates {
    pub(super) fn new(machine: &Machine, cpus: usize) -> Self {
        let cycles = |ns: f64| (ns * machine.system.frequency_mhz.value / 1e3).round() as u64;
        let first = State { exit: machine.cycles.idle_wake.cycles(), residency: 0 };
        let deeper = machine
            .deeper_idle
            .iter()
            .map(|state| State { exit: cycles(state.exit_ns.value), residency: cycles(state.residency_ns.value) });
        let states: Box<[_]> = std::iter::once(first).chain(deeper).collect();
        let deepest = states[states.len() - 1];
        let idler = Idler { expects: deepest.residency, exit: first.exit };
        Self { states, cpus: vec![Cell::new(idler); cpus].into() }
    }

    /// The CPU goes into the state that fits what it expects.
    pub(super) fn enter(&self, cpu: usize) {
        let idler = self.cpus[cpu].get();
        let pays = |state: &&State| state.residency <= idler.expects;
        let state = self.states.iter().rev().find(pays).unwrap_or(&self.states[0]);
        self.cpus[cpu].set(Idler { exit: state.exit, ..idler });
    }

    /// The CPU is awake again, so many cycles after it went to sleep.
    pub(super) fn leave(&self, cpu: usize, slept: u64) {
        let idler = self.cpus[cpu].get();
        let idled = slept.saturating_sub(idler.exit);
        let expects = idler.expects - idler.expects / PARTS + idled / PARTS;
        self.cpus[cpu].set(Idler { expects, ..idler });
    }

    /// What it takes to wake the CPU.
    pub(super) fn exit(&self, cpu: usize) -> u64 {
        self.cpus[cpu].get().exit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 3] =
        [State { exit: 10, residency: 0 }, State { exit: 100, residency: 200 }, State { exit: 600, residency: 2_000 }];

    fn states() -> IdleStates {
        IdleStates { states: STATES.into(), cpus: vec![Cell::new(Idler { expects: 2_000, exit: 10 }); 2].into() }
    }

    #[test]
    fn a_cpu_goes_as_deep_as_it_idled_before() {
        let states = states();
        let exits = |slept: u64, times: usize| -> Vec<u64> {
            let turn = |_| {
                states.enter(0);
                let exit = states.exit(0);
                states.leave(0, slept + exit);
                exit
            };
            (0..times).map(turn).collect()
        };
        assert_eq!(exits(100, 1), [600], "it knows nothing yet");
        let short = exits(100, 30);
        assert_eq!((short[0], short[29]), (100, 10), "{short:?}");
        assert!(short.is_sorted_by(|before, after| before >= after), "{short:?}");
        assert_eq!(exits(5_000, 30).last(), Some(&600));
        states.enter(1);
        assert_eq!(states.exit(1), 600, "another CPU has times of its own");
    }

    #[test]
    fn what_waking_up_takes_is_not_idling() {
        let states = states();
        for _ in 0..60 {
            states.enter(0);
            states.leave(0, 150 + states.exit(0));
        }
        states.enter(0);
        assert_eq!(states.exit(0), 10, "150 cycles are too few for the second state");
    }
}

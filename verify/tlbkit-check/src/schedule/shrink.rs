//! From a failing run to the shortest one that still fails in the same way.
//!
//! First fewer operations, then fewer deviations in the schedule: runs of choices are set back to 0, halves first, then
//! smaller pieces, then each by itself.

use super::script::Script;
use crate::finding::Oracle;
use crate::program::Program;
use crate::run::{Outcome, Scenario, run};
use crate::timeline::Log;

/// Runs that one shrinking may take.
const RUNS: usize = 4000;
/// Random schedules that are tried for a smaller program.
const TRIES: u64 = 60;

/// A failing run.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was run.
    pub scenario: Scenario,
    /// The schedule.
    pub choices: Vec<u8>,
    /// How it went, with what happened.
    pub outcome: Outcome,
}

impl Failure {
    /// Choices that are not the least eventful.
    #[must_use]
    pub fn deviations(&self) -> usize {
        self.choices.iter().filter(|&&choice| choice != 0).count()
    }
}

/// Runs `scenario` as `choices` say.
#[must_use]
pub fn replay(scenario: &Scenario, choices: &[u8], log: Log) -> Outcome {
    run(scenario, Box::new(Script::new(choices.to_vec())), log)
}

fn fails(outcome: &Outcome, oracle: Oracle) -> bool {
    outcome.finding.as_ref().is_some_and(|finding| finding.oracle == oracle)
}

/// The shortest failing run found from `scenario` and `choices`, which fail.
#[must_use]
pub fn shrink(scenario: &Scenario, choices: &[u8], oracle: Oracle) -> Failure {
    let (scenario, choices) = fewer_ops(scenario.clone(), choices.to_vec(), oracle);
    let choices = fewer_deviations(&scenario, choices, oracle);
    let outcome = replay(&scenario, &choices, Log::kept());
    Failure { choices: outcome.choices.clone(), scenario, outcome }
}

/// A failing schedule of a smaller program: the same choices, or one of a few random ones.
fn find(scenario: &Scenario, choices: &[u8], oracle: Oracle) -> Option<Vec<u8>> {
    let outcome = replay(scenario, choices, Log::none());
    if fails(&outcome, oracle) {
        return Some(outcome.choices);
    }
    (0..TRIES).find_map(|seed| {
        let outcome = crate::random(scenario, seed);
        fails(&outcome, oracle).then_some(outcome.choices)
    })
}

fn fewer_ops(mut scenario: Scenario, mut choices: Vec<u8>, oracle: Oracle) -> (Scenario, Vec<u8>) {
    let mut at = 0;
    while at < scenario.program.len() {
        let smaller = Scenario { program: without(&scenario.program, at), ..scenario.clone() };
        match find(&smaller, &choices, oracle) {
            Some(found) => (scenario, choices) = (smaller, found),
            None => at += 1,
        }
    }
    (scenario, choices)
}

/// The program without its operation number `at`.
fn without(program: &Program, mut at: usize) -> Program {
    let mut program = program.clone();
    if at < program.setup.len() {
        program.setup.remove(at);
        return program;
    }
    at -= program.setup.len();
    for ops in &mut program.cpus {
        if at < ops.len() {
            ops.remove(at);
            break;
        }
        at -= ops.len();
    }
    program
}

fn fewer_deviations(scenario: &Scenario, mut choices: Vec<u8>, oracle: Oracle) -> Vec<u8> {
    let mut runs = 0;
    let mut piece = choices.len().max(1);
    while piece > 0 && runs < RUNS {
        let mut start = 0;
        while start < choices.len() && runs < RUNS {
            let end = (start + piece).min(choices.len());
            if choices[start..end].iter().any(|&choice| choice != 0) {
                runs += 1;
                let mut quieter = choices.clone();
                quieter[start..end].fill(0);
                let outcome = replay(scenario, &quieter, Log::none());
                if fails(&outcome, oracle) {
                    choices = outcome.choices;
                }
            }
            start += piece;
        }
        piece /= 2;
    }
    choices
}

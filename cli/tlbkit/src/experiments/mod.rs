//! The published results: each has one file of data in `sim/experiments/`, and a module here, which says what it runs
//! and which figures and pictures it makes of the outcomes. Results that differ in their data alone share one.

mod arena;
mod batch;
mod cascade;
mod concurrent;
mod hazard;
mod icelake;
mod iterations;
mod lazy;
mod pcid;
mod pti;
mod range;
mod rates;
mod reproduction;

use anyhow::{Context, Result, ensure};
use tlbkit_machine::Machine;

use crate::lab::named_run::machine;
use crate::published::experiment::Experiment;
use crate::published::read;
use reproduction::FIRST_SEED;
pub(crate) use reproduction::{Produced, Reproduction};

/// More seeds than any experiment takes.
const SEEDS_OF_A_DRAW: u64 = 1000;

/// A published result: its data, and what makes its figures.
#[derive(Clone, Copy)]
pub(crate) struct Registered {
    /// Its name on the command line, and that of its file.
    pub(crate) id: &'static str,
    /// The file, part of the program so that this needs nothing beside it.
    text: &'static str,
    produce: fn(&Reproduction) -> Result<Produced>,
}

/// The experiment whose file has this name, and whose module has it too or the one behind `in`.
macro_rules! registered {
    ($name:ident) => {
        registered!($name in $name)
    };
    ($name:ident in $module:ident) => {
        Registered {
            id: stringify!($name),
            text: include_str!(concat!("../../../../sim/experiments/", stringify!($name), ".toml")),
            produce: $module::produce,
        }
    };
}

/// All published results, in the order of their documents. This is the one place that names them: a name without its
/// file or its module does not compile, and the compiler warns of a module that is not named.
pub(crate) const ALL: [Registered; 20] = [
    registered!(pcid),
    registered!(lazy),
    registered!(batch),
    registered!(pti),
    registered!(range),
    registered!(concurrent),
    registered!(arena),
    registered!(milan in rates),
    registered!(storm in rates),
    registered!(cascade),
    registered!(skylake in cascade),
    registered!(lists in cascade),
    registered!(icelake),
    registered!(crowd in cascade),
    registered!(ivybridge in cascade),
    registered!(sapphire in cascade),
    registered!(ivytown in cascade),
    registered!(half in range),
    registered!(cooper in cascade),
    registered!(hazard),
];

impl Registered {
    /// Reads its file.
    pub(crate) fn read(&self) -> Result<Experiment> {
        let file = format!("sim/experiments/{}.toml", self.id);
        let experiment = read::experiment(&file, self.text)?;
        ensure!(experiment.id == self.id, "{file}: id = {}: must be the name of the file", experiment.id);
        Ok(experiment)
    }

    /// Runs everything that it needs, on its file's own machine.
    pub(crate) fn run(&self) -> Result<(Reproduction, Produced)> {
        let experiment = self.read()?;
        let machine = machine(&experiment.setup.machine)?;
        self.run_reproduction(Reproduction { experiment, machine, first_seed: FIRST_SEED })
    }

    /// Runs everything that it needs on the machine of a draw of its priors, the first of which is 0. Each draw has
    /// seeds of its own. The first draw has the seeds of the file's own machine.
    pub(crate) fn run_drawn(&self, draw: usize, machine: Machine) -> Result<(Reproduction, Produced)> {
        let first_seed = FIRST_SEED + SEEDS_OF_A_DRAW * draw as u64;
        self.run_reproduction(Reproduction { experiment: self.read()?, machine, first_seed })
    }

    fn run_reproduction(&self, reproduction: Reproduction) -> Result<(Reproduction, Produced)> {
        let produced = (self.produce)(&reproduction).with_context(|| format!("experiment {}", self.id))?;
        Ok((reproduction, produced))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::lab::named_run::workload;
    use crate::published::experiment::Value;
    use crate::published::figure::{Figure, Verdict};

    /// What a set-up decides under another name.
    const BY_OTHER_NAMES: [&str; 2] = ["client_cycles", "server_cycles"];

    fn reproduction(experiment: &Registered) -> Reproduction {
        let experiment = experiment.read().unwrap();
        let machine = Machine::builtin(&experiment.setup.machine).unwrap();
        Reproduction { experiment, machine, first_seed: FIRST_SEED }
    }

    #[test]
    fn every_file_of_the_folder_is_registered() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sim/experiments");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let registered: BTreeSet<_> = ALL.iter().map(|experiment| format!("{}.toml", experiment.id)).collect();
        assert_eq!(names.collect::<BTreeSet<_>>(), registered);
    }

    #[test]
    fn the_published_numbers_reproduce_themselves() {
        for experiment in ALL.iter().map(|experiment| experiment.read().unwrap()) {
            let figures = experiment.expected.iter().map(|expected| {
                let middle = expected.band.map(|[low, high]| f64::midpoint(low, high));
                Figure::new(expected, expected.published.or(middle).unwrap_or(1.0))
            });
            let misses = |figure: &Figure| matches!(figure.verdict(), Verdict::NowMisses | Verdict::KnownMiss);
            assert!(!experiment.judge(figures.collect()).iter().any(misses), "{}", experiment.id);
        }
    }

    #[test]
    fn no_default_of_a_workload_that_is_a_prior_is_missing_from_the_set_up() {
        for experiment in ALL.iter().map(|experiment| experiment.read().unwrap()) {
            let setup = &experiment.setup;
            let second = setup.parameters.get("workload_second").map(|parameter| match &parameter.value {
                Value::Text(name) => name.clone(),
                Value::Number(_) => panic!("a workload has a name"),
            });
            for name in second.iter().chain([&setup.workload]) {
                for parameter in workload(name, &[]).unwrap().parameters().list() {
                    let is_named =
                        setup.parameters.contains_key(parameter.name) || BY_OTHER_NAMES.contains(&parameter.name);
                    let is_said = is_named || !parameter.meaning.contains("prior");
                    assert!(is_said, "{}: {name} {}", experiment.id, parameter.name);
                }
            }
        }
    }

    #[test]
    fn a_note_has_its_numbers_from_itself_the_set_up_and_the_run() {
        let mut reproduction = reproduction(&registered!(pcid));
        let note = &mut reproduction.experiment.notes[1];
        note.text = "{too_low} {own_pages} {seen}.".into();
        assert_eq!(reproduction.notes(&[("seen", 7.5)]).unwrap()[1], "5 5 7.5.");
        let error = reproduction.notes(&[]).unwrap_err().to_string();
        assert_eq!(error, "experiment pcid: a note names {seen}, and there is no such number");
    }

    #[test]
    fn a_count_of_threads_that_has_no_rate_is_not_compared() {
        let mut reproduction = reproduction(&registered!(milan in rates));
        assert_eq!(rates::RATE.counts(&reproduction).unwrap(), (vec![1, 2, 4, 8, 16, 32, 64, 72], 16));
        reproduction.experiment.setup.parameters.get_mut("compared").unwrap().value = Value::Number(17.0);
        let error = rates::RATE.counts(&reproduction).unwrap_err().to_string();
        assert_eq!(error, "compared = 17: the file expects no `rate, threads 17`");
    }

    #[test]
    fn a_number_of_the_set_up_reaches_the_workload() {
        let mut reproduction = reproduction(&registered!(pti));
        reproduction.experiment.setup.parameters.get_mut("heap_pages").unwrap().value = Value::Number(77.0);
        let compile = reproduction.workload(&["rounds=3".to_owned()]).unwrap();
        assert_eq!(["heap_pages", "rounds", "jobs"].map(|name| compile.parameters().get(name)), [77, 3, 8].map(Some));
    }
}

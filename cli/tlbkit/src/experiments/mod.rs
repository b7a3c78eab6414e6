//! The published results: each has one file of data in `sim/experiments/`, and [`runner`] does what it says. What three
//! of them run or measure is no data: they have a module each.

mod batch;
mod iterations;
mod lazy;
pub(crate) mod plots;
mod pti;
mod reproduction;
mod runner;

use anyhow::{Context, Result, ensure};

use crate::published::experiment::Experiment;
use crate::published::read;
pub(crate) use reproduction::{Produced, Reproduction};

/// A published result: its data, and what makes its figures.
#[derive(Clone, Copy)]
pub(crate) struct Registered {
    /// Its name on the command line, and that of its file.
    pub(crate) id: &'static str,
    /// The file, part of the program so that this needs nothing beside it.
    text: &'static str,
    produce: fn(&Reproduction) -> Result<Produced>,
}

/// The experiment whose file has this name, and what makes its figures.
macro_rules! registered {
    ($name:ident) => {
        registered!($name by runner)
    };
    ($name:ident by $module:ident) => {
        Registered {
            id: stringify!($name),
            text: include_str!(concat!("../../../../sim/experiments/", stringify!($name), ".toml")),
            produce: $module::produce,
        }
    };
}

/// All published results, in the order of their documents. This is the one place that names them: a name without its
/// file does not compile.
pub(crate) const ALL: [Registered; 27] = [
    registered!(pcid),
    registered!(lazy by lazy),
    registered!(batch by batch),
    registered!(pti by pti),
    registered!(range),
    registered!(concurrent),
    registered!(arena),
    registered!(milan),
    registered!(broadcast),
    registered!(storm),
    registered!(cascade),
    registered!(skylake),
    registered!(lists),
    registered!(icelake),
    registered!(crowd),
    registered!(ivybridge),
    registered!(sapphire),
    registered!(ivytown),
    registered!(half),
    registered!(cooper),
    registered!(hazard),
    registered!(overcommit),
    registered!(isolated),
    registered!(entry),
    registered!(latr),
    registered!(luf),
    registered!(reclaim),
];

impl Registered {
    /// Reads its file.
    pub(crate) fn read(&self) -> Result<Experiment> {
        let file = format!("sim/experiments/{}.toml", self.id);
        let experiment = read::experiment(&file, self.text)?;
        ensure!(experiment.id == self.id, "{file}: id = {}: must be the name of the file", experiment.id);
        Ok(experiment)
    }

    /// Runs everything that it needs.
    pub(crate) fn run(&self) -> Result<(Reproduction, Produced)> {
        let reproduction = Reproduction::new(self.read()?)?;
        let produced = (self.produce)(&reproduction).with_context(|| format!("experiment {}", self.id))?;
        Ok((reproduction, produced))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::published::experiment::Value;
    use crate::published::figure::{Figure, Verdict};
    use crate::spec::workload;

    /// What a set-up decides under another name.
    const BY_OTHER_NAMES: [&str; 2] = ["client_cycles", "server_cycles"];

    fn reproduction(experiment: &Registered) -> Reproduction {
        Reproduction::new(experiment.read().unwrap()).unwrap()
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
            let of_policies = setup.policies.iter().filter_map(|policy| policy.workload.as_ref());
            for name in second.iter().chain(of_policies).chain([&setup.workload]) {
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
    fn every_quantity_of_every_file_is_a_figure_of_its_own_that_is_known() {
        for reproduction in ALL.iter().map(reproduction) {
            let keys = &reproduction.keys;
            for (place, key) in keys.iter().enumerate() {
                assert!(!keys[..place].contains(key), "{}: {key:?} twice", reproduction.experiment.id);
            }
        }
        let mut unknown = registered!(pcid).read().unwrap();
        unknown.expected[3].quantity = "time, pages 512, pdic".into();
        let error = Reproduction::new(unknown).err().map(|error| error.to_string());
        assert_eq!(error.unwrap(), "experiment pcid: time, pages 512, pdic: measures nothing that is known");
    }

    #[test]
    fn a_number_of_the_set_up_reaches_the_workload() {
        let mut reproduction = reproduction(&registered!(pti by pti));
        reproduction.experiment.setup.parameters.get_mut("heap_pages").unwrap().value = Value::Number(77.0);
        let compile = reproduction.workload(&["rounds=3".to_owned()]).unwrap();
        assert_eq!(["heap_pages", "rounds", "jobs"].map(|name| compile.parameters().get(name)), [77, 3, 8].map(Some));
    }
}

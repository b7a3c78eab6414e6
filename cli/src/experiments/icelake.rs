//! A letter of 2022: one thread on each CPU gives back pages of a private file, under a kernel that flushes its own TLB
//! before it asks the others, and under one that does so while they flush theirs.

use anyhow::Result;
use tlbkit_sim::{Run, RunOutcome};

use super::trial::{Produced, Trial, each, execute_series, rate};
use crate::output::svg::{Axis, BarGroup, Bars, Ink, Plot, Scale};

const POLICIES: [&str; 2] = ["serial", "concurrent"];

pub(super) fn produce(trial: &Trial) -> Result<Produced> {
    let outcomes =
        execute_series(&POLICIES.map(|policy| runs(trial, policy)).into_iter().collect::<Result<Vec<_>>>()?)?;
    let rates: Vec<Vec<f64>> = outcomes.iter().map(|seeds| each(seeds, |outcome| rate(outcome) / 1e3)).collect();
    let mut produced = Produced::default();
    let mut groups = Vec::new();
    for (policy, rates) in POLICIES.into_iter().zip(&rates) {
        let figure = trial.mean(&quantity(trial, policy)?, rates)?;
        groups.push(BarGroup { label: policy.into(), values: vec![figure.published, figure.ours] });
        produced.figures.push(figure);
    }
    let pairs = rates[0].iter().zip(&rates[1]);
    let change: Vec<f64> = pairs.map(|(serial, concurrent)| 100.0 * (concurrent / serial - 1.0)).collect();
    produced.figures.push(trial.mean(&quantity(trial, "concurrent over serial")?, &change)?);
    produced.plots.push(plot(groups));
    let first = outcomes.into_iter().filter_map(|seeds| seeds.into_iter().next());
    let compared: Vec<(&str, RunOutcome)> = POLICIES.into_iter().zip(first).collect();
    produced.compared.push(trial.compare(&trial.experiment.setup.workload, &compared));
    Ok(produced)
}

fn quantity(trial: &Trial, of: &str) -> Result<String> {
    Ok(format!("rate, threads {}, {of}", trial.number("threads")?))
}

/// A run for each seed, on all CPUs of the machine.
fn runs<'l>(trial: &'l Trial, policy: &str) -> Result<Vec<Run<'l>>> {
    let limit_cycles = Some(trial.milliseconds(trial.number("length")?));
    let sample_cycles = Some(trial.milliseconds(trial.number("stretch")?));
    trial.seeds(&Run { limit_cycles, sample_cycles, ..trial.run(policy, trial.workload(&[])?)? })
}

fn plot(groups: Vec<BarGroup>) -> Plot {
    Plot::Bars(Bars {
        title: "Pages a second of all threads together".into(),
        about: "Before the initiator's own flush overlaps that of the others, and with it; published and ours.".into(),
        x: "kernel".into(),
        y: Axis::new("rate", "k pages/s", Scale::FromZero),
        series: vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())],
        groups,
    })
}

#[cfg(test)]
mod tests {
    use tlbkit_sim::machine::Machine;

    use super::super::trial::FIRST_SEED;
    use super::*;
    use crate::experiments::ALL;

    #[test]
    fn what_it_makes_is_what_the_file_expects() {
        let experiment = ALL.iter().find(|experiment| experiment.id == "icelake").unwrap().read().unwrap();
        let machine = Machine::builtin(&experiment.setup.machine).unwrap();
        let trial = Trial { experiment, machine, first_seed: FIRST_SEED };
        let made = [POLICIES[0], POLICIES[1], "concurrent over serial"].map(|of| quantity(&trial, of).unwrap());
        let expected = trial.experiment.expected.iter().map(|expected| &expected.quantity);
        assert!(made.iter().eq(expected), "{made:?}");
        assert!(trial.notes(&[]).is_ok(), "a note names a number that is not there");
        let [serial, concurrent] = POLICIES.map(|policy| runs(&trial, policy).unwrap().remove(0));
        assert_eq!(serial.workload.parameters().get("threads"), Some(128));
        assert_ne!(serial.policy, concurrent.policy);
    }
}

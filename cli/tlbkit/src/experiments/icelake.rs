//! A letter of 2022: one thread on each CPU gives back pages of a private file, under a kernel that flushes its own TLB
//! before it asks the others, and under one that does so while they flush theirs.

use anyhow::Result;
use tlbkit_output::svg::{Axis, BarGroup, Bars, Ink, Plot, Scale};
use tlbkit_sim::Run;

use super::reproduction::{Produced, Reproduction, each, execute_series, of_first_seed, rate};
use crate::lab::difference::changes_pct;

const POLICIES: [&str; 2] = ["serial", "concurrent"];

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let outcomes =
        execute_series(&POLICIES.map(|policy| runs(reproduction, policy)).into_iter().collect::<Result<Vec<_>>>()?)?;
    let rates: Vec<Vec<f64>> = outcomes.iter().map(|seeds| each(seeds, |outcome| rate(outcome) / 1e3)).collect();
    let mut produced = Produced::default();
    let mut groups = Vec::new();
    for (policy, rates) in POLICIES.into_iter().zip(&rates) {
        let figure = reproduction.mean(&quantity(reproduction, policy)?, rates)?;
        groups.push(BarGroup { label: policy.into(), values: vec![figure.expected.published, figure.ours] });
        produced.figures.push(figure);
    }
    let change = changes_pct(&rates[0], &rates[1]);
    produced.figures.push(reproduction.mean(&quantity(reproduction, "concurrent over serial")?, &change)?);
    produced.plots.push(plot(groups));
    let first = of_first_seed(POLICIES, outcomes);
    produced.compared.push(reproduction.compare(&reproduction.experiment.setup.workload, &first));
    Ok(produced)
}

fn quantity(reproduction: &Reproduction, of: &str) -> Result<String> {
    Ok(format!("rate, threads {}, {of}", reproduction.number("threads")?))
}

/// A run for each seed, on all CPUs of the machine.
fn runs<'l>(reproduction: &'l Reproduction, policy: &str) -> Result<Vec<Run<'l>>> {
    reproduction.seeds(&reproduction.run_of_length(policy, reproduction.workload(&[])?)?)
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
    use tlbkit_machine::Machine;

    use super::super::reproduction::FIRST_SEED;
    use super::*;
    use crate::experiments::ALL;

    #[test]
    fn what_it_makes_is_what_the_file_expects() {
        let experiment = ALL.iter().find(|experiment| experiment.id == "icelake").unwrap().read().unwrap();
        let machine = Machine::builtin(&experiment.setup.machine).unwrap();
        let reproduction = Reproduction { experiment, machine, first_seed: FIRST_SEED };
        let made = [POLICIES[0], POLICIES[1], "concurrent over serial"].map(|of| quantity(&reproduction, of).unwrap());
        let expected = reproduction.experiment.expected.iter().map(|expected| &expected.quantity);
        assert!(made.iter().eq(expected), "{made:?}");
        assert!(reproduction.notes(&[]).is_ok(), "a note names a number that is not there");
        let [serial, concurrent] = POLICIES.map(|policy| runs(&reproduction, policy).unwrap().remove(0));
        assert_eq!(serial.workload.parameters().get("threads"), Some(128));
        assert_ne!(serial.policy, concurrent.policy);
    }
}

//! Document 000: two address spaces wake each other on one CPU, with and without tags.
//!
//! The document's microseconds are taken as those of one turn: with them the cost of a walk that its own two tables
//! imply is the 20 cycles that other sources give for a hot walk; taken as a round of two turns it would be half of
//! that.

use anyhow::Result;
use tlbkit_output::svg::{Axis, BarGroup, Bars, Ink, Plot, Scale};
use tlbkit_sim::{Run, RunOutcome};

use super::reproduction::{Produced, Reproduction, each, execute_series, of_first_seed, rate};

const POLICIES: [&str; 3] = ["pcid", "nopcid", "unpatched"];

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let (few, many) = (outcomes(reproduction, 0)?, outcomes(reproduction, 512)?);
    let mut produced = Produced::default();
    for (pages, outcomes) in [(0, &few), (512, &many)] {
        for (policy, outcomes) in POLICIES.iter().zip(outcomes) {
            let times = each(outcomes, microseconds);
            produced.figures.push(reproduction.mean(&format!("time, pages {pages}, {policy}"), &times)?);
        }
    }
    let turns = reproduction.number("run_length")?;
    for (policy, outcomes) in POLICIES.iter().zip(&many) {
        let walks = each(outcomes, |outcome| walks(outcome) * turns / 1e6);
        produced.figures.push(reproduction.mean(&format!("walks, pages 512, {policy}"), &walks)?);
    }
    let left: Vec<_> =
        many[0].iter().zip(&many[1]).map(|(with, without)| 100.0 * walks(with) / walks(without)).collect();
    produced.figures.push(reproduction.mean("walks left by pcid, pages 512", &left)?);
    produced.plots = [
        ("Time of a turn, no pages", "time, pages 0", "us"),
        ("Time of a turn, 512 pages", "time, pages 512", "us"),
        ("Page walks, 512 pages", "walks, pages 512", "M walks"),
    ]
    .map(|(title, quantity, unit)| plot(reproduction, &produced, title, quantity, unit))
    .into();
    produced.compared.push(reproduction.compare("pingpong, 512 pages", &of_first_seed(POLICIES, many)));
    Ok(produced)
}

/// Under each policy, a seed each.
fn outcomes(reproduction: &Reproduction, pages: u64) -> Result<Vec<Vec<RunOutcome>>> {
    let workload = reproduction.workload(&[format!("pages={pages}")])?;
    let run = |policy: &&str| reproduction.seeds(&Run { cpus: 1, ..reproduction.run_with_samples(policy, workload)? });
    let series = POLICIES.iter().map(run);
    execute_series(&series.collect::<Result<Vec<_>>>()?)
}

fn turns(outcome: &RunOutcome) -> f64 {
    2.0 * outcome.score as f64
}

fn microseconds(outcome: &RunOutcome) -> f64 {
    1e6 / (2.0 * rate(outcome))
}

fn walks(outcome: &RunOutcome) -> f64 {
    outcome.tlb.walks as f64 / turns(outcome)
}

fn plot(reproduction: &Reproduction, produced: &Produced, title: &str, quantity: &str, unit: &'static str) -> Plot {
    let group = |policy: &str| {
        let key = format!("{quantity}, {policy}");
        let ours =
            produced.figures.iter().find(|figure| figure.expected.quantity == key).and_then(|figure| figure.ours);
        BarGroup { label: policy.into(), values: vec![reproduction.published(&key).ok(), ours] }
    };
    Plot::Bars(Bars {
        title: title.into(),
        about: format!("{title}: three kernels, published and ours."),
        x: "kernel".into(),
        y: Axis::new(title, unit, Scale::FromZero),
        series: vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())],
        groups: POLICIES.map(group).to_vec(),
    })
}

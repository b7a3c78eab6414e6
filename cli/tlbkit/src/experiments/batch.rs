//! Document 002: a build under NetBSD 5.0 and with each part of the patch that gathers invalidations, and with all.
//!
//! Every run does the same commands, so that counts can be compared; runs of one seed are compared with each other, as
//! time hangs on who meets whom. The reasons are counted in separate runs.

use anyhow::{Result, bail};
use tlbkit::{Accounting, Reason};
use tlbkit_sim::statistics::{mean, standard_deviation};
use tlbkit_sim::{Run, RunOutcome};

use super::reproduction::{Produced, Reproduction, each, execute_all};
use crate::compared::difference::changes_pct;
use crate::output::report::Table;
use crate::output::svg::{Axis, Plot, Scale, Stacked, StackedRow};
use crate::published::key::{Key, Measure};

/// The first policies, whose reasons are counted, by their names in the pictures.
const COUNTED: [&str; 2] = ["5.0", "batched"];

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let seeds = reproduction.number("runs")? as u64;
    let outcomes = outcomes(reproduction, reproduction.policy_names().count(), seeds, Accounting::Off)?;
    let [old, new, gathering, late, nowindow] = &outcomes[..] else { bail!("the set-up must have five policies") };
    let change = |of: fn(&RunOutcome) -> f64, to: &[RunOutcome]| {
        let changes = changes_pct(&each(old, of), &each(to, of));
        (mean(&changes), changes)
    };
    let interrupts = |to| change(|o| o.ipis.sent as f64, to);
    let whole = |runs: &[RunOutcome]| an_exit(runs, |o| o.flushes.exit_full_flushes);
    let (time, times) = change(|o| o.elapsed_seconds, new);
    let time_deviation = standard_deviation(&times);
    let one = |value: f64| (value, Vec::new());
    let figures = [
        (Measure::ShootdownChange, interrupts(new)),
        (Measure::InvlpgChange, change(|o| o.flushes.pages.done as f64, new)),
        (Measure::TimeChange, (time, times)),
        (Measure::TimeChangeDeviation, one(time_deviation)),
        (Measure::ExitFlushChange, one(whole(late) - whole(old))),
        (Measure::ExitShootdowns, one(an_exit(new, |o| o.flushes.exit_interrupts))),
        (Measure::OnlyGathering, interrupts(gathering)),
        (Measure::OnlyLateTables, interrupts(late)),
        (Measure::OnlyNoWindow, interrupts(nowindow)),
    ]
    .into_iter()
    .map(|(measure, (ours, samples))| reproduction.figure(Key::of(measure), ours, &samples))
    .collect::<Result<_>>()?;
    let mut produced = Produced { figures, ..Produced::default() };
    let counted = self::outcomes(reproduction, COUNTED.len(), 1, Accounting::On)?.concat();
    produced.plots.push(plot(&counted));
    produced.tables.push(reasons(&counted));
    let first = outcomes.into_iter().filter_map(|seeds| seeds.into_iter().next());
    produced.compared.push(reproduction.compare("build", first));
    Ok(produced)
}

/// A run for each of `seeds` seeds under each of the first `policies` policies.
fn outcomes(
    reproduction: &Reproduction,
    policies: usize,
    seeds: u64,
    accounting: Accounting,
) -> Result<Vec<Vec<RunOutcome>>> {
    let workload = reproduction.workload(&[format!("rounds={}", reproduction.number("commands")?)])?;
    let cpus = reproduction.number("cpus")? as usize;
    let mut runs = Vec::new();
    for policy in 0..policies {
        let mut run = reproduction.run(policy, workload)?;
        run.policy.history.accounting = accounting;
        runs.extend(reproduction.seeds_of(seeds).map(|seed| Run { seed, cpus, ..run.clone() }));
    }
    let mut outcomes = execute_all(&runs)?.into_iter();
    Ok((0..policies).map(|_| outcomes.by_ref().take(seeds as usize).collect()).collect())
}

/// What `count` counts for each exit of a process, over all runs.
fn an_exit(runs: &[RunOutcome], count: fn(&RunOutcome) -> u64) -> f64 {
    let sum = |count: fn(&RunOutcome) -> u64| runs.iter().map(count).sum::<u64>() as f64;
    sum(count) / sum(|o| o.flushes.exits)
}

/// Local, remote and kernel events of one reason.
fn events(outcome: &RunOutcome, reason: Reason) -> [u64; 3] {
    let row = outcome.reasons.iter().find(|row| row.reason == reason);
    row.map_or([0; 3], |row| [row.local, row.remote, row.kernel])
}

/// Reasons that occur at all.
fn seen(outcomes: &[RunOutcome]) -> Vec<Reason> {
    let occurs = |reason: &Reason| outcomes.iter().any(|outcome| events(outcome, *reason) != [0; 3]);
    Reason::ALL.into_iter().filter(occurs).collect()
}

fn reasons(outcomes: &[RunOutcome]) -> Table {
    let mut head = vec!["reason".to_owned()];
    for label in COUNTED {
        head.extend(["local", "remote", "kernel"].map(|place| format!("{label}, {place}")));
    }
    let row = |reason: Reason| {
        let cells = outcomes.iter().flat_map(|outcome| events(outcome, reason)).map(|count| count.to_string());
        [format!("{reason:?}")].into_iter().chain(cells).collect()
    };
    Table { title: "Flushes by reason".into(), head, rows: seen(outcomes).into_iter().map(row).collect() }
}

fn plot(outcomes: &[RunOutcome]) -> Plot {
    let rows = seen(outcomes)
        .into_iter()
        .flat_map(|reason| {
            outcomes.iter().zip(COUNTED).map(move |(outcome, label)| StackedRow {
                group: format!("{reason:?}"),
                label: label.into(),
                values: events(outcome, reason).map(|count| count as f64).to_vec(),
                below: None,
            })
        })
        .collect();
    Plot::Stacked(Stacked {
        title: "Flushes by reason".into(),
        about: "For each reason: local flushes, interrupts to other CPUs, flushes of kernel addresses.".into(),
        x: Axis::new("events", "", Scale::FromZero),
        parts: ["local", "remote", "kernel"].map(String::from).to_vec(),
        rows,
    })
}

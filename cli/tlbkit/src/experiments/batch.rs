//! Document 002: a build under NetBSD 5.0 and with each part of the patch that gathers invalidations, and with all.
//!
//! Every run does the same commands, so that counts can be compared; runs of one seed are compared with each other, as
//! time hangs on who meets whom. The reasons are counted in runs of their own.

use anyhow::Result;
use tlbkit::{Accounting, Reason};
use tlbkit_output::svg::{Axis, Plot, Scale, Stacked, StackedRow};
use tlbkit_sim::statistics::{mean, standard_deviation};
use tlbkit_sim::{Run, RunOutcome};

use super::reproduction::{Produced, Reproduction, each, execute_all, of_first_seed};
use crate::lab::difference::changes_pct;
use crate::output::report::Table;

const POLICIES: [&str; 5] = ["unbatched", "batched", "gathering", "late", "nowindow"];
/// The policies whose reasons are counted, with their names in the pictures.
const COUNTED: [(&str, &str); 2] = [("unbatched", "5.0"), ("batched", "batched")];

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let seeds = reproduction.number("runs")? as u64;
    let outcomes = outcomes(reproduction, &POLICIES, seeds, Accounting::Off)?;
    let [old, new, gathering, late, nowindow] = &outcomes[..] else { unreachable!("the runs of each policy") };
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
        ("shootdown interrupts, change", interrupts(new)),
        ("invlpg executed, change", change(|o| o.flushes.pages.done as f64, new)),
        ("time, change", (time, times)),
        ("time, change, deviation of one run", one(time_deviation)),
        ("whole flushes per exit, change", one(whole(late) - whole(old))),
        ("shootdowns during exit", one(an_exit(new, |o| o.flushes.exit_interrupts))),
        ("shootdown interrupts, change, only gathering", interrupts(gathering)),
        ("shootdown interrupts, change, only late table frees", interrupts(late)),
        ("shootdown interrupts, change, only no alternate window", interrupts(nowindow)),
    ]
    .into_iter()
    .map(|(quantity, (ours, samples))| Ok(reproduction.figure(quantity, ours)?.over(&samples)))
    .collect::<Result<_>>()?;
    let mut produced = Produced { figures, ..Produced::default() };
    let counted = self::outcomes(reproduction, &COUNTED.map(|(id, _)| id), 1, Accounting::On)?.concat();
    produced.plots.push(plot(&counted));
    produced.tables.push(reasons(&counted));
    produced.compared.push(reproduction.compare("build", &of_first_seed(POLICIES, outcomes)));
    Ok(produced)
}

/// A run for each of `seeds` seeds under each policy.
fn outcomes(
    reproduction: &Reproduction,
    policies: &[&str],
    seeds: u64,
    accounting: Accounting,
) -> Result<Vec<Vec<RunOutcome>>> {
    let workload = reproduction.workload(&[format!("rounds={}", reproduction.number("commands")?)])?;
    let cpus = reproduction.number("cpus")? as usize;
    let mut runs = Vec::new();
    for id in policies {
        let mut run = reproduction.run(id, workload)?;
        run.policy.history.accounting = accounting;
        runs.extend(reproduction.seeds_of(seeds).map(|seed| Run { seed, cpus, ..run.clone() }));
    }
    let mut outcomes = execute_all(&runs)?.into_iter();
    Ok(policies.iter().map(|_| outcomes.by_ref().take(seeds as usize).collect()).collect())
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
    for (_, label) in COUNTED {
        head.extend(["local", "remote", "kernel"].map(|place| format!("{label}, {place}")));
    }
    let row = |reason: Reason| {
        let cells = outcomes.iter().flat_map(|outcome| events(outcome, reason)).map(|count| count.to_string());
        [format!("{reason:?}")].into_iter().chain(cells).collect()
    };
    Table::Grid { title: "Flushes by reason".into(), head, rows: seen(outcomes).into_iter().map(row).collect() }
}

fn plot(outcomes: &[RunOutcome]) -> Plot {
    let rows = seen(outcomes)
        .into_iter()
        .flat_map(|reason| {
            outcomes.iter().zip(COUNTED).map(move |(outcome, (_, label))| StackedRow {
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

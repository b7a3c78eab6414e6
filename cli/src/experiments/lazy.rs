//! Document 001: what the switch path costs CPUs that go idle between two requests, and what is left of it.
//!
//! Shares are those of a window in the middle of a run: the same run is played twice, to two lengths, and what the
//! shorter one spent is taken off, so that starting 48 processes does not count.

use anyhow::{Result, ensure};
use tlbkit::AddressSpace;
use tlbkit_sim::observer::{Cause, Spent};
use tlbkit_sim::{Run, RunOutcome};

use super::trial::{Produced, Trial, each, execute_series, mean_and_deviation};
use crate::output::svg::{Axis, Plot, Scale, Stacked, StackedRow};

const POLICIES: [&str; 3] = ["before", "after", "counted"];
/// Where the window begins and ends, in milliseconds.
const WINDOW: [&str; 2] = ["window_begin", "window_end"];

/// Two lengths of one run.
struct Window {
    short: RunOutcome,
    long: RunOutcome,
}

/// The switch path's part of all cycles, in percent.
#[derive(Clone, Copy)]
struct Share {
    all: f64,
    sets: f64,
}

pub(super) fn produce(trial: &Trial) -> Result<Produced> {
    let netperf = windows(trial, "netperf")?;
    let memcache = windows(trial, "memcache")?;
    let mut produced = Produced::default();
    let (before, after) = (&netperf[0], &netperf[1]);
    let all = |window: &Window| window.share(Class::Idle).all + window.share(Class::Task).all;
    let sets = |window: &Window| window.share(Class::Idle).sets + window.share(Class::Task).sets;
    let change: Vec<_> =
        memcache[0].iter().zip(&memcache[1]).map(|(old, new)| 100.0 * (new.rate() / old.rate() - 1.0)).collect();
    let server = |window: &Window| window.share(Class::Task).all * window.changes_a_transaction();
    produced.figures = [
        ("share of CPU, before, all", each(before, all)),
        ("share of CPU, before, swapper", each(before, |window| window.share(Class::Idle).all)),
        ("share of CPU, before, server", each(before, |window| window.share(Class::Task).all)),
        ("atomics in the switch path, before", each(before, |window| 100.0 * sets(window) / all(window))),
        ("share of CPU, after, swapper", each(after, |window| window.share(Class::Idle).all)),
        ("share of CPU, after, server", each(after, server)),
        ("share of CPU, after, enter_lazy", each(after, |window| window.share(Class::Task).all)),
        ("netperf throughput, after", each(after, Window::rate)),
        ("memcache throughput, change", change),
    ]
    .into_iter()
    .map(|(quantity, samples)| trial.mean(quantity, &samples))
    .collect::<Result<_>>()?;
    for cpus in [8, 48, 4096] {
        let bytes = AddressSpace::bytes(cpus) as f64;
        produced.figures.push(trial.figure(&format!("address space, CPUs {cpus}"), bytes)?);
    }
    let shares = [(before, Class::Idle), (before, Class::Task), (after, Class::Idle), (after, Class::Task)];
    produced.plots.push(plot(trial, shares.map(|(windows, class)| mean_share(windows, class)))?);
    for (title, windows) in [("netperf", netperf), ("memcache", memcache)] {
        let first = windows.into_iter().filter_map(|seeds| seeds.into_iter().next());
        let outcomes: Vec<_> = POLICIES.into_iter().zip(first.map(|window| window.long)).collect();
        produced.compared.push(trial.compare(title, &outcomes));
    }
    Ok(produced)
}

#[derive(Clone, Copy)]
enum Class {
    Idle,
    Task,
}

impl Window {
    fn share(&self, class: Class) -> Share {
        let total = |outcome: &RunOutcome| outcome.ledger.total();
        let whole = (total(&self.long) - total(&self.short)) as f64;
        let of = |cycles: fn(&Spent) -> u64| {
            let spent = |outcome: &RunOutcome| match class {
                Class::Idle => cycles(&outcome.ledger.idle),
                Class::Task => cycles(&outcome.ledger.task),
            };
            // Ends a little later than it began, or the other way round: what is spent at the end is in both.
            100.0 * (spent(&self.long) as f64 - spent(&self.short) as f64).max(0.0) / whole
        };
        Share { all: of(|spent| spent.of(Cause::Switch)), sets: of(|spent| spent.on(Cause::Switch).set_cycles) }
    }

    /// Changes of the loaded space for each transaction; at most 1.
    fn changes_a_transaction(&self) -> f64 {
        let changes = |outcome: &RunOutcome| (outcome.flushes.switches_kept + outcome.flushes.switches_flushed) as f64;
        let transactions = (self.long.score - self.short.score) as f64;
        ((changes(&self.long) - changes(&self.short)).max(0.0) / transactions).min(1.0)
    }

    fn rate(&self) -> f64 {
        (self.long.score - self.short.score) as f64 / (self.long.elapsed_seconds - self.short.elapsed_seconds)
    }
}

fn mean_share(windows: &[Window], class: Class) -> Share {
    let mean = |of: fn(Share) -> f64| mean_and_deviation(&each(windows, |window| of(window.share(class)))).0;
    Share { all: mean(|share| share.all), sets: mean(|share| share.sets) }
}

/// Windows of `workload` under each policy, a seed each.
fn windows(trial: &Trial, workload: &str) -> Result<Vec<Vec<Window>>> {
    let cycles = trial.number("request_cycles")?;
    let parameters = [format!("client_cycles={cycles}"), format!("server_cycles={cycles}")];
    let workload = trial.workload_called(workload, &parameters)?;
    let cpus = trial.number("cpus")? as usize;
    let mut series = Vec::new();
    for policy in POLICIES {
        for end in WINDOW {
            let limit_cycles = Some(trial.milliseconds(trial.number(end)?));
            series.push(trial.seeds(&Run { cpus, limit_cycles, ..trial.run(policy, workload)? })?);
        }
    }
    let mut outcomes = execute_series(&series)?.into_iter();
    let mut windows = Vec::new();
    while let (Some(short), Some(long)) = (outcomes.next(), outcomes.next()) {
        let pairs = short.into_iter().zip(long).map(|(short, long)| Window { short, long }).collect::<Vec<_>>();
        let is_empty = |window: &Window| window.long.elapsed_cycles <= window.short.elapsed_cycles;
        ensure!(!pairs.iter().any(is_empty), "the window is empty");
        windows.push(pairs);
    }
    Ok(windows)
}

fn plot(trial: &Trial, shares: [Share; 4]) -> Result<Plot> {
    let threshold = trial.number("profile_threshold")?;
    let rows = [("before", "swapper"), ("before", "server"), ("after", "swapper"), ("after", "server")]
        .into_iter()
        .zip(shares)
        .flat_map(|((policy, who), ours)| {
            let group = if policy == "before" { "without the series" } else { "with the series" };
            // Going idle a server calls nothing else of the path with the series.
            let who = if (policy, who) == ("after", "server") { "enter_lazy" } else { who };
            let row = |label: &str, values, below| StackedRow {
                group: group.into(),
                label: format!("{who}, {label}"),
                values,
                below,
            };
            // With the series the profile does not list enter_lazy, whose share is then below what it lists.
            let listed = trial.published(&format!("share of CPU, {policy}, {who}")).ok();
            let (published, below) = listed.map_or((0.0, Some(threshold)), |listed| (listed, None));
            // The document gives the atomics' part without the series only: about half.
            let sets = if policy == "before" { published / 2.0 } else { 0.0 };
            [
                row("published", vec![sets, published - sets], below),
                row("ours", vec![ours.sets, ours.all - ours.sets], None),
            ]
        })
        .collect();
    Ok(Plot::Stacked(Stacked {
        title: "Share of CPU in the switch path".into(),
        about: "CPU-set atomics and the rest, by idle thread and server, without and with the series.".into(),
        x: Axis::new("share of CPU", "%", Scale::FromZero),
        parts: vec!["CPU-set atomics".into(), "the rest".into()],
        rows,
    }))
}

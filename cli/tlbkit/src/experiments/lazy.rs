//! Document 001: what the switch path costs CPUs that go idle between two requests, and what is left of it.
//!
//! Shares are those of a window in the middle of a run, so that starting 48 processes does not count.

use anyhow::{Result, ensure};
use tlbkit::AddressSpace;
use tlbkit_output::svg::{Axis, Plot, Scale, Stacked, StackedRow};
use tlbkit_sim::observer::{Cause, Spent};
use tlbkit_sim::statistics::mean;
use tlbkit_sim::{Run, RunOutcome};

use super::reproduction::{Produced, Reproduction, WINDOW_ENDS, Window, each, execute_series, of_first_seed};
use crate::lab::difference::changes_pct;

const POLICIES: [&str; 3] = ["before", "after", "counted"];

/// The switch path's part of all cycles, in percent.
#[derive(Clone, Copy)]
struct Share {
    all: f64,
    sets: f64,
}

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let netperf = windows(reproduction, "netperf")?;
    let memcache = windows(reproduction, "memcache")?;
    let mut produced = Produced::default();
    let (before, after) = (&netperf[0], &netperf[1]);
    let all = |window: &Window| window.switch_share(Class::Idle).all + window.switch_share(Class::Task).all;
    let sets = |window: &Window| window.switch_share(Class::Idle).sets + window.switch_share(Class::Task).sets;
    let change = changes_pct(&each(&memcache[0], Window::net_rate), &each(&memcache[1], Window::net_rate));
    let server = |window: &Window| window.switch_share(Class::Task).all * window.changes_a_transaction();
    produced.figures = [
        ("share of CPU, before, all", each(before, all)),
        ("share of CPU, before, swapper", each(before, |window| window.switch_share(Class::Idle).all)),
        ("share of CPU, before, server", each(before, |window| window.switch_share(Class::Task).all)),
        ("atomics in the switch path, before", each(before, |window| 100.0 * sets(window) / all(window))),
        ("share of CPU, after, swapper", each(after, |window| window.switch_share(Class::Idle).all)),
        ("share of CPU, after, server", each(after, server)),
        ("share of CPU, after, enter_lazy", each(after, |window| window.switch_share(Class::Task).all)),
        ("netperf throughput, after", each(after, Window::net_rate)),
        ("memcache throughput, change", change),
    ]
    .into_iter()
    .map(|(quantity, samples)| reproduction.mean(quantity, &samples))
    .collect::<Result<_>>()?;
    for cpus in [8, 48, 4096] {
        let bytes = AddressSpace::bytes(cpus) as f64;
        produced.figures.push(reproduction.figure(&format!("address space, CPUs {cpus}"), bytes)?);
    }
    let shares = [(before, Class::Idle), (before, Class::Task), (after, Class::Idle), (after, Class::Task)];
    produced.plots.push(plot(reproduction, shares.map(|(windows, class)| mean_share(windows, class)))?);
    for (title, windows) in [("netperf", netperf), ("memcache", memcache)] {
        let whole = windows.into_iter().map(|seeds| seeds.into_iter().map(|window| window.long).collect());
        produced.compared.push(reproduction.compare(title, &of_first_seed(POLICIES, whole)));
    }
    Ok(produced)
}

#[derive(Clone, Copy)]
enum Class {
    Idle,
    Task,
}

impl Window {
    fn switch_share(&self, class: Class) -> Share {
        let whole = self.spent(&|outcome| outcome.ledger.total());
        let of = |cycles: fn(&Spent) -> u64| {
            let spent = |outcome: &RunOutcome| match class {
                Class::Idle => cycles(&outcome.ledger.idle),
                Class::Task => cycles(&outcome.ledger.task),
            };
            // A short and a long run end differently, so the longer one may have spent a little less.
            100.0 * self.spent(&spent).max(0.0) / whole
        };
        Share { all: of(|spent| spent.of(Cause::Switch)), sets: of(|spent| spent.on(Cause::Switch).set_cycles) }
    }

    /// Changes of the loaded space for each transaction; at most 1.
    fn changes_a_transaction(&self) -> f64 {
        let changes = self.spent(&|outcome| outcome.flushes.switches_kept + outcome.flushes.switches_flushed);
        (changes.max(0.0) / self.spent(&|outcome| outcome.score)).min(1.0)
    }

    /// Transactions a second.
    fn net_rate(&self) -> f64 {
        self.spent(&|outcome| outcome.score) / (self.long.elapsed_seconds - self.short.elapsed_seconds)
    }
}

fn mean_share(windows: &[Window], class: Class) -> Share {
    let mean_of = |of: fn(Share) -> f64| mean(&each(windows, |window| of(window.switch_share(class))));
    Share { all: mean_of(|share| share.all), sets: mean_of(|share| share.sets) }
}

/// Windows of `workload` under each policy, a seed each.
fn windows(reproduction: &Reproduction, workload: &str) -> Result<Vec<Vec<Window>>> {
    let cycles = reproduction.number("request_cycles")?;
    let parameters = [format!("client_cycles={cycles}"), format!("server_cycles={cycles}")];
    let workload = reproduction.workload_called(workload, &parameters)?;
    let cpus = reproduction.number("cpus")? as usize;
    let mut series = Vec::new();
    for policy in POLICIES {
        for end in WINDOW_ENDS {
            let limit_cycles = Some(reproduction.milliseconds(reproduction.number(end)?));
            series.push(reproduction.seeds(&Run { cpus, limit_cycles, ..reproduction.run(policy, workload)? })?);
        }
    }
    let mut outcomes = execute_series(&series)?.into_iter();
    let mut windows = Vec::new();
    while let (Some(short), Some(long)) = (outcomes.next(), outcomes.next()) {
        let of_policy = Window::of_seeds(short, long);
        let is_empty = |window: &Window| window.long.elapsed_cycles <= window.short.elapsed_cycles;
        ensure!(!of_policy.iter().any(is_empty), "the window is empty");
        windows.push(of_policy);
    }
    Ok(windows)
}

fn plot(reproduction: &Reproduction, shares: [Share; 4]) -> Result<Plot> {
    let threshold = reproduction.number("profile_threshold")?;
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
            let listed = reproduction.published(&format!("share of CPU, {policy}, {who}")).ok();
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

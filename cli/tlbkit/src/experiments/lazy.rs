//! Document 001: what the switch path costs CPUs that go idle between two requests, and what is left of it.
//!
//! Shares are those of a window in the middle of a run, so that starting 48 processes does not count.

use anyhow::{Result, ensure};
use rayon::prelude::*;
use tlbkit::AddressSpace;
use tlbkit_sim::observer::{Cause, Spent};
use tlbkit_sim::statistics::mean;
use tlbkit_sim::{Run, RunOutcome};

use super::reproduction::{Produced, Reproduction, Window, each};
use crate::compared::difference::changes_pct;
use crate::output::svg::{Axis, Plot, Scale, Stacked, StackedRow};
use crate::published::key::{Key, Measure};

/// The places of the kernels without the series and with it; a third one counts references.
const BEFORE: usize = 0;
const AFTER: usize = 1;

/// What the profiles list, and what they do not, since it is below what they list.
const SWAPPER_BEFORE: Key = Key::under(Measure::SwitchPathOfIdle, BEFORE);
const SERVER_BEFORE: Key = Key::under(Measure::SwitchPathOfServer, BEFORE);
const SWAPPER_AFTER: Key = Key::under(Measure::SwitchPathOfIdle, AFTER);
const ENTER_LAZY: Key = Key::under(Measure::EnterLazy, AFTER);

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
    let (before, after) = (&netperf[BEFORE], &netperf[AFTER]);
    let all = |window: &Window| window.switch_share(Class::Idle).all + window.switch_share(Class::Task).all;
    let sets = |window: &Window| window.switch_share(Class::Idle).sets + window.switch_share(Class::Task).sets;
    let change = changes_pct(&each(&memcache[BEFORE], Window::net_rate), &each(&memcache[AFTER], Window::net_rate));
    let server = |window: &Window| window.switch_share(Class::Task).all * window.changes_a_transaction();
    produced.figures = [
        (Key::under(Measure::SwitchPath, BEFORE), each(before, all)),
        (SWAPPER_BEFORE, each(before, |window| window.switch_share(Class::Idle).all)),
        (SERVER_BEFORE, each(before, |window| window.switch_share(Class::Task).all)),
        (Key::under(Measure::Atomics, BEFORE), each(before, |window| 100.0 * sets(window) / all(window))),
        (SWAPPER_AFTER, each(after, |window| window.switch_share(Class::Idle).all)),
        (Key::under(Measure::SwitchPathOfServer, AFTER), each(after, server)),
        (ENTER_LAZY, each(after, |window| window.switch_share(Class::Task).all)),
        (Key::under(Measure::Netperf, AFTER), each(after, Window::net_rate)),
        (Key::of(Measure::MemcacheChange), change),
    ]
    .into_iter()
    .map(|(key, samples)| reproduction.mean(key, &samples))
    .collect::<Result<_>>()?;
    for cpus in [8, 48, 4096] {
        let bytes = AddressSpace::bytes(cpus) as f64;
        produced.figures.push(reproduction.figure(Key::of(Measure::SpaceBytes).at(cpus as u64), bytes, &[])?);
    }
    let shares = [(before, Class::Idle), (before, Class::Task), (after, Class::Idle), (after, Class::Task)];
    produced.plots.push(plot(reproduction, shares.map(|(windows, class)| mean_share(windows, class)))?);
    for (title, windows) in [("netperf", netperf), ("memcache", memcache)] {
        let first = windows.into_iter().filter_map(|seeds| seeds.into_iter().next()).map(|window| window.long);
        produced.compared.push(reproduction.compare(title, first));
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
        self.a_second(&|outcome| outcome.score)
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
    let of_policy = |policy| {
        let windows = reproduction.windows(&Run { cpus, ..reproduction.run(policy, workload)? })?;
        let is_empty = |window: &Window| window.spent(&|outcome| outcome.elapsed_cycles) <= 0.0;
        ensure!(!windows.iter().any(is_empty), "the window is empty");
        Ok(windows)
    };
    (0..reproduction.policy_names().count()).into_par_iter().map(of_policy).collect()
}

fn plot(reproduction: &Reproduction, shares: [Share; 4]) -> Result<Plot> {
    let threshold = reproduction.number("profile_threshold")?;
    let without = "without the series";
    let profiles = [
        (SWAPPER_BEFORE, without, "swapper"),
        (SERVER_BEFORE, without, "server"),
        (SWAPPER_AFTER, "with the series", "swapper"),
        // Going idle a server calls nothing else of the path with the series.
        (ENTER_LAZY, "with the series", "enter_lazy"),
    ];
    let mut rows = Vec::new();
    for ((key, group, who), ours) in profiles.into_iter().zip(shares) {
        let row = |label: &str, values, below| StackedRow {
            group: group.into(),
            label: format!("{who}, {label}"),
            values,
            below,
        };
        // With the series the profile does not list enter_lazy, whose share is then below what it lists.
        let listed = reproduction.published(key)?;
        let (published, below) = listed.map_or((0.0, Some(threshold)), |listed| (listed, None));
        // The document gives the atomics' part without the series only: about half.
        let sets = if group == without { published / 2.0 } else { 0.0 };
        rows.push(row("published", vec![sets, published - sets], below));
        rows.push(row("ours", vec![ours.sets, ours.all - ours.sets], None));
    }
    Ok(Plot::Stacked(Stacked {
        title: "Share of CPU in the switch path".into(),
        about: "CPU-set atomics and the rest, by idle thread and server, without and with the series.".into(),
        x: Axis::new("share of CPU", "%", Scale::FromZero),
        parts: vec!["CPU-set atomics".into(), "the rest".into()],
        rows,
    }))
}

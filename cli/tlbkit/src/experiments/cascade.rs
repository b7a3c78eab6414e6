//! Reports of the kernel test robot: tasks give back memory on all CPUs; their rate, and what their cycles go to. Each
//! file says which of these figures its report has, and of which numbers of tasks.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use anyhow::{Context, Result, ensure};
use tlbkit_output::svg::{Axis, BarGroup, Bars, Ink, Plot, Scale, Stacked, StackedRow};
use tlbkit_sim::observer::Cause;
use tlbkit_sim::statistics::mean;
use tlbkit_sim::{Run, RunOutcome};

use super::reproduction::{Produced, Reproduction, WINDOW_ENDS, Window, execute_series, rate};
use crate::published::figure::Figure;

const POLICY: &str = "linux";

/// The name of a rate. In a file a number of tasks may follow, `rate, threads 16`: a plot has all whose name begins so.
const RATE: &str = "rate";
/// What follows the name of a quantity where a file has it for several numbers of tasks.
const WITH_TASKS: [&str; 2] = [", threads ", ", processes "];
const INTERRUPTS: &str = "interrupts, a page";
const SWITCHES: &str = "switches, a page";
const IDLE: &str = "share of time, idle";
const TELLING: (&str, &[Cause]) = ("telling others", &[Cause::FlushSend]);
const ANSWERING: (&str, &[Cause]) = ("answering", &[Cause::Interrupt]);
const SHOOTDOWNS: (&str, &[Cause]) = ("shootdowns", &[Cause::FlushSend, Cause::FlushWait, Cause::Interrupt]);
const LOCKS: (&str, &[Cause]) = ("waiting for locks", &[Cause::LockSpin]);

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let of_setup = reproduction.number("threads")? as u64;
    let mut of_tasks = BTreeMap::from([(of_setup, windows(reproduction, of_setup)?)]);
    let mut produced = Produced::default();
    for quantity in reproduction.experiment.expected.iter().map(|expected| &expected.quantity) {
        let (name, tasks) = name_and_tasks(quantity, of_setup);
        if let Entry::Vacant(entry) = of_tasks.entry(tasks) {
            entry.insert(windows(reproduction, tasks)?);
        }
        let samples = of_tasks[&tasks].iter().map(|window| window.value(name)).collect::<Result<Vec<_>>>()?;
        produced.figures.push(reproduction.mean(quantity, &samples)?);
    }
    let windows = of_tasks.remove(&of_setup).unwrap_or_default();
    let parts = [SHOOTDOWNS, TELLING, ANSWERING];
    if parts.iter().all(|(part, _)| reproduction.published(&of_cycles(part)).is_ok()) {
        let mean_share = |(_, causes)| anyhow::Ok(mean(&shares(&windows, causes)?));
        let [all, telling, answering] = parts.map(mean_share);
        produced.plots.push(plot(reproduction, [all?, telling?, answering?])?);
    } else {
        produced.plots.push(plot_of_rate(reproduction, &produced.figures)?);
    }
    let first = Vec::from_iter(windows.into_iter().next().map(|window| (POLICY, window.long)));
    produced.compared.push(reproduction.compare(&title(reproduction)?, &first));
    Ok(produced)
}

/// What runs, and how many tasks of it.
fn title(reproduction: &Reproduction) -> Result<String> {
    Ok(format!("{}, {}", reproduction.experiment.setup.workload, tasks(reproduction)?))
}

/// How many tasks there are, and what they are: threads or processes.
fn tasks(reproduction: &Reproduction) -> Result<String> {
    Ok(format!("{} {}", reproduction.number("threads")?, reproduction.experiment.setup.parameters["threads"].unit))
}

/// What a quantity is called, and of how many tasks it is: those of the set-up if it does not say.
fn name_and_tasks(quantity: &str, of_setup: u64) -> (&str, u64) {
    let split = |word: &&str| {
        let (name, tasks) = quantity.rsplit_once(word)?;
        Some((name, tasks.parse().ok()?))
    };
    WITH_TASKS.iter().find_map(split).unwrap_or((quantity, of_setup))
}

/// The window of a run with `tasks` tasks, for each seed.
fn windows(reproduction: &Reproduction, tasks: u64) -> Result<Vec<Window>> {
    let workload = reproduction.workload(&[format!("threads={tasks}")])?;
    let run = reproduction.run_with_samples(POLICY, workload)?;
    let series = WINDOW_ENDS.map(|end| {
        let limit_cycles = Some(reproduction.milliseconds(reproduction.number(end)?));
        reproduction.seeds(&Run { limit_cycles, ..run.clone() })
    });
    let mut outcomes = execute_series(&series.into_iter().collect::<Result<Vec<_>>>()?)?.into_iter();
    let (short, long) = (outcomes.next().unwrap_or_default(), outcomes.next().unwrap_or_default());
    Ok(Window::of_seeds(short, long))
}

/// What went to `causes` in each window.
fn shares(windows: &[Window], causes: &[Cause]) -> Result<Vec<f64>> {
    windows.iter().map(|window| window.share(causes)).collect()
}

fn of_cycles(part: &str) -> String {
    format!("share of cycles, {part}")
}

impl Window {
    /// The figure that the file calls `quantity`.
    fn value(&self, quantity: &str) -> Result<f64> {
        if quantity == RATE {
            return Ok(rate(&self.long) / 1e3);
        }
        if quantity == IDLE {
            return self.idle();
        }
        if quantity == INTERRUPTS {
            return self.a_unit(quantity, &|outcome| outcome.ipis.received);
        }
        if quantity == SWITCHES {
            return self.a_unit(quantity, &|outcome| outcome.kernel.switches);
        }
        let parts = [SHOOTDOWNS, TELLING, ANSWERING, LOCKS];
        let part = parts.into_iter().find(|(part, _)| quantity == of_cycles(part));
        let (_, causes) = part.with_context(|| format!("{quantity}: is no figure of a report"))?;
        self.share(causes)
    }

    /// What went to `causes`, in percent of the cycles in which a CPU was not idle.
    fn share(&self, causes: &[Cause]) -> Result<f64> {
        let busy = self.spent(&|outcome| outcome.ledger.total() - outcome.cycles(Cause::Idle));
        ensure!(busy > 0.0, "share of cycles: no CPU was busy from window_begin to window_end");
        Ok(100.0 * self.spent(&|outcome| causes.iter().map(|&cause| outcome.cycles(cause)).sum()) / busy)
    }

    /// What `of` counts, for each unit of the workload.
    fn a_unit(&self, quantity: &str, of: &dyn Fn(&RunOutcome) -> u64) -> Result<f64> {
        let units = self.spent(&|outcome| outcome.score);
        ensure!(units > 0.0, "{quantity}: there is none from window_begin to window_end");
        Ok(self.spent(of) / units)
    }

    /// How long CPUs were idle, in percent of all their time.
    fn idle(&self) -> Result<f64> {
        let all = self.spent(&|outcome| outcome.ledger.total());
        ensure!(all > 0.0, "{IDLE}: no time passed from window_begin to window_end");
        Ok(100.0 * self.spent(&|outcome| outcome.cycles(Cause::Idle)) / all)
    }
}

/// The rates alone, where a document's profile has no such parts.
fn plot_of_rate(reproduction: &Reproduction, figures: &[Figure]) -> Result<Plot> {
    let rates = || figures.iter().filter(|figure| figure.expected.quantity.starts_with(RATE));
    let of = rates().next().context("no rate among the figures")?;
    let group = |of: &Figure| BarGroup {
        label: of.expected.quantity.rsplit(' ').next().unwrap_or_default().into(),
        values: vec![of.expected.published, of.ours],
    };
    Ok(Plot::Bars(Bars {
        title: "The rate of all together".into(),
        about: "Published and ours.".into(),
        x: reproduction.experiment.setup.parameters["threads"].unit.clone(),
        y: Axis::new("rate", &of.expected.unit, Scale::FromZero),
        series: vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())],
        groups: rates().map(group).collect(),
    }))
}

fn plot(reproduction: &Reproduction, ours: [f64; 3]) -> Result<Plot> {
    let published = |(part, _): (&str, _)| reproduction.published(&of_cycles(part));
    let published = [published(SHOOTDOWNS)?, published(TELLING)?, published(ANSWERING)?];
    let tasks = tasks(reproduction)?;
    let row = |label: &str, [all, telling, answering]: [f64; 3]| {
        let values = vec![telling, all - telling - answering, answering, 100.0 - all];
        StackedRow { group: tasks.clone(), label: label.into(), values, below: None }
    };
    Ok(Plot::Stacked(Stacked {
        title: format!("What the cycles of {tasks} go to"),
        about: "Telling others, waiting, answering, and the rest; published and ours.".into(),
        x: Axis::new("share of cycles", "%", Scale::FromZero),
        parts: ["telling others", "waiting", "answering", "the rest"].map(String::from).to_vec(),
        rows: vec![row("published", published), row("ours", ours)],
    }))
}

#[cfg(test)]
mod tests {
    use tlbkit_machine::Machine;

    use super::super::reproduction::FIRST_SEED;
    use super::*;
    use crate::experiments::ALL;

    /// One task on one CPU, as `reproduction` has them.
    fn alone(reproduction: &Reproduction, milliseconds: f64) -> RunOutcome {
        one_of(reproduction, 1, milliseconds)
    }

    /// One task, and CPUs that idle beside it.
    fn one_of(reproduction: &Reproduction, cpus: usize, milliseconds: f64) -> RunOutcome {
        let workload = reproduction.workload(&["threads=1".to_owned()]).unwrap();
        let limit_cycles = Some(reproduction.milliseconds(milliseconds));
        Run { cpus, limit_cycles, ..reproduction.run(POLICY, workload).unwrap() }.execute().unwrap()
    }

    fn reproduction(id: &str) -> Reproduction {
        let experiment = ALL.iter().find(|experiment| experiment.id == id).unwrap().read().unwrap();
        let machine = Machine::builtin(&experiment.setup.machine).unwrap();
        Reproduction { experiment, machine, first_seed: FIRST_SEED }
    }

    #[test]
    fn a_window_in_which_nothing_was_done_has_no_figures() {
        let reproduction = reproduction("skylake");
        let short = alone(&reproduction, 0.2);
        let window = Window { long: short.clone(), short };
        let error = |quantity| window.value(quantity).unwrap_err().to_string();
        assert_eq!(error("rate, thraeds 8"), "rate, thraeds 8: is no figure of a report");
        assert_eq!(error(INTERRUPTS), "interrupts, a page: there is none from window_begin to window_end");
        assert_eq!(error(IDLE), "share of time, idle: no time passed from window_begin to window_end");
        assert_eq!(
            error("share of cycles, shootdowns"),
            "share of cycles: no CPU was busy from window_begin to window_end"
        );
    }

    #[test]
    fn three_of_four_cpus_idle_beside_one_task_and_switches_are_counted_by_page() {
        let reproduction = reproduction("ivybridge");
        let [short, mut long] = [0.2, 1.0].map(|milliseconds| one_of(&reproduction, 4, milliseconds));
        long.kernel.switches = short.kernel.switches + 2 * (long.score - short.score);
        let window = Window { short, long };
        let idle = window.value(IDLE).unwrap();
        assert!((74.0..76.0).contains(&idle), "{idle}");
        assert_eq!(window.value(SWITCHES).unwrap(), 2.0);
    }

    #[test]
    fn the_plot_of_shares_says_whether_its_tasks_are_threads_or_processes() {
        let mut reproduction = reproduction("cascade");
        reproduction.experiment.setup.parameters.get_mut("threads").unwrap().unit = "processes".into();
        let Plot::Stacked(plot) = plot(&reproduction, [70.0, 20.0, 10.0]).unwrap() else { panic!("stacked") };
        assert_eq!(plot.title, "What the cycles of 192 processes go to");
        assert!(plot.rows.iter().all(|row| row.group == "192 processes"));
    }

    #[test]
    fn a_quantity_is_of_the_threads_that_it_names_or_of_those_of_the_set_up() {
        assert_eq!(name_and_tasks("rate, threads 16", 144), ("rate", 16));
        assert_eq!(name_and_tasks("interrupts, a page, threads 16", 144), (INTERRUPTS, 16));
        assert_eq!(name_and_tasks(IDLE, 144), (IDLE, 144));
        assert_eq!(name_and_tasks("rate, processes 52", 192), ("rate", 52));
    }

    #[test]
    fn every_figure_that_a_file_names_has_a_value_and_no_other() {
        for id in ["cascade", "skylake", "lists", "crowd", "ivybridge", "sapphire", "ivytown", "cooper"] {
            let reproduction = reproduction(id);
            let window = Window { short: alone(&reproduction, 0.2), long: alone(&reproduction, 1.0) };
            for expected in &reproduction.experiment.expected {
                let (name, _) = name_and_tasks(&expected.quantity, 1);
                assert!(window.value(name).unwrap().is_finite(), "{id}: {}", expected.quantity);
            }
            assert!(reproduction.notes(&[]).is_ok(), "{id}: a note names a number that is not there");
            let error = window.value("share of cycles, waiting").unwrap_err().to_string();
            assert_eq!(error, "share of cycles, waiting: is no figure of a report");
        }
    }
}

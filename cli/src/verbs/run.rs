//! `tlbkit run`: one workload on one machine under several policies, side by side.

use anyhow::Result;
use clap::Args;
use rayon::prelude::*;
use tlbkit_sim::RunOutcome;

use crate::lab::clocks::Clocks;
use crate::lab::named_run::{NamedRun, NoiseWord, machine, workload};
use crate::lab::seeds::{self, Column};
use crate::lab::terminal::{Ending, Format, progress_bar_saying, say};

/// What to run.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit run madvise1 --cpus 2\n  \
    tlbkit run ebizzy-arena-old --machine ivybridge-8thread --policy linux-3.13,linux-3.14,linux-6.18:ceiling=0 \
    --set threads=4")]
pub(crate) struct RunArguments {
    /// A workload of `tlbkit list workloads`
    workload: String,
    /// A machine of `tlbkit list machines`, or a file
    #[arg(long, default_value = "skylake-desktop-pti")]
    machine: String,
    /// Policies: PRESET[:KEY=VALUE[+KEY=VALUE...]], separated by commas; see `tlbkit list policies` and `list settings`
    #[arg(long, value_delimiter = ',', default_value = "tlbkit,linux-6.18")]
    policy: Vec<String>,
    /// CPUs; the machine's own number by default
    #[arg(long, allow_negative_numbers = true)]
    cpus: Option<usize>,
    /// A parameter of the workload, of `tlbkit list parameters`; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE")]
    parameters: Vec<String>,
    /// Simulated milliseconds for a workload that does not end by itself: one whose `rounds` are 0
    #[arg(long, default_value_t = 20, allow_negative_numbers = true)]
    milliseconds: u64,
    /// Where random numbers come from: the first seed
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// How many seeds, one after the other: with more than one, means have intervals and policies are compared
    #[arg(long, allow_negative_numbers = true, default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: u16,
    /// Whether ticks, interrupts, steps and starts vary with the seed, as on a real machine
    #[arg(long, value_enum, default_value_t = NoiseWord::On)]
    noise: NoiseWord,
}

/// Runs it.
pub(crate) fn execute(arguments: &RunArguments, format: Format) -> Result<Ending> {
    let runs = arguments.runs();
    runs.iter().try_for_each(NamedRun::check)?;
    let clocks = Clocks::new(runs.len(), machine(&arguments.machine)?.system.frequency_mhz.value);
    let shown = clocks.clone();
    let bar = progress_bar_saying(runs.len(), move || shown.text());
    let outcome = |(index, run): (usize, &NamedRun)| {
        let outcome = run.execute(clocks.of(index));
        clocks.note_end(index);
        outcome.inspect(|_| bar.inc(1))
    };
    let outcomes = runs.par_iter().enumerate().map(outcome).collect::<Result<Vec<_>>>()?;
    bar.finish_and_clear();
    if format == Format::Json {
        for (run, outcome) in runs.iter().zip(&outcomes) {
            say!("{}", run.row(outcome)?);
        }
    }
    let columns = arguments.columns(outcomes);
    match format {
        Format::Json if arguments.seeds > 1 => seeds::json_lines(&columns).iter().for_each(|line| say!("{line}")),
        Format::Json => {}
        Format::Text => {
            say!("{}\n{}", arguments.heading()?, seeds::tables(&columns));
            seeds::notes(&columns).iter().for_each(|note| say!("{note}"));
        }
    }
    Ok(Ending::AsExpected)
}

impl RunArguments {
    /// What the table is about: what ran, where and how long.
    fn heading(&self) -> Result<String> {
        let Self { workload: name, milliseconds, .. } = self;
        let machine = machine(&self.machine)?;
        let cpus = self.cpus.unwrap_or(machine.system.cpus.value as usize);
        let about = tlbkit_workloads::describe(name).unwrap_or_default();
        let ends = workload(name, &self.parameters)?.ends_by_itself();
        let length = if ends { "all rounds".to_owned() } else { format!("{milliseconds} ms") };
        let place = format!("on {} with {cpus} CPUs, {length}", machine.name);
        let seeds = match (self.seed, self.seeds) {
            (seed, 1) => format!("seed {seed}: one run says nothing of chance"),
            (first, seeds) => {
                let last = first.saturating_add(u64::from(seeds) - 1);
                format!("seeds {first} to {last}; +- is half of the interval of a mean, at 95 %")
            }
        };
        Ok(format!("{name}: {about}\n{place}, {seeds}\n"))
    }

    /// A run for each policy and each seed: all seeds of the first policy, then the next.
    fn runs(&self) -> Vec<NamedRun> {
        let seeds = || (0..u64::from(self.seeds)).map(|more| self.seed.saturating_add(more));
        self.policy.iter().flat_map(|policy| seeds().map(|seed| self.run(policy, seed))).collect()
    }

    fn run(&self, policy: &str, seed: u64) -> NamedRun {
        NamedRun {
            workload: self.workload.clone(),
            machine: self.machine.clone(),
            policy: policy.to_owned(),
            cpus: self.cpus,
            seed,
            set: self.parameters.clone(),
            milliseconds: self.milliseconds,
            noise: self.noise.into(),
        }
    }

    /// The outcomes of [`runs`](Self::runs), those of a policy together.
    fn columns(&self, outcomes: Vec<RunOutcome>) -> Vec<Column<'_>> {
        let mut outcomes = outcomes.into_iter();
        self.policy.iter().map(|name| (name.as_str(), outcomes.by_ref().take(self.seeds.into()).collect())).collect()
    }
}

//! `tlbkit run`: one workload on one machine under several policies, side by side.

use anyhow::{Result, bail, ensure};
use clap::Args;
use rayon::prelude::*;
use serde_json::Value;
use tlbkit_sim::RunOutcome;

use crate::lab::clocks::Clocks;
use crate::lab::draws::{self, Draws};
use crate::lab::named_run::{NamedRun, NoiseWord, machine, workload};
use crate::lab::rests::Findings;
use crate::lab::seeds::{self, Column};
use crate::lab::terminal::{Ending, Format, progress_bar_saying, say};

/// What to run.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit run madvise1 --cpus 2\n  \
    tlbkit run ebizzy-arena-old --machine ivybridge-8thread --policy linux-3.13,linux-3.14,linux-6.18:ceiling=0 \
    --set threads=4\n  \
    tlbkit run madvise1 --machine recent-bare --policy linux-6.18,tlbkit --cpus 2 --priors 100")]
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
    /// [default: 5]
    #[arg(long, allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: Option<u16>,
    /// How many machines to draw, each with every prior of the machine file anew inside its band and a seed of its own:
    /// how far results may be off, whether that decides which policy is better, and which priors matter
    #[arg(long, allow_negative_numbers = true, value_name = "DRAWS")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    priors: Option<u16>,
    /// Whether ticks, interrupts, steps and starts vary with the seed, as on a real machine
    #[arg(long, value_enum, default_value_t = NoiseWord::On)]
    noise: NoiseWord,
}

/// Seeds of each policy, if nobody says how many.
const SEEDS: u16 = 5;

/// A run, and the draw on whose machine it is to be; none on the file's own.
struct Job<'a> {
    run: &'a NamedRun,
    draw: Option<usize>,
}

/// Runs it.
pub(crate) fn execute(arguments: &RunArguments, format: Format) -> Result<Ending> {
    arguments.check_seeds()?;
    let runs = arguments.runs();
    runs.iter().try_for_each(NamedRun::check)?;
    let draws = arguments.draws()?;
    let jobs = arguments.jobs(&runs);
    let mut outcomes = outcomes(&jobs, draws.as_ref(), machine(&arguments.machine)?.system.frequency_mhz.value)?;
    if format == Format::Json {
        for (job, outcome) in jobs.iter().zip(&outcomes) {
            say!("{}", job.row(outcome)?);
        }
    }
    let own = arguments.columns(outcomes.split_off(outcomes.len() - runs.len()));
    match draws {
        None => arguments.say_means(&own, format)?,
        Some(draws) => arguments.say_draws(&draws, [&arguments.columns(outcomes), &own], format)?,
    }
    Ok(Ending::AsExpected)
}

/// What comes out of `jobs`, in their order.
fn outcomes(jobs: &[Job<'_>], draws: Option<&Draws>, frequency_mhz: f64) -> Result<Vec<RunOutcome>> {
    let clocks = Clocks::new(jobs.len(), frequency_mhz);
    let shown = clocks.clone();
    let bar = progress_bar_saying(jobs.len(), move || shown.text());
    let outcome = |(index, job): (usize, &Job<'_>)| {
        let clock = clocks.of(index);
        let outcome = match (draws, job.draw) {
            (Some(draws), Some(draw)) => draws.execute(draw, job.run, clock),
            _ => job.run.execute(clock),
        };
        clocks.note_end(index);
        outcome.inspect(|_| bar.inc(1))
    };
    let outcomes = jobs.par_iter().enumerate().map(outcome).collect();
    bar.finish_and_clear();
    outcomes
}

impl Job<'_> {
    /// The names, the draw if there is one, and what came out.
    fn row(&self, outcome: &RunOutcome) -> Result<Value> {
        let mut row = self.run.row(outcome)?;
        if let Some(draw) = self.draw {
            row["draw"] = (draw + 1).into();
        }
        Ok(row)
    }
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
        let first = self.seed;
        let last = first + (u64::from(self.repeats()) - 1);
        let seeds = match (self.priors, self.repeats()) {
            (Some(_), _) => {
                format!("seeds {first} to {last}, a machine each; medians, in parentheses the middle 90 %")
            }
            (None, 1) => format!("seed {first}: one run says nothing of chance"),
            (None, _) => format!("seeds {first} to {last}; +- is half of the interval of a mean, at 95 %"),
        };
        Ok(format!("{name}: {about}\n{place}, {seeds}\n"))
    }

    /// Runs of each policy: one for each seed, with a machine of its own if priors are drawn.
    fn repeats(&self) -> u16 {
        self.priors.or(self.seeds).unwrap_or(SEEDS)
    }

    /// The machines that the runs take, if priors are drawn.
    fn draws(&self) -> Result<Option<Draws>> {
        if let (Some(draws), Some(seeds)) = (self.priors, self.seeds) {
            bail!("--priors {draws} with --seeds {seeds}: each draw has a seed of its own, so only one of them");
        }
        self.priors.map(|draws| Draws::new(&self.machine, self.seed, draws)).transpose()
    }

    /// All that is to run: each of `runs`, and before that, if priors are drawn, each on the machine of its draw. Runs
    /// of one seed have one machine.
    fn jobs<'a>(&self, runs: &'a [NamedRun]) -> Vec<Job<'a>> {
        let repeats = usize::from(self.repeats());
        let on_drawn = runs.iter().enumerate().map(|(index, run)| Job { run, draw: Some(index % repeats) });
        let on_own = runs.iter().map(|run| Job { run, draw: None });
        on_drawn.filter(|_| self.priors.is_some()).chain(on_own).collect()
    }

    /// Says means over seeds, of more than one.
    fn say_means(&self, columns: &[Column<'_>], format: Format) -> Result<()> {
        match format {
            Format::Json if self.repeats() > 1 => seeds::json_lines(columns).iter().for_each(|line| say!("{line}")),
            Format::Json => {}
            Format::Text => {
                say!("{}\n{}", self.heading()?, seeds::tables(columns));
                seeds::notes(columns).iter().for_each(|note| say!("{note}"));
            }
        }
        Ok(())
    }

    /// Says what comes out on drawn machines, beside what does on the file's own.
    fn say_draws(&self, draws: &Draws, [drawn, own]: [&[Column<'_>]; 2], format: Format) -> Result<()> {
        let findings = Findings::of(draws, drawn, own);
        match format {
            Format::Json => {
                let lines = [draws.json_lines(), draws::json_lines(drawn), findings.json_lines()];
                lines.concat().iter().for_each(|line| say!("{line}"));
            }
            Format::Text => {
                say!("{}{}\n{}\n{}", self.heading()?, draws.about(), draws::table(drawn), findings.text());
                seeds::notes(drawn).iter().for_each(|note| say!("{note}"));
            }
        }
        Ok(())
    }

    /// Each repetition needs a seed of its own.
    fn check_seeds(&self) -> Result<()> {
        let most = u64::MAX - (u64::from(self.repeats()) - 1);
        ensure!(self.seed <= most, "--seed {}: at most {most}, as {} are used", self.seed, self.repeats());
        Ok(())
    }

    /// A run for each policy and each seed: all seeds of the first policy, then the next.
    fn runs(&self) -> Vec<NamedRun> {
        let seeds = || (0..u64::from(self.repeats())).map(|more| self.seed + more);
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
        self.policy
            .iter()
            .map(|name| (name.as_str(), outcomes.by_ref().take(self.repeats().into()).collect()))
            .collect()
    }
}

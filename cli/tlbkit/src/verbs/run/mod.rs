//! `tlbkit run`: one workload on one machine under several policies, side by side.

mod work;

use anyhow::{Result, bail, ensure};
use clap::Args;
use tlbkit_output::fitting::fitting;
use tlbkit_output::number;
use tlbkit_output::policy;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_output::{note, say};

use crate::lab::draws::{self, Draws};
use crate::lab::named_run::{NamedRun, NoiseWord, machine, say_caution, workload};
use crate::lab::rests::Findings;
use crate::lab::seeds::{self, PolicyOutcomes};
use crate::lab::spread::range_words;
use work::{Sorted, Work};

/// What to run.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit run madvise1 --cpus 2\n  \
    tlbkit run ebizzy-mapped --machine ivybridge-8thread --set threads=4 \\\n      \
    --policy linux-3.13,linux-3.14,linux-6.18:ceiling=0\n  \
    tlbkit run madvise1 --policy linux-6.18,tlbkit --cpus 2 --priors 100\n\n\
    The second table compares each policy with the first one, seed by seed, in percent of the first one's value. It \
    says \"no difference found\" where zero lies in the interval, and \"too few\" where the first has fewer than 10 \
    events a run, or less than 0.05 % of the cycles: percents of so few say nothing.")]
pub(crate) struct RunArguments {
    /// A workload of `tlbkit list workloads`
    workload: String,
    /// A machine of `tlbkit list machines`, or a file
    #[arg(long, default_value = "skylake-desktop-pti")]
    machine: String,
    /// Policies: PRESET[:KEY=VALUE[+KEY=VALUE...]], separated by commas; see `tlbkit list policies` and `list settings`
    #[arg(long, value_delimiter = ',', value_parser = policy::trimmed, default_value = "tlbkit,linux-6.18")]
    policy: Vec<String>,
    /// CPUs; the machine's own number by default
    #[arg(long)]
    cpus: Option<usize>,
    /// A parameter of the workload, of `tlbkit list parameters`; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE")]
    parameters: Vec<String>,
    /// Simulated milliseconds for a workload that does not end by itself: one whose `rounds` are 0
    #[arg(long, default_value_t = 20)]
    milliseconds: u64,
    /// Where random numbers come from: the first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, one after the other: with more than one, means have intervals and policies are compared
    /// [default: 5]
    #[arg(long)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: Option<u16>,
    /// How many machines to draw, each with every prior of the machine file anew inside its band and a seed of its own:
    /// how far results may be off, whether that decides which policy is better, and which priors matter
    #[arg(long, value_name = "DRAWS")]
    #[arg(value_parser = clap::value_parser!(u16).range(draws::COUNTS))]
    priors: Option<u16>,
    /// Whether ticks, interrupts, steps and starts vary with the seed, as on a real machine
    #[arg(long, value_enum, default_value_t = NoiseWord::On)]
    noise: NoiseWord,
}

/// The default number of seeds of each policy.
const SEEDS: u16 = 5;

/// Executes the runs and prints what they give. If somebody wants the command to end, what is done until then is
/// printed.
pub(crate) fn execute(arguments: &RunArguments, format: Format) -> Result<Ending> {
    arguments.check_seeds()?;
    let runs = arguments.runs();
    runs.iter().try_for_each(NamedRun::check)?;
    say_caution(&machine(&arguments.machine)?);
    let work = Work::new(runs, arguments.repeats(), arguments.draws()?);
    let stopping = Stopping::listen()?;
    let finished = work.execute(&stopping)?;
    let [runs, all] = finished.count();
    if runs < all {
        note!("tlbkit: interrupted: {runs} of {all} runs are done");
    }
    let interrupted = finished.interrupted_json();
    match format {
        Format::Json => {
            finished.rows()?.iter().for_each(|row| say!("{row}"));
            arguments.say_lines(&finished.sorted(&arguments.policy));
            interrupted.iter().for_each(|line| say!("{line}"));
        }
        Format::Text if runs == 0 => {}
        Format::Text => arguments.say_text(&finished.sorted(&arguments.policy))?,
    }
    Ok(if runs < all { stopping.ending() } else { Ending::AsExpected })
}

impl RunArguments {
    /// What the table is about: what ran, where and how long.
    fn heading(&self, sorted: &Sorted<'_>) -> Result<String> {
        let Self { workload: name, milliseconds, .. } = self;
        let machine = machine(&self.machine)?;
        let cpus = self.cpus.unwrap_or(machine.system.cpus.value as usize);
        let about = tlbkit_workloads::describe(name).unwrap_or_default();
        let ends = workload(name, &self.parameters)?.ends_by_itself();
        let length = if ends { "all rounds".to_owned() } else { format!("{milliseconds} ms") };
        let place = format!("on {} with {}, {length}", machine.name, number::cpus(cpus as u64));
        let first = self.seed;
        let last = first + (u64::from(self.repeats()) - 1);
        let seeds = match (sorted, self.repeats()) {
            (Sorted::Draws { draws, .. }, _) => {
                let range = range_words(draws.count());
                let seeds = if first == last { format!("seed {first}") } else { format!("seeds {first} to {last}") };
                format!("{seeds}, a machine each; medians, in parentheses {range}")
            }
            (Sorted::Seeds(_), 1) => format!("seed {first}: one run says nothing of chance"),
            (Sorted::Seeds(_), _) => format!("seeds {first} to {last}; +- is half of the interval of a mean, at 95 %"),
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

    /// For a program: what follows from all runs.
    fn say_lines(&self, sorted: &Sorted<'_>) {
        let lines = match sorted {
            Sorted::Seeds(_) if self.repeats() == 1 => Vec::new(),
            Sorted::Seeds(columns) => seeds::json_lines(columns),
            Sorted::Draws { draws, .. } if draws.count() == 0 => Vec::new(),
            Sorted::Draws { draws, drawn, own } => {
                let findings = Findings::of(draws, drawn, own).json_lines();
                [draws.json_lines(), draws::json_lines(drawn), findings].concat()
            }
        };
        lines.iter().for_each(|line| say!("{line}"));
    }

    /// For a person: the tables, and what must be known of them.
    fn say_text(&self, sorted: &Sorted<'_>) -> Result<()> {
        let heading = self.heading(sorted)?;
        let notes = match sorted {
            Sorted::Seeds(columns) => {
                say!("{heading}\n{}", fitting(&seeds::tables(columns)));
                seeds::notes(columns)
            }
            Sorted::Draws { draws, .. } if draws.count() == 0 => Vec::new(),
            Sorted::Draws { draws, drawn, own } => {
                let findings = Findings::of(draws, drawn, own).text();
                say!("{heading}{}\n{}", draws.about(), fitting(&format!("{}\n{findings}", draws::table(drawn))));
                let of_own = seeds::notes(own).into_iter().map(|note| format!("on the file's own machine, {note}"));
                seeds::notes(drawn).into_iter().chain(of_own).collect()
            }
        };
        say!("{}", seeds::OWN_ERROR);
        notes.iter().chain(&self.interrupted(sorted)).for_each(|note| say!("{note}"));
        Ok(())
    }

    /// A note on what is missing, if the runs were interrupted.
    fn interrupted(&self, sorted: &Sorted<'_>) -> Option<String> {
        let repeats = usize::from(self.repeats());
        match sorted {
            Sorted::Seeds(columns) if columns.iter().any(|column| column.seeds.len() < repeats) => {
                let of = |column: &PolicyOutcomes<'_>| format!("{} has {}", column.policy, column.seeds.len());
                let has = columns.iter().map(of).collect::<Vec<_>>().join(", ");
                Some(format!("INTERRUPTED: of {repeats} seeds {has}; differences are of the seeds that both have"))
            }
            Sorted::Draws { draws, .. } if draws.count() < repeats => {
                Some(format!("INTERRUPTED: only the first {} of {repeats} draws", draws.count()))
            }
            _ => None,
        }
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
}

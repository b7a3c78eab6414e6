//! `tlbkit run`: one workload on one machine under several policies, side by side.

mod work;

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::json;
use tlbkit_output::fitting::fitting;
use tlbkit_output::number;
use tlbkit_output::policy;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_output::{note, say};

use crate::compared::policies::{self, PolicyOutcomes};
use crate::compared::quantity::{Extent, shown};
use crate::spec::{Machines, NoiseWord, Point, RunSpec};
use work::Work;

/// What to run.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit run madvise1 --cpus 2\n  \
    tlbkit run ebizzy-mapped --machine ivybridge-8thread --set threads=4 \\\n      \
    --policy linux-3.13,linux-3.14,linux-6.18:ceiling=0\n\n\
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
    #[arg(long, default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: u16,
    /// Whether ticks, interrupts, steps and starts vary with the seed, as on a real machine
    #[arg(long, value_enum, default_value_t = NoiseWord::On)]
    noise: NoiseWord,
    /// Everything that is counted, and every cost in busy cycles
    #[arg(long)]
    full: bool,
}

/// Executes the runs and prints what they give. If somebody wants the command to end, what is done until then is
/// printed.
pub(crate) fn execute(arguments: &RunArguments, format: Format) -> Result<Ending> {
    arguments.check_seeds()?;
    let work = Work::new(arguments.runs()?, arguments.seeds);
    let stopping = Stopping::listen()?;
    let finished = work.execute(&stopping)?;
    let [runs, all] = finished.count();
    if runs < all {
        note!("tlbkit: interrupted: {runs} of {all} runs are done");
    }
    let columns = finished.columns(&arguments.policy);
    match format {
        Format::Json => {
            finished.rows()?.iter().for_each(|row| say!("{row}"));
            if arguments.seeds > 1 {
                policies::json_lines(&columns).iter().for_each(|line| say!("{line}"));
            }
            if runs < all {
                say!("{}", json!({ "interrupted": true, "runs": runs, "of": all }));
            }
        }
        Format::Text if runs == 0 => {}
        Format::Text => arguments.say_text(finished.first(), &columns),
    }
    Ok(if runs < all { stopping.ending() } else { Ending::AsExpected })
}

impl RunArguments {
    /// For a person: what it means, the tables, and what must be known of them.
    fn say_text(&self, run: &RunSpec, columns: &[PolicyOutcomes<'_>]) {
        let sentences = policies::sentences(columns);
        sentences.iter().for_each(|sentence| say!("{sentence}"));
        if !sentences.is_empty() {
            say!();
        }
        let extent = if self.full { Extent::Full } else { Extent::Short };
        say!("{}\n{}", self.heading(run), fitting(&policies::tables(columns, extent)));
        if !self.full {
            say!("--full has {} rows more", shown(Extent::Full).count() - shown(Extent::Short).count());
        }
        say!("{}", policies::OWN_ERROR);
        policies::notes(columns).iter().chain(&self.interrupted(columns)).for_each(|note| say!("{note}"));
    }

    /// What the table is about: what ran, where and how long.
    fn heading(&self, run: &RunSpec) -> String {
        let Self { workload: name, milliseconds, seed: first, seeds, .. } = self;
        let about = tlbkit_workloads::describe(name).unwrap_or_default();
        let is_whole = run.workload.ends_by_itself();
        let length = if is_whole { "all rounds".to_owned() } else { format!("{milliseconds} ms") };
        let place = format!("on {} with {}, {length}", run.machine.name, number::cpus(run.cpus() as u64));
        let last = first + (u64::from(*seeds) - 1);
        let seeds = match seeds {
            1 => format!("seed {first}: one run says nothing of chance"),
            _ => format!("seeds {first} to {last}; +- is half of the interval of a mean, at 95 %"),
        };
        format!("{name}: {about}\n{place}, {seeds}\n")
    }

    /// A note on what is missing, if the runs were interrupted.
    fn interrupted(&self, columns: &[PolicyOutcomes<'_>]) -> Option<String> {
        let seeds = usize::from(self.seeds);
        columns.iter().any(|column| column.seeds.len() < seeds).then(|| {
            let of = |column: &PolicyOutcomes<'_>| format!("{} has {}", column.policy, column.seeds.len());
            let has = columns.iter().map(of).collect::<Vec<_>>().join(", ");
            format!("INTERRUPTED: of {seeds} seeds {has}; differences are of the seeds that both have")
        })
    }

    /// Each run needs a seed of its own.
    fn check_seeds(&self) -> Result<()> {
        let most = u64::MAX - (u64::from(self.seeds) - 1);
        ensure!(self.seed <= most, "--seed {}: at most {most}, as {} are used", self.seed, self.seeds);
        Ok(())
    }

    /// A run for each policy and each seed: all seeds of the first policy, then the next. The machine's caution is
    /// printed, if its file has one.
    fn runs(&self) -> Result<Vec<RunSpec>> {
        let mut machines = Machines::default();
        let seeds = || (0..u64::from(self.seeds)).map(|more| self.seed + more);
        let each = self.policy.iter().flat_map(|policy| seeds().map(move |seed| (policy, seed)));
        let runs = each.map(|(policy, seed)| {
            let point = Point {
                workload: self.workload.clone(),
                machine: self.machine.clone(),
                policy: policy.clone(),
                cpus: self.cpus,
                seed,
                set: self.parameters.clone(),
                milliseconds: self.milliseconds,
                noise: self.noise.into(),
            };
            RunSpec::new(point, &mut machines)
        });
        let runs = runs.collect::<Result<_>>()?;
        machines.say_cautions();
        Ok(runs)
    }
}

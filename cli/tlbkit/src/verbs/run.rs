//! `tlbkit run`: one workload on one machine under several policies, side by side; or lists of them.
//!
//! Many runs are shared out among processes and machines by `--shard`, each of which keeps rows in one folder. The same
//! command without it then finds them there, so what it prints is the same for any number of shards.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::json;
use tlbkit_output::fitting::{fitting, wrapped};
use tlbkit_output::number;
use tlbkit_output::policy;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_output::{note, say};

use crate::compared::kept::Kept;
use crate::compared::policies::{self, PolicyOutcomes};
use crate::compared::quantity::{Extent, shown};
use crate::compared::work::{Shard, Work};
use crate::spec::{Machines, NoiseWord, Point, RunSpec};

/// What to run.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit run madvise1 --cpus 2\n  \
    tlbkit run ebizzy-mapped --machine ivybridge-8thread --set threads=1,2,4 \\\n      \
    --policy linux-3.13,linux-3.14,linux-6.18:ceiling=0\n\n\
    WORKLOAD, --machine, --cpus and --set take lists, and each combination has its tables. The second table of each \
    compares every policy with the first one, seed by seed, in percent of the first one's value. It says \"no \
    difference found\" where zero lies in the interval, and \"too few\" where the first has fewer than 10 events a \
    run, or less than 0.05 % of the cycles: percents of so few say nothing.\n\n\
    Many runs on many machines: docs/lab/sweeps.md")]
pub(crate) struct RunArguments {
    /// Workloads of `tlbkit list workloads`
    #[arg(required = true, value_delimiter = ',')]
    workload: Vec<String>,
    /// Machines of `tlbkit list machines`, or files
    #[arg(long, value_delimiter = ',', default_value = "skylake-desktop-pti")]
    machine: Vec<String>,
    /// Policies: PRESET[:KEY=VALUE[+KEY=VALUE...]], separated by commas; see `tlbkit list policies` and `list settings`
    #[arg(long, value_delimiter = ',', value_parser = policy::trimmed, default_value = "tlbkit,linux-6.18")]
    policy: Vec<String>,
    /// CPUs; the machine's own number by default
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Guests that share the CPUs of a machine with a host, this one included; the machine's own number by default
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=64))]
    guests: Vec<u64>,
    /// A parameter of the workload, of `tlbkit list parameters`, and its values; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE[,VALUE...]")]
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
    /// Keep a row for each run in this folder, and take those that are there in place of running them again
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Run only every N-th of the runs from the K-th on, keep their rows, and print no table
    #[arg(long, value_name = "K/N", requires = "keep")]
    shard: Option<Shard>,
}

/// Executes the runs and prints what they give. If somebody wants the command to end, what is done until then is
/// printed.
pub(crate) fn execute(arguments: &RunArguments, format: Format) -> Result<Ending> {
    arguments.check_seeds()?;
    let runs = arguments.runs()?;
    let shard = arguments.shard.unwrap_or(Shard::WHOLE);
    let all = shard.count(runs.len());
    let kept = arguments.keep.as_deref().map(Kept::open).transpose()?;
    let stopping = Stopping::listen()?;
    let finished = Work::new(runs, arguments.seeds).execute(shard, kept.as_ref(), &stopping)?;
    let done = finished.done();
    let is_interrupted = done < all;
    if is_interrupted {
        let again = if kept.is_some() { "; the same command goes on from there" } else { "" };
        note!("tlbkit: interrupted: {done} of {all} runs are done{again}");
    }
    let ending = if is_interrupted { stopping.ending() } else { Ending::AsExpected };
    if let (Some(folder), Some(_)) = (&arguments.keep, arguments.shard) {
        match format {
            Format::Json => say!("{}", json!({ "kept": folder, "runs": done, "run_now": finished.run_now })),
            Format::Text => say!("{}: {done} runs, {} of them run now", folder.display(), finished.run_now),
        }
        return Ok(ending);
    }
    match format {
        Format::Json => {
            finished.say_json(&arguments.policy)?;
            if is_interrupted {
                say!("{}", json!({ "interrupted": true, "runs": done, "of": all }));
            }
        }
        Format::Text if done == 0 => {}
        Format::Text => arguments.say_text(&finished.settings(&arguments.policy)),
    }
    Ok(ending)
}

impl RunArguments {
    /// For a person: of each setting what it means and its tables, and at the end what must be known of them.
    fn say_text(&self, settings: &[(&RunSpec, Vec<PolicyOutcomes<'_>>)]) {
        let extent = if self.full { Extent::Full } else { Extent::Short };
        for (run, columns) in settings {
            let sentences = policies::sentences(columns);
            sentences.iter().for_each(|sentence| say!("{}", wrapped(sentence, 2)));
            if !sentences.is_empty() {
                say!();
            }
            say!("{}\n{}", self.heading(run), fitting(&policies::tables(columns, extent)));
        }
        if !self.full {
            say!("--full has {} rows more", shown(Extent::Full).count() - shown(Extent::Short).count());
        }
        say!("{}", policies::OWN_ERROR);
        for (_, columns) in settings {
            policies::notes(columns).iter().chain(&self.interrupted(columns)).for_each(|note| say!("{note}"));
        }
    }

    /// What the table is about: what ran, where and how long.
    fn heading(&self, run: &RunSpec) -> String {
        let Self { milliseconds, seed: first, seeds, .. } = self;
        let name = &run.point.workload;
        let about = tlbkit_workloads::describe(name).unwrap_or_default();
        let set: String = run.point.set.iter().map(|parameter| format!(", {parameter}")).collect();
        let is_whole = run.workload.ends_by_itself();
        let length = if is_whole { "all rounds".to_owned() } else { format!("{milliseconds} ms") };
        let guests = run.point.guests.map(|guests| format!(", {guests} guests")).unwrap_or_default();
        let place = format!("on {} with {}{guests}, {length}{set}", run.machine.name, number::cpus(run.cpus() as u64));
        let last = first + (u64::from(*seeds) - 1);
        let seeds = match seeds {
            1 => format!("seed {first}: one run says nothing of chance"),
            _ => format!("seeds {first} to {last}; +- is half of the interval of a mean, at 95 %"),
        };
        let [about, place] = [format!("{name}: {about}"), place].map(|line| wrapped(&line, 2));
        format!("{about}\n{place}\n{seeds}\n")
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

    /// Each run needs a separate seed.
    fn check_seeds(&self) -> Result<()> {
        let most = u64::MAX - (u64::from(self.seeds) - 1);
        ensure!(self.seed <= most, "--seed {}: at most {most}, as {} are used", self.seed, self.seeds);
        Ok(())
    }

    /// A run for each setting, policy and seed: in each setting all seeds of the first policy, then of the next. The
    /// cautions of machines are printed, where their files have one.
    fn runs(&self) -> Result<Vec<RunSpec>> {
        let (milliseconds, noise) = (self.milliseconds, self.noise.into());
        let mut points = vec![Point { milliseconds, noise, ..Point::default() }];
        points = Point::times(&points, &self.workload, |point, name| point.workload.clone_from(name));
        points = Point::times(&points, &self.machine, |point, name| point.machine.clone_from(name));
        if !self.cpus.is_empty() {
            points = Point::times(&points, &self.cpus, |point, &cpus| point.cpus = Some(cpus));
        }
        if !self.guests.is_empty() {
            points = Point::times(&points, &self.guests, |point, &guests| point.guests = Some(guests));
        }
        for parameter in &self.parameters {
            let (key, values) = parameter.split_once('=').map_or((None, parameter.as_str()), |(k, v)| (Some(k), v));
            let values: Vec<_> = values.split(',').collect();
            points = Point::times(&points, &values, |point, value| {
                point.set.push(key.map_or_else(|| (*value).to_owned(), |key| format!("{key}={value}")));
            });
        }
        points = Point::times(&points, &self.policy, |point, policy| point.policy.clone_from(policy));
        let seeds: Vec<_> = (0..u64::from(self.seeds)).map(|more| self.seed + more).collect();
        points = Point::times(&points, &seeds, |point, &seed| point.seed = seed);
        let mut machines = Machines::default();
        let runs = points.into_iter().map(|point| RunSpec::new(point, &mut machines)).collect::<Result<_>>()?;
        machines.say_cautions();
        Ok(runs)
    }
}

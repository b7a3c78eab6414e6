//! `tlbkit run`: one workload on one machine under several policies, side by side.

use anyhow::Result;
use clap::Args;
use rayon::prelude::*;

use crate::lab::compare::compare;
use crate::lab::named_run::{NamedRun, machine, workload};
use crate::lab::terminal::{Ending, Format, progress_bar, say};

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
    /// Where random numbers come from
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
}

/// Runs it.
pub(crate) fn execute(arguments: &RunArguments, format: Format) -> Result<Ending> {
    let runs = arguments.runs();
    runs.iter().try_for_each(NamedRun::check)?;
    let bar = progress_bar(runs.len());
    let outcome = |run: &NamedRun| run.execute().inspect(|_| bar.inc(1));
    let outcomes = runs.par_iter().map(outcome).collect::<Result<Vec<_>>>()?;
    bar.finish_and_clear();
    match format {
        Format::Json => {
            for (run, outcome) in runs.iter().zip(&outcomes) {
                say!("{}", run.row(outcome)?);
            }
        }
        Format::Text => {
            let named: Vec<_> = runs.iter().map(|run| run.policy.as_str()).zip(outcomes).collect();
            say!("{}\n{}", arguments.heading()?, compare(&named));
        }
    }
    Ok(Ending::AsExpected)
}

impl RunArguments {
    /// What the table is about: what ran, where and how long.
    fn heading(&self) -> Result<String> {
        let Self { workload: name, seed, milliseconds, .. } = self;
        let machine = machine(&self.machine)?;
        let cpus = self.cpus.unwrap_or(machine.system.cpus.value as usize);
        let about = tlbkit_workloads::describe(name).unwrap_or_default();
        let ends = workload(name, &self.parameters)?.ends_by_itself();
        let length = if ends { "all rounds".to_owned() } else { format!("{milliseconds} ms") };
        let place = format!("on {} with {cpus} CPUs, {length}, seed {seed}", machine.name);
        Ok(format!("{name}: {about}\n{place}; cycles are of all CPUs\n"))
    }

    /// A run for each policy.
    fn runs(&self) -> Vec<NamedRun> {
        let run = |policy: &String| NamedRun {
            workload: self.workload.clone(),
            machine: self.machine.clone(),
            policy: policy.clone(),
            cpus: self.cpus,
            seed: self.seed,
            set: self.parameters.clone(),
            milliseconds: self.milliseconds,
        };
        self.policy.iter().map(run).collect()
    }
}

//! `tlbkit check`: the real protocol on a machine that may do all that x86-64 allows.

mod told;
mod work;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use tlbkit_check::campaign::Plan;
use tlbkit_check::chrome_trace;
use tlbkit_check::program::named::{self, Named};

use tlbkit_output::file::{check_output, write_whole};
use tlbkit_output::kind::Kind;
use tlbkit_output::nearest::unknown;
use tlbkit_output::policy;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_output::{note, say};
use work::{Came, Replayed};

/// What to check.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit check --seeds 100000\n  \
    tlbkit check --program unmap-3-pages --policy linux-6.18\n  tlbkit check --program unmap-1-page --exhaustive\n  \
    tlbkit check --replay 2398 --trace run.json\n\n\
    Exit status: 0 nothing was found, 1 something was, 2 wrong usage, 128 and the number of a signal that stopped it.")]
pub(crate) struct CheckArguments {
    /// Random schedules to run, and a quarter as many of the programs that came later
    #[arg(long, default_value_t = 20_000, conflicts_with_all = ["replay", "exhaustive"])]
    seeds: u64,
    /// All schedules of a program with at most --bound deviations from running one CPU after the other
    #[arg(long, requires = "program")]
    exhaustive: bool,
    /// Deviations of --exhaustive
    #[arg(long, default_value_t = 2, requires = "exhaustive")]
    bound: u8,
    /// One seed again; --trace then has every step of it
    #[arg(long, value_name = "SEED", conflicts_with = "exhaustive")]
    replay: Option<u64>,
    /// A program of `tlbkit list programs`; all of them and random ones by default
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// PRESET[:KEY=VALUE[+KEY=VALUE...]]; by default each seed draws one, published or not
    #[arg(long)]
    policy: Option<String>,
    /// Where to write a run as a trace for Perfetto or Chrome: the shortest one that fails as what was found, or the
    /// run of --replay in which nothing was
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// A trace for Perfetto or Chrome, which replaces no file of another kind.
const TRACE: Kind = Kind {
    words: "trace for Perfetto",
    starts: &["{\"traceEvents\":[", "{\"displayTimeUnit\":\"ns\",\"traceEvents\":["],
};

/// Checks it.
pub(crate) fn execute(arguments: &CheckArguments, format: Format) -> Result<Ending> {
    let trace = arguments.trace.as_deref();
    ensure!(arguments.seeds >= 1, "--seeds 0: must be 1 or more");
    trace.map_or(Ok(()), |file| check_output(file, TRACE))?;
    let plan = Plan {
        program: arguments.program.as_deref().map(program).transpose()?,
        policy: arguments.policy.as_deref().map(policy::parse).transpose()?,
    };
    let stopping = Stopping::listen()?;
    let came = match arguments.replay {
        Some(seed) => replay(&plan, seed, trace, format)?,
        None if arguments.exhaustive => {
            let (came, explored, seconds) = work::exhaust(&plan, arguments.bound, &stopping);
            told::explored(&came, &explored, seconds, format);
            came
        }
        None => {
            let seeds = work::seeds(&plan, arguments.seeds, &stopping);
            told::seeds(&seeds, format);
            seeds.came
        }
    };
    let found = match came {
        Came::Found(found) => found,
        Came::Clean if trace.is_some() && arguments.replay.is_none() => {
            note!("tlbkit: no trace is written, as nothing was found; --replay SEED writes one of any seed");
            return Ok(Ending::AsExpected);
        }
        Came::Clean => return Ok(Ending::AsExpected),
        Came::Interrupted => return Ok(stopping.ending()),
    };
    let (failure, is_shortest) = found.shortest(&stopping)?;
    told::failure(&failure, format);
    if let Some(path) = trace {
        write_whole(path, &chrome_trace(&failure.outcome.lines))?;
    }
    Ok(if is_shortest { Ending::NotAsExpected } else { stopping.ending() })
}

/// One seed, with a trace of it if it is clean; of a failing one the shortest run is traced.
fn replay(plan: &Plan, seed: u64, trace: Option<&Path>, format: Format) -> Result<Came> {
    let replayed = Replayed::new(plan, seed);
    let trace = trace.filter(|_| replayed.finding().is_none());
    if let Some(path) = trace {
        write_whole(path, &chrome_trace(&replayed.lines()))?;
    }
    told::replayed(&replayed, format);
    if let (Some(path), Format::Text) = (trace, format) {
        say!("its trace: {}", path.display());
    }
    Ok(replayed.into_came())
}

fn program(name: &str) -> Result<&'static Named> {
    Named::find(name).with_context(|| unknown("program", name, named::all().map(|named| named.name), "programs"))
}

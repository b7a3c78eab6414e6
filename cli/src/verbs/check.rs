//! `tlbkit check`: the real protocol on a machine that may do all that x86-64 allows.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use tlbkit_check::campaign::{self, Explored, Plan, Report};
use tlbkit_check::program::named::{self, Named};
use tlbkit_check::schedule::shrink::{Failure, shrink};
use tlbkit_check::{Finding, Scenario, chrome_trace, two_columns};

use crate::lab::nearest::unknown;
use crate::lab::policy;
use crate::lab::terminal::{Ending, Format, progress_bar, say};
use crate::output::file::{check_place, write_whole};

/// What to check.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit check --seeds 100000\n  \
    tlbkit check --program unmap-3-pages --policy linux-6.18\n  tlbkit check --program unmap-1-page --exhaustive\n  \
    tlbkit check --replay 2398 --trace run.json")]
pub(crate) struct CheckArguments {
    /// Random schedules to run, and a quarter as many of the programs that came later
    #[arg(long, allow_negative_numbers = true, default_value_t = 20_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// All schedules of a program with at most --bound deviations from running one CPU after the other
    #[arg(long, requires = "program")]
    exhaustive: bool,
    /// Deviations of --exhaustive
    #[arg(long, default_value_t = 2)]
    bound: u8,
    /// One seed again, step by step
    #[arg(long, value_name = "SEED", allow_negative_numbers = true, conflicts_with = "exhaustive")]
    replay: Option<u64>,
    /// A program of `tlbkit list programs`; all of them and random ones by default
    #[arg(long, value_name = "NAME")]
    program: Option<String>,
    /// PRESET[:KEY=VALUE[+KEY=VALUE...]]; by default each seed draws one, published or not
    #[arg(long)]
    policy: Option<String>,
    /// Where to write a failing run as a trace for Perfetto or Chrome
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Checks it.
pub(crate) fn execute(arguments: &CheckArguments, format: Format) -> Result<Ending> {
    arguments.trace.as_deref().map_or(Ok(()), check_place)?;
    let plan = Plan {
        program: arguments.program.as_deref().map(program).transpose()?,
        policy: arguments.policy.as_deref().map(policy::parse).transpose()?,
    };
    let failure = match arguments.replay {
        Some(seed) => replay(&plan, seed, format),
        None if arguments.exhaustive => exhaust(&plan, arguments, format),
        None => seeds(&plan, arguments.seeds, format),
    };
    let Some(failure) = failure else { return Ok(Ending::AsExpected) };
    tell(&failure, format);
    if let Some(path) = &arguments.trace {
        let trace = chrome_trace(&failure.outcome.lines);
        write_whole(path, &trace)?;
    }
    Ok(Ending::NotAsExpected)
}

fn program(name: &str) -> Result<&'static Named> {
    Named::find(name).with_context(|| unknown("program", name, named::all().map(|named| named.name), "programs"))
}

fn seeds(plan: &Plan, count: u64, format: Format) -> Option<Failure> {
    let bar = progress_bar(usize::try_from(count).unwrap_or(usize::MAX));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let report = campaign::families(plan, 0, count, threads, &|done| bar.set_position(done));
    bar.finish_and_clear();
    tell_seeds(&report, began.elapsed().as_secs_f64(), format);
    let (seed, finding) = report.failure?;
    Some(shortest(&plan.scenario(seed), &plan.run(seed).choices, &finding))
}

fn replay(plan: &Plan, seed: u64, format: Format) -> Option<Failure> {
    let outcome = plan.run(seed);
    match (&outcome.finding, format) {
        (None, Format::Text) => say!("seed {seed}: nothing found in {} steps", outcome.steps),
        (found, Format::Json) => {
            say!("{}", json!({ "seed": seed, "steps": outcome.steps, "found": found.is_some() }));
        }
        (Some(_), Format::Text) => {}
    }
    let finding = outcome.finding?;
    Some(shortest(&plan.scenario(seed), &outcome.choices, &finding))
}

fn exhaust(plan: &Plan, arguments: &CheckArguments, format: Format) -> Option<Failure> {
    let scenario = plan.scenario(0);
    let began = Instant::now();
    let explored = campaign::exhaust(&scenario, arguments.bound, u64::MAX, &AtomicBool::new(false));
    tell_explored(&explored, began.elapsed().as_secs_f64(), format);
    let (choices, finding) = explored.failure?;
    Some(shortest(&scenario, &choices, &finding))
}

fn shortest(scenario: &Scenario, choices: &[u8], finding: &Finding) -> Failure {
    eprintln!("found: {finding}\nlooking for the shortest run that fails so ...");
    shrink(scenario, choices, finding.oracle)
}

fn tell_seeds(report: &Report, seconds: f64, format: Format) {
    let a_minute = report.seeds as f64 / seconds * 60.0;
    match format {
        Format::Json => say!(
            "{}",
            json!({ "seeds": report.seeds, "steps": report.steps, "seconds": seconds, "seeds_a_minute": a_minute,
                "seed": report.failure.as_ref().map(|(seed, _)| seed) })
        ),
        Format::Text => {
            let found = if report.failure.is_some() { "stopped at a finding after" } else { "nothing found in" };
            say!("{found} {} seeds, {} steps, {a_minute:.0} seeds a minute", report.seeds, report.steps);
        }
    }
}

fn tell_explored(explored: &Explored, seconds: f64, format: Format) {
    match format {
        Format::Json => say!(
            "{}",
            json!({ "states": explored.states, "runs": explored.runs, "bound": explored.bound,
                "complete": explored.is_complete, "seconds": seconds })
        ),
        Format::Text => say!(
            "{} states, {} runs, at most {} deviations, {seconds:.1} s: {}",
            explored.states,
            explored.runs,
            explored.bound,
            if explored.is_complete { "all explored, nothing found" } else { "stopped at the first finding" }
        ),
    }
}

fn tell(failure: &Failure, format: Format) {
    let Some(finding) = &failure.outcome.finding else { return };
    match format {
        Format::Json => say!(
            "{}",
            json!({ "finding": finding.oracle.name(), "cpu": finding.cpu, "step": finding.step, "story": finding.story,
                "deviations": failure.deviations(), "program": format!("{:?}", failure.scenario.program) })
        ),
        Format::Text => {
            say!("{:?}\n{:?}\n", failure.scenario.program, failure.scenario.policy);
            say!("{}", two_columns(&failure.outcome.lines, finding.cpu, 150));
            say!("{finding}\n{} deviations from running one CPU after the other", failure.deviations());
        }
    }
}

//! Seed after seed, until something is found or the budget is spent: what a tool runs that applies a bug to a copy of
//! the protocol and asks whether it is caught. People use `tlbkit check`.
//!
//! Exit status: 0 nothing found, 1 a finding, 2 wrong usage.

use std::process::ExitCode;
use std::time::Instant;

use tlbkit::Policy;
use tlbkit_check::campaign::{self, Plan};
use tlbkit_check::json;
use tlbkit_check::program::named::Named;

const USAGE: &str = "usage: tlbkit-check --budget SEEDS [--first SEED] [--program NAME] [--policy NAME] [--json]";

struct Arguments {
    budget: u64,
    first: u64,
    plan: Plan,
    is_json: bool,
}

fn parse() -> Result<Arguments, String> {
    let mut arguments = Arguments { budget: 0, first: 0, plan: Plan::default(), is_json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--json" {
            arguments.is_json = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} wants a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} {value}: not a number"));
        match word.as_str() {
            "--budget" => arguments.budget = number()?,
            "--first" => arguments.first = number()?,
            "--program" => {
                arguments.plan.program = Some(Named::find(&value).ok_or_else(|| format!("no program {value}"))?);
            }
            "--policy" => {
                arguments.plan.policy = Some(Policy::preset(&value).ok_or_else(|| format!("no policy {value}"))?);
            }
            _ => return Err(format!("what is {word}?")),
        }
    }
    if arguments.budget == 0 { Err("--budget is missing".to_owned()) } else { Ok(arguments) }
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("tlbkit-check: {error}; {USAGE}");
            return ExitCode::from(2);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let report = campaign::seeds(&arguments.plan, arguments.first, arguments.budget, threads, &|_| ());
    let seconds = began.elapsed().as_secs_f64();
    let (finding, seed, story) = match &report.failure {
        Some((seed, finding)) => (json::string(finding.oracle.name()), seed.to_string(), finding.to_string()),
        None => ("null".to_owned(), "null".to_owned(), "nothing found".to_owned()),
    };
    if arguments.is_json {
        let (seeds, steps, story) = (report.seeds, report.steps, json::string(&story));
        println!(
            "{{\"finding\":{finding},\"seed\":{seed},\"seeds\":{seeds},\"steps\":{steps},\
            \"seconds\":{seconds:.3},\"story\":{story}}}"
        );
    } else {
        println!("{story} ({} seeds, {} steps, {seconds:.1} s; seed {seed})", report.seeds, report.steps);
    }
    ExitCode::from(u8::from(report.failure.is_some()))
}

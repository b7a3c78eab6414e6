//! Seed after seed, until something is found or the budget is spent: what a tool runs that applies a bug to a copy of
//! the protocol and asks whether it is caught. People use `tlbkit check`.
//!
//! Exit status: 0 nothing found, 1 a finding, 2 wrong usage.

use std::process::ExitCode;
use std::time::Instant;

use tlbkit::Policy;
use tlbkit_check::campaign::{self, Plan};
use tlbkit_check::program::named::Named;
use tlbkit_check::{Finding, json};

const USAGE: &str = "usage: tlbkit-check --budget SEEDS [--first SEED] [--program NAME] [--policy TEXT] [--json], or \
    --exhaustive DEVIATIONS instead of seeds";

struct Arguments {
    budget: u64,
    first: u64,
    /// Deviations of the schedules, if all are explored.
    bound: Option<u8>,
    plan: Plan,
    is_json: bool,
}

fn parse() -> Result<Arguments, String> {
    let mut arguments = Arguments { budget: 0, first: 0, bound: None, plan: Plan::default(), is_json: false };
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
            "--exhaustive" => {
                arguments.bound = Some(value.parse().map_err(|_| format!("{word} {value}: 0 to 255 are possible"))?);
            }
            "--program" => {
                arguments.plan.program = Some(Named::find(&value).ok_or_else(|| format!("no program {value}"))?);
            }
            "--policy" => {
                arguments.plan.policy = Some(Policy::parse(&value).map_err(|error| error.to_string())?);
            }
            _ => return Err(format!("what is {word}?")),
        }
    }
    let is_complete = arguments.budget != 0 || arguments.bound.is_some();
    if is_complete { Ok(arguments) } else { Err("--budget is missing".to_owned()) }
}

/// What was searched, in the words of the answer.
struct Answer {
    failure: Option<(String, Finding)>,
    /// "seeds", or "states".
    what: &'static str,
    count: u64,
    /// How many steps were made, or runs.
    steps: u64,
}

fn search(arguments: &Arguments) -> Answer {
    if let Some(bound) = arguments.bound {
        let explored = campaign::exhaust(&arguments.plan.scenario(0), bound, u64::MAX, &false.into());
        let failure = explored.failure.map(|(choices, finding)| (format!("{choices:?}"), finding));
        return Answer { failure, what: "states", count: explored.states as u64, steps: explored.runs };
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let report = campaign::families(&arguments.plan, arguments.first, arguments.budget, threads, &|_| ());
    let failure = report.failure.map(|(seed, finding)| (seed.to_string(), finding));
    Answer { failure, what: "seeds", count: report.seeds, steps: report.steps }
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("tlbkit-check: {error}; {USAGE}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let Answer { failure, what, count, steps } = search(&arguments);
    let seconds = began.elapsed().as_secs_f64();
    let is_found = failure.is_some();
    let (finding, schedule, story) = match failure {
        Some((schedule, finding)) => (json::string(finding.oracle.name()), schedule, finding.to_string()),
        None => ("null".to_owned(), "null".to_owned(), "nothing found".to_owned()),
    };
    if arguments.is_json {
        let story = json::string(&story);
        println!(
            "{{\"finding\":{finding},\"seed\":{schedule},\"{what}\":{count},\"steps\":{steps},\
            \"seconds\":{seconds:.3},\"story\":{story}}}"
        );
    } else {
        println!("{story} ({count} {what}, {steps} steps, {seconds:.1} s; seed {schedule})");
    }
    ExitCode::from(u8::from(is_found))
}

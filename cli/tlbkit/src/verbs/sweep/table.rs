//! The rows of a sweep as a person would read them: means over seeds with their intervals, and how far each policy is
//! from the first one of the same point.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use serde_json::{Map, Value, json};
use tlbkit_output::fitting::fitting;
use tlbkit_output::number;
use tlbkit_output::say;
use tlbkit_output::table::grid;
use tlbkit_output::terminal::Format;

use tlbkit_sim::run::Start;

use super::shard::{OF_FILE, OUTCOME};
use crate::compared::difference::{Difference, Mean, RELATIVE, too_few_means};
use crate::compared::policies::{INTERVAL_OF, OWN_ERROR};

/// What to read.
#[derive(Args)]
#[command(after_help = "Example: tlbkit sweep table results.jsonl")]
pub(crate) struct TableArguments {
    /// What `sweep merge` printed
    results: PathBuf,
}

/// What is shown of an outcome, and where it stands there.
const QUANTITIES: [Shown; 4] = [
    Shown { title: "score a second", place: rate, compare: Difference::of },
    events("interrupts", |outcome| outcome.pointer("/ipis/sent")?.as_f64()),
    events("flushes", |outcome| outcome.pointer("/flushes/flushes")?.as_f64()),
    events("walks", |outcome| outcome.pointer("/tlb/walks")?.as_f64()),
];

/// One of them.
struct Shown {
    title: &'static str,
    place: Place,
    compare: fn(&[f64], &[f64]) -> Difference,
}

const fn events(title: &'static str, place: Place) -> Shown {
    Shown { title, place, compare: Difference::of_events }
}

type Place = fn(&Value) -> Option<f64>;

/// As [`rate`](tlbkit_sim::RunOutcome::rate) of the outcome that was written out.
fn rate(outcome: &Value) -> Option<f64> {
    let is_whole = outcome["start"] == json!(Start::NotAsked);
    outcome.pointer(if is_whole { "/score_per_second" } else { "/steady/score_per_second" })?.as_f64()
}

/// All rows that differ in nothing but seed and policy.
struct Group {
    /// Their fields without those two.
    point: Map<String, Value>,
    policies: Vec<PolicyRows>,
}

/// A policy's outcomes, each with its seed, in the order of the file.
struct PolicyRows {
    policy: String,
    outcomes: Vec<(u64, Value)>,
}

/// Prints the tables.
pub(super) fn print(arguments: &TableArguments, format: Format) -> Result<()> {
    let file = arguments.results.display();
    let text = fs::read_to_string(&arguments.results).with_context(|| file.to_string())?;
    let mut groups = Vec::new();
    for (index, line) in text.lines().enumerate() {
        add(&mut groups, line).with_context(|| format!("{file}:{}", index + 1))?;
    }
    ensure!(!groups.is_empty(), "{file}: no row in it; tlbkit sweep merge prints rows");
    if format == Format::Text {
        say!(
            "+- is half of the interval of a mean over seeds, at 95 %; score a second: units that the workload counts,"
        );
        say!("in a second of simulated time after its start; {RELATIVE}");
        say!("{}{OWN_ERROR}\n", too_few_means());
    }
    for group in &groups {
        match format {
            Format::Text => say!("{}\n{}", group.heading(), fitting(&group.table())),
            Format::Json => group.lines().iter().for_each(|line| say!("{line}")),
        }
    }
    Ok(())
}

/// What is said of a line that is no row.
const ROW_CUT: &str = "a row that is cut short: run tlbkit sweep merge again";
const NO_ROW: &str = "no row of `sweep merge`";

/// Puts a row where it belongs.
fn add(groups: &mut Vec<Group>, line: &str) -> Result<()> {
    let mut point: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| if error.is_eof() { anyhow!(ROW_CUT) } else { anyhow!(NO_ROW) })?;
    let lacks = |field: &str| format!("no {field}: {NO_ROW}");
    let outcome = point.remove(OUTCOME).with_context(|| lacks("outcome"))?;
    let seed = point.remove("seed").and_then(|seed| seed.as_u64()).with_context(|| lacks("seed"))?;
    let policy = point.remove("policy").with_context(|| lacks("policy"))?;
    let policy = policy.as_str().context("policy: must be a string")?.to_owned();
    for field in OF_FILE {
        point.remove(field);
    }
    let at = groups.iter().position(|group| group.point == point).unwrap_or_else(|| {
        groups.push(Group { point, policies: Vec::new() });
        groups.len() - 1
    });
    let policies = &mut groups[at].policies;
    let at = policies.iter().position(|rows| rows.policy == policy).unwrap_or_else(|| {
        policies.push(PolicyRows { policy, outcomes: Vec::new() });
        policies.len() - 1
    });
    let outcomes = &mut policies[at].outcomes;
    ensure!(outcomes.iter().all(|&(other, _)| other != seed), "seed {seed} again, of the same point and policy");
    outcomes.push((seed, outcome));
    Ok(())
}

impl PolicyRows {
    /// The value of each outcome; empty if one of them has none.
    fn values(&self, place: Place) -> Vec<f64> {
        let values = self.outcomes.iter().map(|(_, outcome)| place(outcome));
        values.collect::<Option<_>>().unwrap_or_default()
    }

    fn seeds(&self) -> Vec<u64> {
        self.outcomes.iter().map(|&(seed, _)| seed).collect()
    }

    /// How far it is from `first`; nothing is said of policies that ran on other seeds.
    fn difference(&self, first: &Self, Shown { place, compare, .. }: &Shown) -> Difference {
        let (ours, theirs) = (self.values(*place), first.values(*place));
        if self.seeds() != first.seeds() || ours.is_empty() {
            return Difference::NoBase;
        }
        compare(&ours, &theirs)
    }
}

impl Group {
    fn heading(&self) -> String {
        let word = |name: &str| match &self.point[name] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let cpus = self.point["cpus"].as_u64().map_or_else(|| "all CPUs".to_owned(), number::cpus);
        let set = self.point["set"].as_array().map_or_else(String::new, |set| {
            set.iter().filter_map(Value::as_str).map(|parameter| format!(", {parameter}")).collect()
        });
        format!("{} on {}, {cpus}{set}", word("workload"), word("machine"))
    }

    fn table(&self) -> String {
        let first = &self.policies[0];
        let against = format!("against {}", first.policy);
        let head: Vec<&str> = ["policy", "seeds"]
            .into_iter()
            .chain(QUANTITIES.iter().flat_map(|shown| [shown.title, &against]))
            .collect();
        let row = |rows: &PolicyRows| {
            let cells = QUANTITIES.iter().flat_map(|shown| {
                let mean = Mean::of(&rows.values(shown.place)).map_or_else(|| "-".to_owned(), Mean::count);
                [mean, rows.difference(first, shown).text()]
            });
            [rows.policy.clone(), rows.outcomes.len().to_string()].into_iter().chain(cells).collect()
        };
        grid(&head, &self.policies.iter().map(row).collect::<Vec<_>>())
    }

    fn lines(&self) -> Vec<Value> {
        let first = &self.policies[0];
        let line = |rows: &PolicyRows| {
            let quantity = |shown: &Shown| {
                let mean = Mean::of(&rows.values(shown.place));
                json!({
                    "quantity": shown.title,
                    "mean": mean.map(|mean| mean.mean),
                    "half_width": mean.and_then(|mean| mean.half_width),
                    "difference": rows.difference(first, shown).json(),
                })
            };
            let quantities: Vec<_> = QUANTITIES.iter().map(quantity).collect();
            json!({
                "point": self.point, "means_of": rows.policy, "seeds": rows.outcomes.len(), "against": first.policy,
                "interval_of": INTERVAL_OF, "quantities": quantities,
            })
        };
        self.policies.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Machines, Point, RunSpec};

    /// A run that takes samples, one that is over before its start is, and one that does a given amount of work.
    #[test]
    fn each_quantity_is_found_in_an_outcome_that_is_written_out() {
        let names = |workload: &str, milliseconds| Point {
            workload: workload.into(),
            machine: "recent-bare".into(),
            policy: "tlbkit".into(),
            cpus: Some(2),
            seed: 1,
            milliseconds,
            ..Point::default()
        };
        let mut starts = Vec::new();
        for (workload, milliseconds, set) in [("ebizzy-m", 20, ""), ("ebizzy-m", 1, ""), ("madvise1", 1, "rounds=3")] {
            let mut run = names(workload, milliseconds);
            run.set = set.split_whitespace().map(String::from).collect();
            let outcome = RunSpec::new(run, &mut Machines::default()).unwrap().execute(None).unwrap();
            let written = json!(outcome);
            assert_eq!(rate(&written), outcome.rate(), "{workload}: {:?}", outcome.start);
            for shown in &QUANTITIES[1..] {
                assert!((shown.place)(&written).is_some(), "{workload}: no {}", shown.title);
            }
            starts.push(outcome.start);
        }
        assert!(
            starts.contains(&Start::NotAsked) && starts.iter().any(|start| *start != Start::NotAsked),
            "{starts:?}"
        );
    }
}

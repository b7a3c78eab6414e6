//! A plan: one point a line, in JSON; made of lists, and read again.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use clap::Args;
use serde_json::error::Category;
use serde_json::{Map, Value};
use tlbkit_output::policy;
use tlbkit_output::say;

use crate::spec::{Machines, NoiseWord, Point, RunSpec};

/// Lists, separated by commas; every combination is a point.
#[derive(Args)]
#[command(after_help = "Example:\n  tlbkit sweep plan ebizzy-m --policy xnu,tlbkit --set threads=1,2 > plan.jsonl")]
pub(crate) struct PlanArguments {
    /// Workloads of `tlbkit list workloads`
    #[arg(required = true, value_delimiter = ',')]
    workload: Vec<String>,
    /// Machines of `tlbkit list machines`, or files
    #[arg(long, value_delimiter = ',', default_value = "skylake-desktop-pti")]
    machine: Vec<String>,
    /// Policies: PRESET[:KEY=VALUE[+KEY=VALUE...]]; see `tlbkit list policies` and `list settings`
    #[arg(long, value_delimiter = ',', value_parser = policy::trimmed, default_value = "tlbkit,linux-6.18")]
    policy: Vec<String>,
    /// Numbers of CPUs; the machine's own by default
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Where random numbers come from
    #[arg(long, value_delimiter = ',', default_value = "1")]
    seed: Vec<u64>,
    /// A parameter of the workloads and its values; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE[,VALUE...]")]
    parameters: Vec<String>,
    /// Simulated milliseconds for a workload that does not end by itself: one whose `rounds` are 0
    #[arg(long, default_value_t = 20)]
    milliseconds: u64,
    /// Whether ticks, interrupts, steps and starts vary with the seed, as on a real machine
    #[arg(long, value_enum, default_value_t = NoiseWord::On)]
    noise: NoiseWord,
}

/// Prints the points; nothing if one of them names what does not exist.
pub(super) fn write(arguments: &PlanArguments) -> Result<()> {
    let points = points(arguments)?;
    let mut machines = Machines::default();
    points.iter().try_for_each(|point| RunSpec::new(point.clone(), &mut machines).map(drop))?;
    if let Some((_, again)) = repeated(&points)? {
        bail!(
            "the plan has a point twice, as one of its lists names a value twice: {}",
            serde_json::to_string(&points[again])?
        );
    }
    for point in &points {
        say!("{}", serde_json::to_string(point)?);
    }
    Ok(())
}

fn points(arguments: &PlanArguments) -> Result<Vec<Point>> {
    let (milliseconds, noise) = (arguments.milliseconds, arguments.noise.into());
    let mut points = vec![Point { milliseconds, noise, ..Point::default() }];
    points = times(&points, &arguments.workload, |point, name| point.workload.clone_from(name));
    points = times(&points, &arguments.machine, |point, name| point.machine.clone_from(name));
    points = times(&points, &arguments.policy, |point, name| point.policy.clone_from(name));
    if !arguments.cpus.is_empty() {
        points = times(&points, &arguments.cpus, |point, &cpus| point.cpus = Some(cpus));
    }
    for parameter in &arguments.parameters {
        let (key, values) = parameter
            .split_once('=')
            .with_context(|| format!("--set {parameter}: is no KEY=VALUE, such as {parameter}=1,2"))?;
        let values: Vec<_> = values.split(',').collect();
        points = times(&points, &values, |point, value| point.set.push(format!("{key}={value}")));
    }
    Ok(times(&points, &arguments.seed, |point, &seed| point.seed = seed))
}

/// Each point once for each value.
fn times<T>(points: &[Point], values: &[T], set: impl Fn(&mut Point, &T)) -> Vec<Point> {
    let with = |point: &Point, value: &T| {
        let mut point = point.clone();
        set(&mut point, value);
        point
    };
    points.iter().flat_map(|point| values.iter().map(move |value| (point, value))).map(|(p, v)| with(p, v)).collect()
}

/// Where the first point stands that comes again, and where it does: two rows of one run would pass for two seeds, and
/// make an interval narrower than it is.
fn repeated(points: &[Point]) -> Result<Option<(usize, usize)>> {
    let mut places = HashMap::new();
    for (index, point) in points.iter().enumerate() {
        if let Some(first) = places.insert(serde_json::to_string(point)?, index) {
            return Ok(Some((first, index)));
        }
    }
    Ok(None)
}

/// What is wrong with a line that is no point.
fn no_point(line: &str, error: &serde_json::Error) -> Error {
    let is_row = serde_json::from_str::<Value>(line).is_ok_and(|row| row.get("outcome").is_some());
    match error.classify() {
        _ if is_row => anyhow!("a row with what came out, and no point of `sweep plan`"),
        Category::Eof => anyhow!("a point that is cut short: run tlbkit sweep plan again"),
        _ => {
            let (place, said) = wrong_field(line).unwrap_or_else(|| (String::new(), words(error)));
            anyhow!("no point of `sweep plan`: {place}{said}")
        }
    }
}

/// The first field of a point whose value makes no sense, as the line has it, and what is wrong with it: the reader of
/// a whole point does not name the field.
fn wrong_field(line: &str) -> Option<(String, String)> {
    let fields: Map<String, Value> = serde_json::from_str(line).ok()?;
    fields.into_iter().find_map(|(name, value)| {
        let mut point = serde_json::to_value(Point::default()).ok()?;
        // Of a field that does not exist the reader says so.
        *point.get_mut(&name)? = value.clone();
        let error = serde_json::from_value::<Point>(point).err()?;
        Some((format!("\"{name}\": {value}: "), words(&error)))
    })
}

/// What the reader says, in a user's words. It numbers lines inside of the one that it gets.
fn words(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let said = said.split(" at line ").next().unwrap_or_default();
    ["expected usize", "expected u64"].iter().fold(said.to_owned(), |said, type_of_ours| {
        said.replace(type_of_ours, "expected a whole number without quotes")
    })
}

/// A plan that was read: its runs, and the machines that they name.
pub(super) struct Plan {
    pub(super) runs: Vec<RunSpec>,
    pub(super) machines: Machines,
}

/// The plan of a file; all that its points name exists.
pub(super) fn read(path: &Path) -> Result<Plan> {
    let file = path.display();
    let text = fs::read_to_string(path).with_context(|| file.to_string())?;
    ensure!(!text.is_empty(), "{file}: no point in it; tlbkit sweep plan prints points");
    let mut machines = Machines::default();
    let mut points = Vec::new();
    let mut runs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let point: Result<Point> = serde_json::from_str(line).map_err(|error| no_point(line, &error));
        let run = point.and_then(|point| RunSpec::new(point, &mut machines));
        let run = run.with_context(|| format!("{file}:{}", index + 1))?;
        points.push(run.point.clone());
        runs.push(run);
    }
    if let Some((first, again)) = repeated(&points)? {
        bail!("{file}:{}: the same point as in line {}; remove one of them", again + 1, first + 1);
    }
    Ok(Plan { runs, machines })
}

//! One shard of a plan, run; and the rows of all shards, merged.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Map, Value, json};
use tlbkit_output::file::check_apart;
use tlbkit_output::jobs::{self, Done};
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format, progress_bar};
use tlbkit_output::{note, say};

use super::fingerprint;
use super::plan::{self, Plan};
use crate::spec::RunSpec;

/// Of the rows: it rises when a row gets other fields, so that rows of two builds are not mixed unnoticed.
const FORMAT: u64 = 5;
/// The fields of a row beside those of its point: where the point stands in the plan, what came out, what its machine
/// was, whatever is behind that name by now, and [`FORMAT`].
const POINT: &str = "point";
pub(super) const OUTCOME: &str = "outcome";
const MACHINE: &str = "machine_fingerprint";
const FORMAT_FIELD: &str = "format";
/// Those that say nothing of what was run.
pub(super) const OF_FILE: [&str; 3] = [POINT, MACHINE, FORMAT_FIELD];

/// Which points, and where the rows go.
#[derive(Args)]
#[command(after_help = "Example: tlbkit sweep run plan.jsonl --shard 3/8")]
pub(crate) struct ShardArguments {
    /// A plan
    plan: PathBuf,
    /// Every N-th point from the K-th on
    #[arg(long, value_name = "K/N", default_value = "1/1")]
    shard: Shard,
    /// The file for the rows; by default the plan's name with .K-of-N behind it, if the plan is a plain file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What to put in order.
#[derive(Args)]
#[command(after_help = "Example: tlbkit sweep merge plan.jsonl plan.jsonl.*-of-8 > results.jsonl")]
pub(crate) struct MergeArguments {
    /// The plan
    plan: PathBuf,
    /// Files that its shards wrote
    #[arg(required = true)]
    results: Vec<PathBuf>,
}

/// The `number`-th of `of`, from 1.
#[derive(Clone, Copy)]
struct Shard {
    number: usize,
    of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if 1 <= number && number <= of => Ok(Self { number, of }),
            _ => Err("must be K/N with K from 1 to N".to_owned()),
        }
    }
}

/// Runs what is not done yet, each row being kept as soon as it is there.
pub(super) fn run(arguments: &ShardArguments, format: Format) -> Result<Ending> {
    let Shard { number, of } = arguments.shard;
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => beside(&arguments.plan, &format!(".{number}-of-{of}"))?,
    };
    let plan = plan::read(&arguments.plan)?;
    let name = || path.display().to_string();
    check_apart(&[("--output", &path, None)], &[("the plan", &arguments.plan)])?;
    let stopping = Stopping::listen()?;
    let done = resume(&path, &plan)?;
    let mine: Vec<usize> = (number - 1..plan.runs.len()).step_by(of).collect();
    let left: Vec<usize> = mine.iter().copied().filter(|index| !done.contains_key(index)).collect();
    let mut rows = OpenOptions::new().create(true).append(true).open(&path).with_context(name)?;
    plan.machines.say_cautions();
    let (points, bar, mut ran) = (mine.len(), progress_bar(left.len()), 0);
    let jobs = left.len();
    let job = move |place: usize| Ok(format!("{}\n", row(left[place], &plan.runs[left[place]])?));
    let ended = jobs::each(jobs, &stopping, job, |_, line| {
        bar.inc(1);
        ran += 1;
        rows.write_all(line.as_bytes()).with_context(name)
    });
    bar.finish_and_clear();
    if ended? == Done::Interrupted {
        let kept = points - (jobs - ran);
        note!("tlbkit: interrupted: {} has {kept} of {points} points; the same command goes on from there", name());
        return Ok(stopping.ending());
    }
    match format {
        Format::Json => say!("{}", json!({ "file": path, "points": points, "run": ran })),
        Format::Text => say!("{}: {points} points, {ran} of them run now", name()),
    }
    Ok(Ending::AsExpected)
}

/// The file beside a plan, which a pipe has not.
fn beside(plan: &Path, ending: &str) -> Result<PathBuf> {
    let is_special = fs::metadata(plan).is_ok_and(|data| !data.is_file());
    ensure!(!is_special, "{}: is no plain file: name one for the rows with -o FILE", plan.display());
    let mut name = plan.as_os_str().to_owned();
    name.push(ending);
    Ok(name.into())
}

/// A point, where it stands in the plan, what its machine was, and what came out.
fn row(index: usize, run: &RunSpec) -> Result<Value> {
    let mut row = run.row(&run.execute(None)?)?;
    row[POINT] = index.into();
    row[MACHINE] = fingerprint::of(&run.machine).into();
    row[FORMAT_FIELD] = FORMAT.into();
    Ok(row)
}

/// The rows that a killed shard left, without the one that it was killed in. A pipe or a device has none, and might
/// never end.
fn resume(path: &Path, plan: &Plan) -> Result<BTreeMap<usize, String>> {
    let name = || path.display().to_string();
    if fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return Ok(BTreeMap::new());
    }
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        text => text.with_context(name)?,
    };
    let whole = text.rfind('\n').map_or(0, |last| last + 1);
    let rows = rows(path, &text[..whole], plan)?;
    if whole < text.len() {
        let file = File::options().write(true).open(path).with_context(name)?;
        file.set_len(whole as u64).with_context(name)?;
    }
    Ok(rows)
}

/// Lines of a file by their points, all of which are the plan's, on the machines that it means.
fn rows(path: &Path, text: &str, plan: &Plan) -> Result<BTreeMap<usize, String>> {
    let machines: BTreeMap<_, _> = plan.machines.each().map(|(name, of)| (name, fingerprint::of(of))).collect();
    let is_point =
        |place: usize, fields| plan.runs.get(place).is_some_and(|run| json!(run.point) == Value::Object(fields));
    let row = |(index, line): (usize, &str)| {
        let at = || format!("{}:{}", path.display(), index + 1);
        let is_cut = |error: &serde_json::Error| error.is_eof();
        let fields = serde_json::from_str(line);
        ensure!(!fields.as_ref().is_err_and(is_cut), "{}: a row that is cut short: run its shard again", at());
        let mut fields: Map<String, Value> = fields.ok().with_context(|| format!("{}: no row of `sweep run`", at()))?;
        let format = fields.remove(FORMAT_FIELD);
        if format.as_ref().and_then(Value::as_u64) != Some(FORMAT) {
            let format = format.map_or_else(|| "none".to_owned(), |format| format.to_string());
            bail!("{}: format {format}, written by another tlbkit: must be {FORMAT}; run its shard again", at());
        }
        let point = fields.remove(POINT).and_then(|point| usize::try_from(point.as_u64()?).ok());
        let is_whole = fields.remove(OUTCOME).is_some();
        let ran_on = fields.remove(MACHINE);
        // What is left is the point itself.
        match point {
            Some(point) if is_whole && is_point(point, fields) => {
                let name = plan.runs[point].point.machine.as_str();
                let is_same = ran_on.as_ref().and_then(Value::as_str) == machines.get(name).map(String::as_str);
                ensure!(is_same, "{}: machine {name} has changed since: remove the file, run its shard again", at());
                Ok((point, line.to_owned()))
            }
            _ => bail!("{}: no row of this plan: leave the file out, or name the plan that it was run with", at()),
        }
    };
    text.lines().enumerate().map(row).collect()
}

/// Prints the rows of all shards in the order of the plan.
pub(super) fn merge(arguments: &MergeArguments) -> Result<()> {
    let plan = plan::read(&arguments.plan)?;
    let mut all: BTreeMap<usize, String> = BTreeMap::new();
    for path in &arguments.results {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        for (point, line) in rows(path, &text, &plan)? {
            let other = all.entry(point).or_insert_with(|| line.clone());
            ensure!(
                *other == line,
                "{}: point {point} came out otherwise in another file: remove both, run their shards again",
                path.display()
            );
        }
    }
    if let Some(missing) = (0..plan.runs.len()).find(|point| !all.contains_key(point)) {
        let (file, left) = (arguments.plan.display(), plan.runs.len() - all.len());
        bail!("{file}:{}: {left} points have no row yet, this one first: run its shard again", missing + 1);
    }
    all.values().for_each(|line| say!("{line}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tlbkit_machine::Noise;

    use super::*;
    use crate::spec::{Machines, Point};

    /// The name of each field in `value`, with those that it lies in; elements of a list have one name.
    fn fields(value: &Value, name: &str, all: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| fields(value, &format!("{name}.{key}"), all)),
            Value::Array(list) => list.iter().for_each(|value| fields(value, &format!("{name}[]"), all)),
            _ => drop(all.insert(name.to_owned())),
        }
    }

    #[test]
    fn a_row_has_the_fields_of_its_format() {
        let (workload, machine, policy) = ("madvise1".into(), "recent-bare".into(), "linux-6.18:stats=on".into());
        let point = Point {
            workload,
            machine,
            policy,
            cpus: Some(2),
            seed: 1,
            set: Vec::new(),
            milliseconds: 1,
            noise: Noise::On,
        };
        let run = RunSpec::new(point, &mut Machines::default()).unwrap();
        let mut names = BTreeSet::new();
        fields(&row(0, &run).unwrap()[OUTCOME], "", &mut names);
        let text = names.into_iter().collect::<Vec<_>>().join(" ");
        let print = fingerprint::fnv1a(&text);
        assert_eq!((FORMAT, print), (5, 9_010_289_283_376_087_379), "other fields: raise FORMAT, here too. {text}");
    }
}

//! `tlbkit designs`: every published design on every workload, beside Linux of today, as the evaluation of a paper has
//! it.
//!
//! It runs what `tlbkit run` would run. What a design is and which document it is from stands in [`DESIGNS`], and on
//! which machine and how long a number of CPUs is simulated in [`Bench::with`].

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::json;
use tlbkit_output::file::{check_place, write_whole};
use tlbkit_output::fitting::{fitting, wrapped};
use tlbkit_output::stopping::Stopping;
use tlbkit_output::table::grid;
use tlbkit_output::terminal::{Ending, Format};
use tlbkit_output::{note, number, say};
use tlbkit_sim::statistics::mean;

use crate::compared::difference::{Difference, Mean};
use crate::compared::kept::Kept;
use crate::compared::policies::{self, PolicyOutcomes};
use crate::compared::quantity::titled;
use crate::compared::work::{Finished, Shard, Work};
use crate::output::svg::{Panel, PanelRow, Panels, Plot, Ratio};
use crate::spec::{Machines, NoiseWord, Point, RunSpec};

/// A policy, and the document that it is from.
struct Design {
    policy: &'static str,
    document: &'static str,
}

impl Design {
    /// The policy whose run of the workload is this one's. A flush at reuse makes a difference to what is reclaimed,
    /// and by a look at each first store to a page of a private file.
    fn runs_as(&self, workload: &str) -> &'static str {
        if self.policy == "luf" && !["reclaim", "tlb-flush1"].contains(&workload) { "tlbkit" } else { self.policy }
    }
}

/// What is compared, with the first one.
const DESIGNS: [Design; 8] = [
    Design { policy: "linux-6.18", document: "arch/x86/mm/tlb.c of Linux 6.18" },
    Design { policy: "tlbkit", document: "our own default" },
    Design { policy: "early-ack", document: "Amit, EuroSys 2020: a CPU acknowledges a flush before it flushes" },
    Design { policy: "latr", document: "LATR, ASPLOS 2018: munmap waits for nobody" },
    Design {
        policy: "private-levels",
        document: "RadixVM, EuroSys 2013, and numaPTE, 2024: page tables of each CPU's own above the last level",
    },
    Design { policy: "private-levels-latr", document: "both at once" },
    Design { policy: "abis", document: "ABIS, USENIX ATC 2017, in part: what no CPU has accessed is not flushed" },
    Design {
        policy: "luf",
        document: "LUF, an RFC for Linux, v12 of 2025: clean pages are flushed when their frames are used again",
    },
];

/// First those that flush much, then those that should not be slower.
const WORKLOADS: &str = "tlb-flush1,tlb-flush2,tlb-flush3,madvise1,mapbench-local,mapbench-pipeline,mapbench-global,\
    ebizzy-m,ebizzy-mapped,reclaim,pingpong,lat-ctx,netperf,memcache,compile,buildsh";

/// What to run.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tlbkit designs\n  tlbkit designs --cpus 8,32,128 --keep rows --picture designs.svg\n\n\
    What each design is and what it costs: docs/lab/designs.md"
)]
pub(crate) struct DesignsArguments {
    /// Workloads of `tlbkit list workloads`
    #[arg(value_delimiter = ',', default_value = WORKLOADS, hide_default_value = true)]
    workload: Vec<String>,
    /// CPUs: up to 8 on the machine skylake-desktop-pti, 20 ms and 5 seeds; more on sapphire-rapids, 5 ms and 3 seeds
    #[arg(long, value_delimiter = ',', default_value = "8")]
    cpus: Vec<usize>,
    /// Another machine of `tlbkit list machines`, or a file, for all numbers of CPUs
    #[arg(long)]
    machine: Option<String>,
    /// Other simulated milliseconds, for a workload that does not end by itself
    #[arg(long)]
    milliseconds: Option<u64>,
    /// Another number of seeds, from 1 on
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..=1000))]
    seeds: Option<u16>,
    /// Write a picture: the work of each design by that of Linux, a row for each workload
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
    /// Keep a row for each run in this folder, and take those that are there in place of running them again
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// Where and how long so many CPUs are simulated.
struct Bench {
    cpus: usize,
    machine: String,
    milliseconds: u64,
    seeds: u16,
}

impl Bench {
    fn with(cpus: usize, arguments: &DesignsArguments) -> Self {
        let (machine, milliseconds, seeds) =
            if cpus <= 8 { ("skylake-desktop-pti", 20, 5) } else { ("sapphire-rapids", 5, 3) };
        Self {
            cpus,
            machine: arguments.machine.clone().unwrap_or_else(|| machine.to_owned()),
            milliseconds: arguments.milliseconds.unwrap_or(milliseconds),
            seeds: arguments.seeds.unwrap_or(seeds),
        }
    }

    /// A run for each workload, design and seed.
    fn runs(&self, workloads: &[String], machines: &mut Machines) -> Result<Vec<RunSpec>> {
        let Self { cpus, machine, milliseconds, seeds } = self;
        let (cpus, milliseconds, noise) = (Some(*cpus), *milliseconds, NoiseWord::On.into());
        let point = Point { cpus, machine: machine.clone(), milliseconds, noise, ..Point::default() };
        let points = Point::times(&[point], workloads, |point, name| point.workload.clone_from(name));
        let points =
            Point::times(&points, &DESIGNS, |point, design| point.policy = design.runs_as(&point.workload).to_owned());
        let seeds: Vec<_> = (1..=u64::from(*seeds)).collect();
        let points = Point::times(&points, &seeds, |point, &seed| point.seed = seed);
        points.into_iter().map(|point| RunSpec::new(point, machines)).collect()
    }

    fn text(&self) -> String {
        let Self { cpus, machine, milliseconds, seeds } = self;
        format!("{}: {machine}, {milliseconds} ms, seeds 1 to {seeds}", number::cpus(*cpus as u64))
    }
}

/// Executes the runs and prints what they give. If somebody wants the command to end, what is done until then is
/// printed, and no picture is written.
pub(crate) fn execute(arguments: &DesignsArguments, format: Format) -> Result<Ending> {
    let benches: Vec<_> = arguments.cpus.iter().map(|&cpus| Bench::with(cpus, arguments)).collect();
    ensure!(arguments.cpus.is_sorted_by(|one, next| one < next), "--cpus: each number once, the smallest first");
    let mut machines = Machines::default();
    let runs: Vec<_> =
        benches.iter().map(|bench| bench.runs(&arguments.workload, &mut machines)).collect::<Result<_>>()?;
    machines.say_cautions();
    arguments.picture.as_deref().map_or(Ok(()), check_place)?;
    let kept = arguments.keep.as_deref().map(Kept::open).transpose()?;
    let stopping = Stopping::listen()?;
    let all: usize = runs.iter().map(Vec::len).sum();
    let (mut finished, mut done) = (Vec::new(), 0);
    for (bench, runs) in benches.iter().zip(runs) {
        let sized = Work::new(runs, bench.seeds).execute(Shard::WHOLE, kept.as_ref(), &stopping)?;
        done += sized.done();
        finished.push(sized);
        if stopping.is_wanted() {
            break;
        }
    }
    let is_interrupted = done < all;
    let policies = DESIGNS.map(|design| design.policy.to_owned());
    let sizes: Vec<_> =
        benches.iter().zip(&finished).map(|(bench, sized)| Size::new(bench, sized, &policies)).collect();
    match format {
        Format::Json => finished.iter().try_for_each(|sized| sized.say_json(&policies))?,
        Format::Text if done == 0 => {}
        Format::Text => say_text(&sizes),
    }
    if is_interrupted {
        let again = if kept.is_some() { "; the same command goes on from there" } else { "" };
        note!("tlbkit: interrupted: {done} of {all} runs are done{again}");
        if format == Format::Json {
            say!("{}", json!({ "interrupted": true, "runs": done, "of": all }));
        }
        return Ok(stopping.ending());
    }
    if let Some(file) = &arguments.picture {
        write_whole(file, &Plot::Panels(picture(&sizes)).file())?;
    }
    Ok(Ending::AsExpected)
}

/// What came out with a number of CPUs.
struct Size<'a> {
    bench: &'a Bench,
    workloads: Vec<OnWorkload<'a>>,
}

/// What came out of a workload.
struct OnWorkload<'a> {
    name: String,
    /// In the order of [`DESIGNS`].
    columns: Vec<PolicyOutcomes<'a>>,
    /// How much more work each does than the first.
    work: Vec<Option<(Difference, Mean)>>,
}

impl<'a> Size<'a> {
    fn new(bench: &'a Bench, finished: &Finished, policies: &'a [String]) -> Self {
        let on = |(run, columns): (&RunSpec, Vec<PolicyOutcomes<'a>>)| {
            let work = columns.iter().map(|column| policies::work(column, &columns[0])).collect();
            OnWorkload { name: run.point.workload.clone(), columns, work }
        };
        Self { bench, workloads: finished.settings(policies).into_iter().map(on).collect() }
    }

    /// The workloads of which a design has runs of its own.
    fn own(&self, design: usize) -> impl Iterator<Item = &OnWorkload<'a>> {
        self.workloads.iter().filter(move |on| on.runs_as(design).is_none())
    }

    /// What is known of the work of a design, with the name of each workload.
    fn works(&self, design: usize) -> impl Iterator<Item = (&str, Difference, Mean)> {
        self.own(design).filter_map(move |on| on.work[design].map(|(found, mean)| (&*on.name, found, mean)))
    }

    /// What wins where: a sentence for each design but the first, that of the largest gain before the others.
    fn sentences(&self) -> Vec<String> {
        let gain =
            |design: &usize| mean(&self.works(*design).map(|(.., mean)| ratio(mean.mean).ln()).collect::<Vec<_>>());
        let mut designs: Vec<_> = (1..DESIGNS.len()).filter(|&design| self.works(design).next().is_some()).collect();
        designs.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
        designs.into_iter().map(|design| self.sentence(design)).collect()
    }

    fn sentence(&self, design: usize) -> String {
        let found = |is_more: bool| {
            let of = self.works(design).filter(move |(_, found, _)| matches!(found, Difference::Found(_)));
            let mut of: Vec<_> = of.filter(|(.., mean)| (mean.mean > 0.0) == is_more).collect();
            of.sort_by(|(.., one), (.., other)| other.mean.abs().total_cmp(&one.mean.abs()));
            let most = of.first().map(|(name, _, mean)| format!(" (at most {}, {name})", change(*mean)));
            (of.len(), most.unwrap_or_default())
        };
        let ((more, most), (less, least)) = (found(true), found(false));
        let of = self.own(design).count();
        let unknown = of - self.works(design).count();
        let unknown = if unknown > 0 { format!("; of {unknown} it is not known") } else { String::new() };
        format!(
            "With {} {} does more work than {} in {more} of {of} workloads{most}, and less in {less}{least}{unknown}.",
            number::cpus(self.bench.cpus as u64),
            DESIGNS[design].policy,
            DESIGNS[0].policy,
        )
    }
}

/// Work by that of the first design.
fn ratio(change_pct: f64) -> f64 {
    1.0 + change_pct / 100.0
}

fn change(Mean { mean, half_width }: Mean) -> String {
    let half = half_width.map_or_else(String::new, |half| format!(" +-{half:.1}"));
    format!("{mean:+.1}{half} %")
}

const HEAD: [&str; 6] = ["workload, CPUs", "work", "sent", "needed", "held", "faults"];

impl OnWorkload<'_> {
    /// The policy whose run this design's is, if it is another one's.
    fn runs_as(&self, design: usize) -> Option<&'static str> {
        let Design { policy, .. } = DESIGNS[design];
        Some(DESIGNS[design].runs_as(&self.name)).filter(|other| *other != policy)
    }

    /// A row for each design.
    fn rows(&self, cpus: usize) -> Vec<Vec<String>> {
        let row = |(design, column): (usize, &PolicyOutcomes<'_>)| {
            if let Some(other) = self.runs_as(design) {
                let mut row = vec![String::new(); HEAD.len()];
                row[0] = format!("  {}", DESIGNS[design].policy);
                row[1] = format!("as {other}");
                return row;
            }
            let counted =
                |title| titled(title).map_or_else(String::new, |of| policies::mean_cell(of, &column.outcomes));
            let work = match self.work[design] {
                None => "not known".to_owned(),
                Some(_) if design == 0 => format!("{} /s", counted("score a second")),
                Some((Difference::Equal, _)) => "equal".to_owned(),
                Some((Difference::Found(_), mean)) => change(mean),
                Some((_, mean)) => format!("({})", change(mean)),
            };
            let title =
                if design == 0 { format!("{}, {cpus}", self.name) } else { format!("  {}", DESIGNS[design].policy) };
            let (sent, held) = (counted("flush interrupts sent"), counted("the most of them held at a time"));
            // Without the interval: its size says enough.
            let short = |cell: String| cell.split(" +-").next().unwrap_or_default().to_owned();
            let needed = column.outcomes.iter().map(|outcome| outcome.flushes.interrupts);
            let (needed, done) = needed.fold((0, 0), |(needed, done), each| (needed + each.needed, done + each.done));
            let needed =
                if done == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * needed as f64 / done as f64) };
            vec![title, work, sent, needed, short(held), self.faults(design)]
        };
        self.columns.iter().enumerate().map(row).collect()
    }

    /// Faults for each unit of work, beside those of the first design.
    fn faults(&self, design: usize) -> String {
        let each = |column: &PolicyOutcomes<'_>| {
            let sum = |of: &dyn Fn(&tlbkit_sim::RunOutcome) -> u64| column.outcomes.iter().map(of).sum::<u64>() as f64;
            sum(&|outcome| outcome.kernel.faults) / sum(&|outcome| outcome.score)
        };
        let [ours, theirs] = [design, 0].map(|at| each(&self.columns[at]));
        let is_some = ours.is_finite() && theirs > 0.0 && theirs.is_finite() && design > 0;
        if is_some { format!("{:+.1} %", 100.0 * (ours / theirs - 1.0)) } else { "-".to_owned() }
    }
}

fn say_text(sizes: &[Size<'_>]) {
    for sentence in sizes.iter().flat_map(Size::sentences) {
        say!("{}", wrapped(&sentence, 2));
    }
    say!();
    let rows: Vec<_> =
        sizes.iter().flat_map(|size| size.workloads.iter().flat_map(|on| on.rows(size.bench.cpus))).collect();
    say!("{}", fitting(&grid(&HEAD, &rows)));
    let base = DESIGNS[0].policy;
    for said in [
        format!(
            "work, and faults for each unit of work: against {base}; in parentheses: zero lies in the interval of 95 %"
        ),
        "sent: flush interrupts of a run; needed: of them, at once; held: the most pages in a grace period".to_owned(),
    ] {
        say!("{}", wrapped(&said, 2));
    }
    for size in sizes {
        say!("{}", size.bench.text());
    }
    for Design { policy, document } in DESIGNS {
        say!("{}", wrapped(&format!("{policy}: {document}"), 2));
    }
    say!("{}", policies::OWN_ERROR);
    for on in sizes.iter().flat_map(|size| &size.workloads) {
        policies::notes(&on.columns).iter().for_each(|note| say!("{}: {note}", on.name));
    }
}

/// A panel for each number of CPUs, a row for each workload, a mark for each design but the first.
fn picture(sizes: &[Size<'_>]) -> Panels {
    let marks = |on: &OnWorkload<'_>| {
        let mark = |work: Option<(Difference, Mean)>| {
            let (_, Mean { mean, half_width }) = work?;
            let half = half_width.unwrap_or_default();
            Some(Ratio { value: ratio(mean), ends: [mean - half, mean + half].map(ratio) })
        };
        (1..DESIGNS.len()).map(|design| mark(on.work[design].filter(|_| on.runs_as(design).is_none()))).collect()
    };
    let rows = sizes[0].workloads.iter().enumerate().map(|(at, on)| PanelRow {
        label: on.name.clone(),
        cells: sizes.iter().map(|size| marks(&size.workloads[at])).collect(),
    });
    Panels {
        title: format!("Work of each design, by that of {}", DESIGNS[0].policy),
        about: "For each workload and number of CPUs the work that each design does, divided by that of Linux, with \
                intervals of 95 %; where it is not known there is no mark."
            .to_owned(),
        axis: format!("work by that of {}", DESIGNS[0].policy),
        tones: DESIGNS[1..].iter().map(|design| design.policy.to_owned()).collect(),
        panels: sizes.iter().map(|size| Panel { title: number::cpus(size.bench.cpus as u64) }).collect(),
        rows: rows.collect(),
    }
}

//! Document 003: under page-table isolation, the user half page by page with INVPCID, or whole by the next CR3 write.
//!
//! The cycles of each size come from a sampler that flushes in the measured mix of sizes and nothing else; what the
//! choice costs overall comes from compiles of the same work under both methods. A compile here is a small part of the
//! document's: its seconds are scaled so that the mean with INVPCID is the published one.

use anyhow::{Context, Result};
use tlbkit::Accounting;
use tlbkit_machine::Noise;
use tlbkit_sim::observer::{Cause, FlushSize};
use tlbkit_sim::statistics::{mean, standard_deviation};
use tlbkit_sim::{Run, RunOutcome};

use super::reproduction::{Produced, Reproduction, each, execute_all};
use crate::output::number::fixed;
use crate::output::report::Table;
use crate::output::svg::{Axis, Chart, Curve, Draw, Ink, Plot, Point, Scale};
use crate::published::key::{Key, Measure, Side};
use crate::spec::workload;

const METHODS: [&str; 2] = ["invpcid", "cr3"];
const LABELS: [&str; 2] = ["INVPCID", "deferred CR3"];

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let mut produced = Produced::default();
    add_sizes(reproduction, &mut produced)?;
    add_compiles(reproduction, &mut produced)?;
    Ok(produced)
}

/// The two size tables, their figures and their plot.
fn add_sizes(reproduction: &Reproduction, produced: &mut Produced) -> Result<()> {
    let drawn = size_runs(reproduction, Sample::ByWeight { flushes: reproduction.number("flushes_sampled")? as u64 })?;
    // A size that is too rare to be drawn is taken from here.
    let each = size_runs(reproduction, Sample::EachSize { times: 4 })?;
    let mut curves = Vec::new();
    for (tone, method) in METHODS.into_iter().enumerate() {
        let published = reproduction.experiment.table(method)?;
        let mut ours = Vec::new();
        for row in &published.rows {
            let size = row[0] as u32;
            if let Some(cycles) = cycles(&drawn[tone].sizes, size).or_else(|| cycles(&each[tone].sizes, size)) {
                produced.figures.push(reproduction.figure(
                    Key::under(Measure::FlushCycles, tone).at(size.into()),
                    cycles,
                    &[],
                )?);
                ours.push(Point::new(row[0], cycles));
            }
        }
        if let Some(fixed) = fixed_part(&drawn[tone].sizes) {
            produced.figures.push(reproduction.figure(Key::under(Measure::FixedCycles, tone), fixed, &[])?);
        }
        let theirs = published.rows.iter().map(|row| Point::new(row[0], row[3])).collect();
        let curve = |ink, draw, what: &str, points| Curve {
            label: format!("{}, {what}", LABELS[tone]),
            ink,
            tone,
            draw,
            points,
        };
        curves.push(curve(Ink::Ours, Draw::Line, "ours", ours));
        curves.push(curve(Ink::Published, Draw::Points, "published", theirs));
        let title = format!("{}, as simulated", published.title);
        produced.tables.push(size_table(title, &drawn[tone].sizes));
    }
    produced.plots.push(Plot::Chart(Chart {
        title: "Cycles of a flush against its pages".into(),
        about: "Both methods on logarithmic axes: published points, our lines.".into(),
        x: Axis::new("pages of the flush", "", Scale::Log),
        y: Axis::new("mean time", "cycles", Scale::Log),
        curves,
    }));
    Ok(())
}

/// The cycles of a flush of no page, on the line through the rows of 1 and of 129 pages.
fn fixed_part(sizes: &[FlushSize]) -> Option<f64> {
    let (one, many) = (cycles(sizes, 1)?, cycles(sizes, 129)?);
    Some(one - (many - one) / 128.0)
}

/// Which flushes the sampler does.
enum Sample {
    /// `flushes` flushes, whose sizes are drawn by how often each was measured.
    ByWeight { flushes: u64 },
    /// Each size `times` times.
    EachSize { times: u64 },
}

impl Sample {
    /// The parameters of the workload for this.
    fn parameters(&self) -> Vec<String> {
        match self {
            Sample::ByWeight { flushes } => vec![format!("rounds={flushes}")],
            Sample::EachSize { times } => {
                let rounds = times * tlbkit_workloads::FLUSH_SIZES.len() as u64;
                vec![format!("each={times}"), format!("rounds={rounds}")]
            }
        }
    }
}

/// The sampler under both methods, counting as the document's tracepoints did. It has no noise: nothing of it falls
/// into a flush of the only CPU.
fn size_runs(reproduction: &Reproduction, sample: Sample) -> Result<Vec<RunOutcome>> {
    // The flushes are as far apart as in a compile, where they find the caches full of other things.
    let mut parameters = sample.parameters();
    parameters.push(format!("user_cycles={}", reproduction.number("user_cycles")?));
    let sampler = workload("flushsizes", &parameters)?;
    let run = |method: usize| {
        let mut run = reproduction.run(method, sampler)?;
        run.policy.history.accounting = Accounting::On;
        Ok(Run { cpus: 1, noise: Noise::Off, ..run })
    };
    execute_all(&(0..METHODS.len()).map(run).collect::<Result<Vec<_>>>()?)
}

fn cycles(sizes: &[FlushSize], pages: u32) -> Option<f64> {
    let row = sizes.iter().find(|row| row.pages == Some(pages) && row.flushes > 0)?;
    Some(row.cycles as f64 / row.flushes as f64)
}

/// The document's columns. Flushes of everything come first in the running sum and have no row, as there.
fn size_table(title: String, sizes: &[FlushSize]) -> Table {
    let all: u64 = sizes.iter().map(|row| row.flushes).sum();
    let percent = |flushes: u64| fixed(100.0 * flushes as f64 / all as f64, 2);
    let (mut seen, mut rows) = (0, Vec::new());
    for row in sizes {
        seen += row.flushes;
        let Some(pages) = row.pages else { continue };
        let cycles = row.cycles as f64 / row.flushes as f64;
        let each = cycles / f64::from(pages.max(1));
        let counts = [percent(row.flushes), percent(seen), fixed(cycles, 0), fixed(each, 0), row.flushes.to_string()];
        rows.push([pages.to_string()].into_iter().chain(counts).collect());
    }
    let head = ["pages", "%", "cumulative, %", "cycles", "cycles a page", "samples"].map(String::from).to_vec();
    Table { title, head, rows }
}

/// The timed compiles: their figures, and a table of all runs.
fn add_compiles(reproduction: &Reproduction, produced: &mut Produced) -> Result<()> {
    let runs = reproduction.number("runs")? as usize;
    let mut invpcid = compiles(reproduction, runs)?;
    let mut cr3 = invpcid.split_off(runs);
    let user = [&invpcid, &cr3].map(|outcomes| each(outcomes, user_cycles));
    let published = reproduction.published(Key::under(Measure::CompileMean, 0))?.context("no published user time")?;
    let seconds_per_cycle = published / mean(&user[0]);
    // A whole compile is many of ours, one after the other. Its time grows with their number, its deviation with the
    // square root of that.
    let part = invpcid[0].score as f64 / reproduction.number("flushes_of_a_compile")?;
    for (method, cycles) in user.iter().enumerate() {
        let figure =
            |measure, cycles: f64| reproduction.figure(Key::under(measure, method), cycles * seconds_per_cycle, &[]);
        produced.figures.push(figure(Measure::CompileMean, mean(cycles))?);
        produced.figures.push(figure(Measure::CompileSpread, standard_deviation(cycles) * part.sqrt())?);
    }
    let change = Side::Change { of: 1, over: 0 };
    let ratio = |of: fn(&RunOutcome) -> f64| {
        let seed_by_seed: Vec<_> = cr3.iter().zip(&invpcid).map(|(cr3, invpcid)| of(cr3) / of(invpcid)).collect();
        (sum(&cr3, of) / sum(&invpcid, of), seed_by_seed)
    };
    for (measure, of) in [(Measure::DtlbWalks, walks as fn(&RunOutcome) -> f64), (Measure::WalkerCycles, walk_cycles)] {
        let (ratio, seed_by_seed) = ratio(of);
        produced.figures.push(reproduction.figure(Key { side: change, ..Key::of(measure) }, ratio, &seed_by_seed)?);
    }
    for (measure, of) in [
        (Measure::UserTime, user_cycles as fn(&RunOutcome) -> f64),
        (Measure::SystemTime, system_cycles),
        (Measure::ElapsedTime, elapsed_cycles),
    ] {
        let (ratio, seed_by_seed) = ratio(of);
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        let samples: Vec<_> = seed_by_seed.into_iter().map(percent).collect();
        produced.figures.push(reproduction.figure(
            Key { side: change, ..Key::of(measure) },
            percent(ratio),
            &samples,
        )?);
    }
    produced.tables.push(timed(&invpcid, &cr3, seconds_per_cycle));
    let first = [invpcid.swap_remove(0), cr3.swap_remove(0)];
    produced.compared.push(reproduction.compare("kernel compile", first));
    Ok(())
}

/// `runs` compiles under each method. With one seed both methods do the same work.
fn compiles(reproduction: &Reproduction, runs: usize) -> Result<Vec<RunOutcome>> {
    let compile = reproduction.workload(&["rounds=1".to_owned()])?;
    let mut all = Vec::with_capacity(2 * runs);
    for method in 0..METHODS.len() {
        let run = reproduction.run(method, compile)?;
        all.extend(reproduction.seeds_of(runs as u64).map(|seed| Run { seed, ..run.clone() }));
    }
    execute_all(&all)
}

/// Cycles of user mode with the walks that it waits for: what `time` calls user.
fn user_cycles(outcome: &RunOutcome) -> f64 {
    (outcome.cycles(Cause::User) + outcome.cycles(Cause::WalkUser)) as f64
}

fn system_cycles(outcome: &RunOutcome) -> f64 {
    outcome.ledger.task.total() as f64 - user_cycles(outcome)
}

fn elapsed_cycles(outcome: &RunOutcome) -> f64 {
    outcome.elapsed_cycles as f64
}

fn walks(outcome: &RunOutcome) -> f64 {
    outcome.tlb.walks as f64
}

/// Cycles that programs wait for the page walker.
fn walk_cycles(outcome: &RunOutcome) -> f64 {
    outcome.cycles(Cause::WalkUser) as f64
}

fn sum(outcomes: &[RunOutcome], of: fn(&RunOutcome) -> f64) -> f64 {
    outcomes.iter().map(of).sum()
}

fn timed(invpcid: &[RunOutcome], cr3: &[RunOutcome], seconds_per_cycle: f64) -> Table {
    let cells = |outcome: &RunOutcome| {
        [user_cycles(outcome), system_cycles(outcome), outcome.elapsed_cycles as f64]
            .map(|cycles| format!("{:.2}", cycles * seconds_per_cycle))
    };
    let rows = invpcid.iter().zip(cr3).enumerate().map(|(index, (first, second))| {
        let numbers = cells(first).into_iter().chain(cells(second));
        [(index + 1).to_string()].into_iter().chain(numbers).collect()
    });
    let head = ["run", "user s, INVPCID", "system s", "elapsed s", "user s, CR3", "system s", "elapsed s"];
    Table {
        title: "Timed compiles, as simulated, scaled to the length of the document's".into(),
        head: head.map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_of_everything_count_but_have_no_row() {
        let row = |pages, flushes, cycles| FlushSize { pages, flushes, cycles };
        let sizes = [row(None, 1, 435), row(Some(1), 6, 6000), row(Some(4), 3, 6000)];
        let rows = size_table(String::new(), &sizes).rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>();
        assert_eq!(rows, ["1 60.00 70.00 1000 1000 6", "4 30.00 100.00 2000 500 3"]);
    }

    #[test]
    fn a_size_that_was_never_flushed_has_no_cycles() {
        let sizes = [FlushSize { pages: Some(2), flushes: 2, cycles: 3000 }];
        assert_eq!(cycles(&sizes, 2), Some(1500.0));
        assert_eq!(cycles(&sizes, 3), None);
    }
}

//! Document 004: threads that fill and free buffers, under three rules for flushing a range.
//!
//! The program draws no random numbers, so nothing would differ between two iterations but what it computes: each takes
//! its own user time of a record, evenly from the range that was measured elsewhere. The three policies share these.

use anyhow::Result;
use tlbkit_sim::Outcome;

use super::{Lab, Produced, execute_all, mean_and_deviation};
use crate::output::svg::{Axis, BarGroup, Bars, Chart, Curve, Draw, Ink, Plot, Point, Scale};

const POLICIES: [&str; 3] = ["vanilla", "altershift", "nowalk"];
const THREADS: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// The thread count whose outcomes are set side by side: one thread a core.
const COMPARED_THREADS: u64 = 4;

/// Mean and standard deviation of the records a second.
#[derive(Clone, Copy)]
struct Rate {
    mean: f64,
    deviation: f64,
}

pub(crate) fn produce(lab: &Lab) -> Result<Produced> {
    let mut outcomes = outcomes(lab)?;
    let rates: Vec<[Rate; 3]> = outcomes.iter().map(|row| std::array::from_fn(|policy| rate(&row[policy]))).collect();
    let mut produced = Produced::default();
    for (threads, row) in THREADS.iter().zip(&rates) {
        for (policy, rate) in POLICIES.iter().zip(row) {
            produced.figures.push(lab.figure(&format!("mean, threads {threads}, {policy}"), rate.mean)?);
            produced.figures.push(lab.figure(&format!("stddev, threads {threads}, {policy}"), rate.deviation)?);
        }
        for policy in [1, 2] {
            let quantity = format!("gain, threads {threads}, {}", POLICIES[policy]);
            produced.figures.push(lab.figure(&quantity, gain(row, policy))?);
        }
    }
    let walk_free: Vec<_> = rates.iter().map(|row| 100.0 * (row[2].mean / row[1].mean - 1.0)).collect();
    let walk_free = mean_and_deviation(&walk_free).0;
    produced.figures.push(lab.figure("nowalk over altershift, mean of all thread counts", walk_free)?);
    produced.plots = vec![curves(lab, &rates)?, gains(lab, &rates)];
    let row = outcomes.swap_remove(THREADS.iter().position(|&threads| threads == COMPARED_THREADS).unwrap_or(0));
    let first = row.into_iter().filter_map(|iterations| iterations.into_iter().next());
    let compared: Vec<_> = POLICIES.into_iter().zip(first).collect();
    produced.compared.push(lab.compare(&format!("ebizzy of 2013, {COMPARED_THREADS} threads"), &compared));
    produced.notes = NOTES.map(String::from).to_vec();
    Ok(produced)
}

const NOTES: [&str; 4] = [
    "Each figure of ours is the mean of 16 iterations of 10 simulated milliseconds; the document has 100, and the \
     program runs for seconds. Ours differ only in the user time of a record: their deviation is what that alone \
     explains.",
    "What is fitted: to 1 thread, allocating and zeroing a page; to 2 threads, what a contended line costs, as far as \
     its prior allows. The locks are those of Linux 3.13: one over the regions, one for each last-level table, and a \
     page is zeroed before its table is locked.",
    "Our rates grow with the threads and the document's do not: the page allocator's locks, the memory bus and two \
     threads on one core are not in the model. With 8 threads the gain is therefore too large.",
    "With the shift at two, 129 pages lie above the balance point, and the walk only precedes a flush page by \
     page: of all flushes only the first of each thread, of 128 pages, still walks. From there on altershift and \
     nowalk do the same work at other moments; the sign of a difference in the last digits means nothing, here or \
     in the document.",
];

/// All iterations by thread count and policy.
fn outcomes(lab: &Lab) -> Result<Vec<Vec<Vec<Outcome>>>> {
    let iterations = lab.number("iterations_simulated")? as u64;
    let limit_cycles = lab.milliseconds(lab.number("iteration_length")?);
    let mut runs = Vec::new();
    for threads in THREADS {
        for policy in POLICIES {
            for iteration in 0..iterations {
                let record_cycles = record_cycles(lab, iteration, iterations)?;
                // One chunk will do: the program never reads the others.
                let parameters =
                    [format!("threads={threads}"), format!("record_cycles={record_cycles}"), "chunks=1".into()];
                let mut run = lab.run(lab.policy(policy)?, lab.workload(&parameters)?);
                run.seed = iteration + 1;
                run.limit_cycles = Some(limit_cycles);
                runs.push(run);
            }
        }
    }
    let mut outcomes = execute_all(&runs)?.into_iter();
    let mut take = || outcomes.by_ref().take(iterations as usize).collect::<Vec<_>>();
    Ok(THREADS.iter().map(|_| POLICIES.iter().map(|_| take()).collect()).collect())
}

/// The user time of a record in this iteration: the middle of its share of the range.
fn record_cycles(lab: &Lab, iteration: u64, iterations: u64) -> Result<u64> {
    let (low, high) = (lab.number("record_least")?, lab.number("record_most")?);
    let record_us = low + (high - low) * (iteration as f64 + 0.5) / iterations as f64;
    Ok(lab.milliseconds(record_us / 1e3))
}

fn rate(iterations: &[Outcome]) -> Rate {
    let rates: Vec<_> = iterations.iter().map(|outcome| outcome.score_per_second).collect();
    let (mean, deviation) = mean_and_deviation(&rates);
    Rate { mean, deviation }
}

fn gain(row: &[Rate; 3], policy: usize) -> f64 {
    100.0 * (row[policy].mean / row[0].mean - 1.0)
}

fn curves(lab: &Lab, rates: &[[Rate; 3]]) -> Result<Plot> {
    let (means, deviations) = (lab.experiment.table("mean")?, lab.experiment.table("stddev")?);
    let mut curves = Vec::new();
    for (tone, id) in POLICIES.into_iter().enumerate() {
        let column = |table: &crate::experiment::PublishedTable| table.column(id).unwrap_or_default();
        let published = column(means).into_iter().zip(column(deviations));
        let ours = rates.iter().map(|row| (row[tone].mean, row[tone].deviation));
        let point = |(&threads, (y, spread)): (&u64, (f64, f64))| Point { x: threads as f64, y, spread: Some(spread) };
        let curve =
            |ink, what: &str, points| Curve { label: format!("{id}, {what}"), ink, tone, draw: Draw::Both, points };
        curves.push(curve(Ink::Published, "published", THREADS.iter().zip(published).map(point).collect()));
        curves.push(curve(Ink::Ours, "ours", THREADS.iter().zip(ours).map(point).collect()));
    }
    Ok(Plot::Chart(Chart {
        title: "ebizzy: records a second against threads".into(),
        about: "Three policies with standard deviations, published and ours.".into(),
        x: Axis::new("threads", "", Scale::Around),
        y: Axis::new("rate", "records/s", Scale::Around),
        curves,
    }))
}

fn gains(lab: &Lab, rates: &[[Rate; 3]]) -> Plot {
    let group = |(threads, row): (&u64, &[Rate; 3])| BarGroup {
        label: threads.to_string(),
        values: vec![lab.published(&format!("gain, threads {threads}, nowalk")), Some(gain(row, 2))],
    };
    Plot::Bars(Bars {
        title: "Gain of nowalk over vanilla".into(),
        about: "Published and our gain for one to eight threads.".into(),
        x: "threads".into(),
        y: Axis::new("gain", "%", Scale::FromZero),
        series: vec![(Ink::Published, "published".into()), (Ink::Ours, "ours".into())],
        groups: THREADS.iter().zip(rates).map(group).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;
    use tlbkit_sim::machine::Machine;

    #[test]
    fn iterations_cover_the_measured_range_evenly() {
        let experiment = Experiment::builtin("range").unwrap();
        let machine = Machine::builtin(&experiment.setup.machine).unwrap();
        let lab = Lab { experiment, machine };
        let cycles: Vec<_> = (0..2).map(|iteration| record_cycles(&lab, iteration, 2).unwrap()).collect();
        // A quarter and three quarters of the way from 22.6 to 24.3 us, at 3.4 GHz.
        assert_eq!(cycles, [78_285, 81_175]);
    }

    #[test]
    fn a_gain_is_over_vanilla() {
        let row = [100.0, 105.0, 110.0].map(|mean| Rate { mean, deviation: 0.0 });
        assert!((gain(&row, 1) - 5.0).abs() < 1e-9 && (gain(&row, 2) - 10.0).abs() < 1e-9);
    }
}

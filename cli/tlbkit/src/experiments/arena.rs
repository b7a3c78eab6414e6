//! A change of glibc in 2015: threads that fill and free buffers, whose arena is trimmed at each free, or kept.

use anyhow::{Context, Result};
use tlbkit_output::svg::{Axis, Chart, Curve, Draw, Ink, Plot, Point, Scale};
use tlbkit_sim::statistics::mean;

use super::iterations::IterationPlan;
use super::reproduction::{Produced, Reproduction, execute_all};
use crate::published::experiment::Value;

const ARENAS: [&str; 2] = ["trimmed", "kept"];
const THREADS: [u64; 4] = [1, 2, 4, 8];
const POLICY: &str = "linux";
/// Which of the thread counts has its outcomes set side by side: one thread a core.
const COMPARED: usize = 2;

pub(super) fn produce(reproduction: &Reproduction) -> Result<Produced> {
    let plan = IterationPlan::new(reproduction)?;
    let workloads = [reproduction.experiment.setup.workload.as_str(), second_workload(reproduction)?];
    let mut produced = Produced::default();
    let mut means = Vec::new();
    for (row, threads) in THREADS.into_iter().enumerate() {
        let mut first_runs = Vec::new();
        for (arena, workload) in ARENAS.into_iter().zip(workloads) {
            let runs = (0..plan.runs).map(|index| plan.run(reproduction, workload, threads, POLICY, index));
            let outcomes = execute_all(&runs.collect::<Result<Vec<_>>>()?)?;
            let rates: Vec<_> = outcomes.iter().map(|outcome| mean(&plan.rates(reproduction, outcome))).collect();
            produced.figures.push(reproduction.mean(&format!("rate, threads {threads}, {arena}"), &rates)?);
            means.push((arena, threads, mean(&rates)));
            first_runs.extend(outcomes.into_iter().next().map(|outcome| (arena, outcome)));
        }
        if row == COMPARED {
            produced.compared.push(reproduction.compare(&format!("ebizzy of 2015, {threads} threads"), &first_runs));
        }
    }
    produced.plots.push(plot(reproduction, &means)?);
    Ok(produced)
}

/// The workload whose arena is kept.
fn second_workload(reproduction: &Reproduction) -> Result<&str> {
    match reproduction.experiment.setup.parameters.get("workload_second").map(|parameter| &parameter.value) {
        Some(Value::Text(name)) => Ok(name),
        _ => None.context("the set-up names no second workload"),
    }
}

fn plot(reproduction: &Reproduction, means: &[(&str, u64, f64)]) -> Result<Plot> {
    let mut curves = Vec::new();
    for (tone, arena) in ARENAS.into_iter().enumerate() {
        let ours = means.iter().filter(|(of, ..)| *of == arena);
        let point = |threads: u64, y| Point { x: threads as f64, y, spread: None };
        let published = THREADS
            .into_iter()
            .map(|threads| Ok(point(threads, reproduction.published(&format!("rate, threads {threads}, {arena}"))?)));
        let curve =
            |ink, what: &str, points| Curve { label: format!("{arena}, {what}"), ink, tone, draw: Draw::Both, points };
        curves.push(curve(Ink::Published, "published", published.collect::<Result<_>>()?));
        curves.push(curve(Ink::Ours, "ours", ours.map(|&(_, threads, mean)| point(threads, mean)).collect()));
    }
    Ok(Plot::Chart(Chart {
        title: "ebizzy: records a second against threads, arena trimmed and kept".into(),
        about: "Two allocators on four cores of two threads each, published and ours.".into(),
        x: Axis::new("threads", "", Scale::Around),
        y: Axis::new("rate", "records/s", Scale::FromZero),
        curves,
    }))
}

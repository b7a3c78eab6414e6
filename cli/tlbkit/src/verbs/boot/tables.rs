//! What was measured, as tables: of counts always, of cycles only for what ran on hardware virtualization.

use anyhow::Result;
use serde_json::Value;
use tlbkit_host::Host;

use super::bench::{Bench, Cost};
use super::counts::{self, KernelRun};
use crate::output::listing::{self, SizeRow};
use crate::output::table::grid;

/// All that was measured, for a person.
pub(super) fn text(bench: &Bench) -> Result<String> {
    let mut text = if bench.costs.is_empty() {
        "PCIDs and INVPCID of one CPU are those of the kernel's monitor, a software TLB.\n\n".to_owned()
    } else {
        cycles(bench)?
    };
    let mut section = |title: &str, runs: &[KernelRun]| text += &format!("{title}:\n\n{}\n", counts::table(runs));
    section("Ping-pong, one CPU", &bench.pingpong);
    section("Each size of flush, one CPU", &bench.flushes);
    section("ebizzy", std::slice::from_ref(&bench.ebizzy));
    let [sent, received] = ["ipis_sent", "ipis_received"].map(|key| bench.timing.number(key));
    text += &format!("Interrupts sent one by one: {sent}, of them received: {received}\n");
    Ok(text)
}

/// Everything that is told in cycles.
fn cycles(bench: &Bench) -> Result<String> {
    let host = Host::ask()?;
    let mut text = format!("Cycles of the time-stamp counter, {:.0} MHz:\n\n", host.tsc_mhz);
    text += &costs(&bench.costs);
    text += &format!("\nA round of the ping-pong, two switches:\n\n{}", rounds(&bench.pingpong, host.tsc_mhz));
    for run in &bench.flushes {
        text += &format!("\nFlushes by size, {}:\n\n{}\n", run.name, flushes(run).join("\n"));
    }
    text +=
        &format!("\nA round of ebizzy on all CPUs:\n\n{}\n", rounds(std::slice::from_ref(&bench.ebizzy), host.tsc_mhz));
    Ok(text)
}

fn costs(costs: &[Cost]) -> String {
    let row = |Cost { name, sample }: &Cost| {
        let remark = if sample.is_noisy() { "too noisy" } else { "" };
        let numbers = [sample.median, sample.low, sample.high].map(|number| format!("{number:.0}"));
        [name.clone()].into_iter().chain(numbers).chain([remark.to_owned()]).collect()
    };
    let rows: Vec<Vec<_>> = costs.iter().map(row).collect();
    grid(&["cost", "median", "10 %", "90 %", "remark"], &rows)
}

/// Setting up and tearing down is part of it: some thousandths.
fn rounds(runs: &[KernelRun], tsc_mhz: f64) -> String {
    let row = |run: &KernelRun| {
        let cycles = run.number("cycles") as f64 / run.number("score").max(1) as f64;
        vec![
            run.name.clone(),
            run.number("score").to_string(),
            format!("{cycles:.0}"),
            format!("{:.3}", cycles / tsc_mhz),
        ]
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    grid(&["run", "rounds", "cycles", "us"], &rows)
}

/// The histogram in the columns of the published one; flushes of everything have no size.
fn flushes(run: &KernelRun) -> Vec<String> {
    let sizes: Vec<_> = run.result["sizes"].as_array().into_iter().flatten().map(size).collect();
    let all: u64 = sizes.iter().map(|&(_, samples, _)| samples).sum();
    let percent = |samples| 100.0 * samples as f64 / all.max(1) as f64;
    let mut before = 0;
    let mut lines = Vec::new();
    for (pages, samples, cycles) in sizes {
        before += samples;
        let mean = cycles as f64 / samples.max(1) as f64;
        let row = SizeRow {
            size_pages: pages as u32,
            percent: percent(samples),
            cumulative: percent(before),
            cycles: mean,
            samples,
        };
        lines.push(if pages == 0 { everything(&row) } else { listing::line(&row) });
    }
    lines
}

fn everything(row: &SizeRow) -> String {
    format!("everything: {:.2}% avg cycles: {:.0} samples: {}", row.percent, row.cycles, row.samples)
}

/// Pages, samples, cycles.
fn size(row: &Value) -> (u64, u64, u64) {
    let number = |key: &str| row[key].as_u64().unwrap_or(0);
    (number("pages"), number("samples"), number("cycles"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run() -> KernelRun {
        let sizes = json!([
            { "pages": 0, "samples": 1, "cycles": 700 },
            { "pages": 2, "samples": 3, "cycles": 1200 },
        ]);
        let result = json!({ "score": 4, "cycles": 8000, "sizes": sizes });
        KernelRun { name: "x".into(), result, seconds: 1.0 }
    }

    #[test]
    fn the_histogram_has_the_published_columns() {
        let expected = [
            "everything: 25.00% avg cycles: 700 samples: 1",
            "     2:  75.00% 100.00% avg cycles:   400 cycles/page:  200 samples: 3",
        ];
        assert_eq!(flushes(&run()), expected);
    }

    #[test]
    fn a_round_is_told_in_cycles_and_microseconds() {
        assert!(rounds(&[run()], 2000.0).contains("| x   |      4 |   2000 | 1.000 |"), "{}", rounds(&[run()], 2000.0));
    }
}

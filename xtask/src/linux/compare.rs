//! Counts the instructions and interrupts of the same work on both kernels.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::Path;

use super::boot::{Boot, CLOCK_SHIFT};
use super::build::{self, Kernel};
use super::guest::Guest;
use super::sizes;
use super::source;

/// CPUs of the machine that is counted.
const CPUS: u32 = 4;

/// How the rows are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Table,
    Json,
}

/// One row of one kernel.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) work: String,
    pub(super) operations: u64,
    instructions: u64,
    /// Instructions of one operation: half of the operations took no more. A timer tick in one of them does not count.
    median: u64,
    interrupts: u64,
}

impl Row {
    pub(super) fn of(line: &Value) -> Result<Self> {
        let number = |key: &str| line[key].as_u64().with_context(|| format!("a row without `{key}`: {line}"));
        let (pages, threads) = (number("pages")?, number("threads")?);
        let name = line["work"].as_str().context("a row without a name")?;
        let pages = if pages == 0 { String::new() } else { format!(", {pages} pages") };
        let threads = if threads == 1 { String::new() } else { format!(", {threads} threads") };
        Ok(Self {
            work: format!("{name}{pages}{threads}"),
            operations: number("operations")?,
            instructions: number("ticks")? >> CLOCK_SHIFT,
            median: number("median")? >> CLOCK_SHIFT,
            interrupts: number("interrupts")?,
        })
    }

    fn instructions_each(&self) -> u64 {
        self.instructions / self.operations
    }
}

/// Builds and boots both, and prints the table or the rows; false if a kernel did not do its work.
pub(super) fn run(root: &Path, guest: &Guest, form: Form) -> Result<bool> {
    let stock = rows(root, guest, Kernel::Stock)?;
    let ours = rows(root, guest, Kernel::Tlbkit)?;
    if stock.len() != ours.len() {
        bail!("{} rows of stock Linux and {} of ours", stock.len(), ours.len());
    }
    let (stock_sizes, our_sizes) = (sizes::of(root, Kernel::Stock)?, sizes::of(root, Kernel::Tlbkit)?);
    if form == Form::Json {
        print_sizes(Kernel::Stock, &stock_sizes);
        print_sizes(Kernel::Tlbkit, &our_sizes);
        print_json(Kernel::Stock, &stock);
        print_json(Kernel::Tlbkit, &ours);
        return Ok(true);
    }
    let (taken, added) = source::changed_lines(root)?;
    println!("linux: {taken} lines taken out of Linux and {added} added, outside the files of metal/linux");
    println!("| bytes | stock | tlbkit |");
    println!("|---|---|---|");
    for ((name, stock), (_, ours)) in stock_sizes.iter().zip(&our_sizes) {
        println!("| {name} | {stock} | {ours} |");
    }
    println!("| work, {CPUS} CPUs | stock: median | tlbkit | | stock: mean | tlbkit | | stock: interrupts | tlbkit |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for (stock, ours) in stock.iter().zip(&ours) {
        println!("{}", table_row(stock, ours));
    }
    Ok(true)
}

fn rows(root: &Path, guest: &Guest, kernel: Kernel) -> Result<Vec<Row>> {
    let ended = Boot::counted(CPUS, "", "rows").run(&build::kernel(root, kernel)?, guest)?;
    if !ended.is_well() {
        bail!("the measured programs did not end well on {}:\n{}", kernel.name(), ended.tail());
    }
    ended.lines("row").iter().map(Row::of).collect()
}

fn print_json(kernel: Kernel, rows: &[Row]) {
    for row in rows {
        let (work, operations) = (&row.work, row.operations);
        let (instructions, interrupts) = (row.instructions, row.interrupts);
        let kernel = kernel.name();
        println!(
            "{}",
            json!({"work": work, "cpus": CPUS, "kernel": kernel, "operations": operations,
            "instructions": instructions, "median_instructions": row.median, "interrupts": interrupts})
        );
    }
}

fn print_sizes(kernel: Kernel, sizes: &[(&str, u64)]) {
    for (name, bytes) in sizes {
        println!("{}", json!({"size": name, "kernel": kernel.name(), "bytes": bytes}));
    }
}

/// Instructions are those of one operation, interrupts those of all.
fn table_row(stock: &Row, ours: &Row) -> String {
    let change = |before: u64, after: u64| {
        format!("{before} | {after} | {:+.1} %", 100.0 * (after as f64 / before as f64 - 1.0))
    };
    let (median, mean) =
        (change(stock.median, ours.median), change(stock.instructions_each(), ours.instructions_each()));
    format!("| {} | {median} | {mean} | {} | {} |", stock.work, stock.interrupts, ours.interrupts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_and_compared_for_one_operation() -> Result<()> {
        let line =
            r#"{"work":"munmap","pages":33,"threads":2,"operations":10,"ticks":400,"median":32,"interrupts":10}"#;
        let line: Value = serde_json::from_str(line)?;
        let stock = Row::of(&line)?;
        assert_eq!((stock.work.as_str(), stock.instructions), ("munmap, 33 pages, 2 threads", 100));
        let ours = Row { instructions: 90, interrupts: 9, ..stock.clone() };
        assert_eq!(
            table_row(&stock, &ours),
            "| munmap, 33 pages, 2 threads | 8 | 8 | +0.0 % | 10 | 9 | -10.0 % | 10 | 9 |"
        );
        assert!(Row::of(&json!({"work": "munmap"})).is_err());
        Ok(())
    }
}

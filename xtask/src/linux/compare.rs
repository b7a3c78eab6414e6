//! Counts the instructions and interrupts of the same work on both kernels, in several boots of each: in one boot the
//! CPUs' turns and the timers have one phase, and another gives other figures.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::path::Path;

use super::boot::Boot;
use super::build::{self, Kernel};
use super::guest::Guest;
use super::row::{Counted, Row};
use super::sizes;
use super::source;
use super::spread::{RULE, Spread, Standing, verdict};
use super::waits::Plugin;

/// CPUs of the machine that is counted.
const CPUS: u32 = 4;

const KERNELS: [Kernel; 2] = [Kernel::Stock, Kernel::Tlbkit];

/// How the rows are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Table,
    Json,
}

/// What all boots of one kernel say of one row.
#[derive(Clone, Copy, Debug)]
struct Summary {
    instructions: Spread,
    waiting: Spread,
    interrupts: Spread,
}

impl Summary {
    fn of(row: usize, boots: &[Vec<Counted>]) -> Result<Self> {
        let spread = |figure: fn(&Counted) -> u64| {
            let figures = boots.iter().map(|rows| rows.get(row).map(figure)).collect::<Option<Vec<_>>>();
            figures.and_then(Spread::of).with_context(|| format!("not every boot has a row {row}"))
        };
        Ok(Self {
            instructions: spread(|of| of.instructions)?,
            waiting: spread(|of| of.waiting)?,
            interrupts: spread(|of| of.interrupts)?,
        })
    }
}

/// One row of both kernels.
#[derive(Debug)]
struct Compared {
    work: String,
    operations: usize,
    stock: Summary,
    ours: Summary,
}

impl Compared {
    fn standing(&self) -> Standing {
        Standing::of(self.stock.instructions, self.ours.instructions)
    }

    fn table_row(&self) -> String {
        let Self { work, stock, ours, .. } = self;
        let ratio = ours.instructions.median as f64 / stock.instructions.median as f64;
        let (mark, interrupts) = (self.standing().mark(), [stock.interrupts.median, ours.interrupts.median]);
        format!(
            "| {work} | {} | {} | {ratio:.3} | {mark} | {} | {} | {} | {} |",
            stock.instructions, ours.instructions, stock.waiting, ours.waiting, interrupts[0], interrupts[1]
        )
    }

    fn json(&self, kernel: Kernel, runs: u32) -> Value {
        let of = if kernel == Kernel::Stock { self.stock } else { self.ours };
        json!({"work": self.work, "cpus": CPUS, "kernel": kernel.name(), "operations": self.operations, "runs": runs,
            "instructions": of.instructions.json(), "waiting": of.waiting.json(), "interrupts": of.interrupts.json()})
    }
}

/// Builds both, boots each `runs` times in turns, and prints what came of it.
pub(super) fn run(root: &Path, guest: &Guest, runs: u32, form: Form) -> Result<bool> {
    let rows = compare(root, guest, runs)?;
    let verdict = verdict(rows.iter().map(Compared::standing));
    match form {
        Form::Table => {
            println!("{verdict} (boots of each kernel: {runs}). {RULE}\n");
            println!(
                "| work, {CPUS} CPUs | stock | tlbkit | ratio | | waits: stock | tlbkit | interrupts: stock | tlbkit |"
            );
            println!("|---|---|---|---|---|---|---|---|---|");
            rows.iter().for_each(|row| println!("{}", row.table_row()));
            print_sizes(root)?;
        }
        Form::Json => {
            println!("{}", json!({"verdict": verdict, "rule": RULE}));
            for kernel in KERNELS {
                rows.iter().for_each(|row| println!("{}", row.json(kernel, runs)));
                for (name, bytes) in sizes::of(root, kernel)? {
                    println!("{}", json!({"size": name, "kernel": kernel.name(), "bytes": bytes}));
                }
            }
        }
    }
    Ok(true)
}

fn compare(root: &Path, guest: &Guest, runs: u32) -> Result<Vec<Compared>> {
    let images = [build::kernel(root, Kernel::Stock)?, build::kernel(root, Kernel::Tlbkit)?];
    let plugin = Plugin::compile(root)?;
    let boot = Boot::counted(CPUS, "", "rows").with_plugin(&plugin);
    let mut boots: [Vec<Vec<Counted>>; 2] = Default::default();
    for run in 1..=runs {
        for ((kernel, image), boots) in KERNELS.iter().zip(&images).zip(&mut boots) {
            let ended = boot.run(image, guest)?;
            if !ended.is_well() {
                bail!("the measured programs did not end well on {}:\n{}", kernel.name(), ended.tail());
            }
            eprintln!("linux: boot {run} of {runs}, {}: {:.0} s", kernel.name(), ended.seconds);
            let mut waited = plugin.read()?.into_iter();
            let rows = ended.lines("row");
            boots.push(rows.iter().map(|row| Row::of(row)?.count(&mut waited)).collect::<Result<_>>()?);
            if waited.next().is_some() {
                bail!("the emulator's plugin saw more operations than the guest has measured");
            }
        }
    }
    compared(&boots[0], &boots[1])
}

/// The rows of all boots, by kernel.
fn compared(stock: &[Vec<Counted>], ours: &[Vec<Counted>]) -> Result<Vec<Compared>> {
    let rows = stock.first().context("no boot")?.iter().enumerate();
    rows.map(|(row, counted)| {
        let (work, operations) = (counted.work.clone(), counted.operations);
        Ok(Compared { work, operations, stock: Summary::of(row, stock)?, ours: Summary::of(row, ours)? })
    })
    .collect()
}

fn print_sizes(root: &Path) -> Result<()> {
    let (taken, added) = source::changed_lines(root)?;
    println!("\n{taken} lines taken out of Linux and {added} added, outside the files of metal/linux\n");
    println!("| bytes | stock | tlbkit |\n|---|---|---|");
    for ((name, stock), (_, ours)) in sizes::of(root, Kernel::Stock)?.iter().zip(&sizes::of(root, Kernel::Tlbkit)?) {
        println!("| {name} | {stock} | {ours} |");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(instructions: u64) -> Vec<Counted> {
        let work = "munmap, 1 page".to_owned();
        vec![Counted { work, operations: 200, instructions, waiting: instructions / 10, interrupts: 600 }]
    }

    #[test]
    fn a_row_has_the_medians_and_ranges_of_both_kernels() -> Result<()> {
        let rows = compared(&[boot(200), boot(180), boot(210)], &[boot(240), boot(100), boot(250)])?;
        assert_eq!(
            rows[0].table_row(),
            "| munmap, 1 page | 200 (180..210) | 240 (100..250) | 1.200 | above | 20 (18..21) | 24 (10..25) \
             | 600 | 600 |"
        );
        let ours = rows[0].json(Kernel::Tlbkit, 3);
        assert_eq!(ours["instructions"], json!({"median": 240, "min": 100, "max": 250}));
        assert_eq!(ours["waiting"]["max"], 25);
        Ok(())
    }

    #[test]
    fn a_boot_without_a_row_is_refused() {
        let error = compared(&[boot(1), boot(1)], &[boot(1), Vec::new()]).expect_err("the last has none");
        assert!(error.to_string().contains("row 0"), "{error}");
    }
}

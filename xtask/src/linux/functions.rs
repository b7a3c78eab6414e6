//! Which functions of the TLB code take the instructions of one row, on both kernels. The emulator executes one
//! instruction at a time and writes down the address of each that lies in these functions; what it wrote between two
//! looks at /proc/interrupts, with which the guest begins and ends its measured work, is counted.

use anyhow::{Context, Result, bail};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::boot::Boot;
use super::build::{self, Kernel};
use super::compare::Form;
use super::guest::Guest;
use super::sizes::OBJECTS;
use super::symbols::{self, Symbol};
use crate::setup;

/// CPUs of the machine that is counted, as for the rows.
const CPUS: u32 = 4;
/// What is counted if nobody says which row.
pub(super) const WORK: &str = "copy-on-write/8/2";
/// The guest's look at /proc/interrupts passes here once.
const MARK: &str = "arch_show_interrupts";
/// Where functions run on other CPUs, of which Linux's own TLB code is the most frequent user.
const CALLS: &str = "kernel/smp.o";
/// Parts of the names of functions elsewhere that tell other CPUs and are told.
const NAMES: [&str; 6] =
    ["sysvec_call_function", "sysvec_x86_platform_ipi", "send_IPI", "send_call_func", "llist_", "flush_tlb"];

/// Instructions by function, in all operations of the row.
#[derive(Debug)]
struct Counted {
    by_function: BTreeMap<String, u64>,
    operations: u64,
}

impl Counted {
    fn each(&self, name: &str) -> f64 {
        self.by_function.get(name).copied().unwrap_or(0) as f64 / self.operations as f64
    }

    fn sum(&self) -> f64 {
        self.by_function.values().sum::<u64>() as f64 / self.operations as f64
    }
}

/// Prints the table of one row, `name/pages/threads`.
pub(super) fn run(root: &Path, guest: &Guest, work: &str, form: Form) -> Result<bool> {
    let stock = count(root, guest, Kernel::Stock, work)?;
    let ours = count(root, guest, Kernel::Tlbkit, work)?;
    let mut names: Vec<&String> = stock.by_function.keys().chain(ours.by_function.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names.sort_by(|one, other| (stock.each(other) + ours.each(other)).total_cmp(&(stock.each(one) + ours.each(one))));
    if form == Form::Table {
        println!("| function, instructions in each operation of {work} | stock | tlbkit |");
        println!("|---|---|---|");
    }
    for name in names {
        print(form, work, name, stock.each(name), ours.each(name));
    }
    print(form, work, "sum", stock.sum(), ours.sum());
    Ok(true)
}

fn print(form: Form, work: &str, name: &str, stock: f64, ours: f64) {
    match form {
        Form::Table => println!("| `{name}` | {stock:.1} | {ours:.1} |"),
        Form::Json => println!("{}", json!({"work": work, "function": name, "stock": stock, "tlbkit": ours})),
    }
}

fn count(root: &Path, guest: &Guest, kernel: Kernel, work: &str) -> Result<Counted> {
    let image = build::kernel(root, kernel)?;
    let folder = build::folder(root, kernel);
    let functions = functions(&folder)?;
    let mark = functions.iter().find(|one| one.name == MARK).with_context(|| format!("Linux has no {MARK}"))?.begin;
    let log = setup::target_dir(root).join("linux/executed.log");
    let ranges: Vec<String> = functions.iter().map(|one| range(one, mark)).collect();
    let boot = Boot::counted(CPUS, "", &format!("rows {work}")).logged(&log, &ranges.join(","));
    let ended = boot.run(&image, guest)?;
    let rows = ended.lines("row");
    if !ended.is_well() || rows.len() != 1 {
        bail!("`linux functions {work}`: {} rows have this name, must be 1:\n{}", rows.len(), ended.tail());
    }
    let by_function = read(&functions, mark, BufReader::new(File::open(&log)?))?;
    fs::remove_file(&log)?;
    let operations = rows[0]["operations"].as_u64().context("a row without its number of operations")?;
    Ok(Counted { by_function, operations })
}

/// As the emulator takes it; of the mark, only its first instruction.
fn range(function: &Symbol, mark: u64) -> String {
    let end = if function.begin == mark { mark + 1 } else { function.end };
    format!("{:#x}+{:#x}", function.begin, end - function.begin)
}

/// Those of the TLB code, by address.
fn functions(folder: &Path) -> Result<Vec<Symbol>> {
    let mut wanted = Vec::new();
    for object in OBJECTS.iter().chain([&CALLS]).map(|name| folder.join(name)).filter(|file| file.is_file()) {
        wanted.extend(symbols::read(&object)?.into_iter().filter(|one| one.is_code).map(|one| one.name));
    }
    let is_wanted =
        |name: &String| name == MARK || wanted.contains(name) || NAMES.iter().any(|part| name.contains(part));
    let mut functions: Vec<Symbol> =
        symbols::read(&folder.join("vmlinux"))?.into_iter().filter(|one| one.is_code && is_wanted(&one.name)).collect();
    functions.sort_by_key(|one| one.begin);
    // Two names of one address.
    functions.dedup_by_key(|one| one.begin);
    Ok(functions)
}

/// Counts what was executed in the longest stretch between two marks: the work, and not the looks around it.
fn read(functions: &[Symbol], mark: u64, log: impl BufRead) -> Result<BTreeMap<String, u64>> {
    let (mut counts, mut longest) = (vec![0_u64; functions.len()], Vec::new());
    let mut marks = 0;
    for line in log.lines() {
        let Some(at) = address(&line?) else { continue };
        if at == mark {
            let finished = std::mem::replace(&mut counts, vec![0; functions.len()]);
            if marks > 0 && finished.iter().sum::<u64>() > longest.iter().sum() {
                longest = finished;
            }
            marks += 1;
        } else if let Some(index) = functions.partition_point(|one| one.begin <= at).checked_sub(1)
            && at < functions[index].end
        {
            counts[index] += 1;
        }
    }
    if longest.is_empty() {
        bail!("the emulator wrote down nothing between {marks} looks at /proc/interrupts");
    }
    let named = functions.iter().map(|one| one.name.clone()).zip(longest);
    Ok(named.filter(|(_, count)| *count > 0).collect())
}

/// `Trace 0: 0x7f54d8000100 [0000000000000000/ffffffff81000000/…]`.
fn address(line: &str) -> Option<u64> {
    let inside = line.strip_prefix("Trace ")?.split_once('[')?.1;
    u64::from_str_radix(inside.split('/').nth(1)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_two_marks_is_counted_by_function() -> Result<()> {
        let functions = ["10 4 T mark", "20 8 t flush", "30 8 T send"].map(|line| symbols::symbol(line).expect("code"));
        let line = |at: u64| format!("Trace 0: 0x7f [0000/{at:016x}/00/00] name\n");
        let log: String =
            [0x20, 0x20, 0x20, 0x20, 0x10, 0x10, 0x20, 0x24, 0x30, 0x50, 0x10, 0x20, 0x20].map(line).concat();
        let counts = read(&functions, 0x10, log.as_bytes())?;
        assert_eq!(counts, BTreeMap::from([("flush".to_owned(), 2), ("send".to_owned(), 1)]));
        assert!(read(&functions, 0x10, line(0x20).as_bytes()).is_err(), "without marks nothing can be said");
        assert_eq!(range(&functions[0], 0x10), "0x10+0x1");
        Ok(())
    }
}

//! What the TLB code itself takes of each row, on both kernels. The emulator lists each block of instructions of these
//! functions when it translates it, and says whenever it executes one; what it says between two looks at
//! /proc/interrupts, with which the guest begins and ends its measured work, is counted. All of it goes through a pipe.

use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::boot::{Boot, Ended};
use super::build::{self, Kernel};
use super::compare::Form;
use super::executed::{Reader, Stretch};
use super::guest::Guest;
use super::row::Row;
use super::sizes::OBJECTS;
use super::symbols::{self, Symbol};
use crate::setup::{self, tool};

/// CPUs of the machine that is counted, as for the rows.
const CPUS: u32 = 4;
/// The guest's look at /proc/interrupts passes here once.
const MARK: &str = "arch_show_interrupts";
/// Where functions run on other CPUs, of which Linux's own TLB code is the most frequent user.
const CALLS: &str = "kernel/smp.o";
/// Parts of the names of functions elsewhere that tell other CPUs and are told.
const NAMES: [&str; 6] =
    ["sysvec_call_function", "sysvec_x86_platform_ipi", "send_IPI", "send_call_func", "llist_", "flush_tlb"];
/// Parts of the names of functions that keep the lists of pages, of which the simulator is told: `[lists]` in
/// `sim/machines/software/`. Those of memory groups are there if the kernel is configured with them.
const LISTS: [&str; 9] = [
    "lru_add",
    "folio_batch_move_lru",
    "page_cache_release",
    "folios_put_refs",
    "lruvec",
    "mod_node_page_state",
    "mod_zone_page_state",
    "mem_cgroup_update_lru_size",
    "folio_mapping",
];

/// What a function is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// TLB code.
    Flush,
    /// Code that tells other CPUs, or is told by them.
    Tell,
    /// Code that keeps the LRU lists of pages: it is shown, and is in no sum.
    List,
}

/// Instructions of one function in one operation.
#[derive(Clone, PartialEq, Debug)]
struct Part {
    function: String,
    purpose: Purpose,
    instructions: f64,
}

/// One row of one kernel.
#[derive(Debug)]
struct Counted {
    work: String,
    parts: Vec<Part>,
}

impl Counted {
    fn each(&self, function: &str) -> f64 {
        self.parts.iter().find(|part| part.function == function).map_or(0.0, |part| part.instructions)
    }

    fn own(&self) -> f64 {
        self.sum(|purpose| purpose == Purpose::Flush)
    }

    fn all(&self) -> f64 {
        self.sum(|purpose| purpose != Purpose::List)
    }

    fn sum(&self, is_counted: fn(Purpose) -> bool) -> f64 {
        self.parts.iter().filter(|part| is_counted(part.purpose)).map(|part| part.instructions).sum()
    }
}

/// Prints the rows whose name has `work` in it, `name/pages/threads`, and the functions if that is one row.
pub(super) fn run(root: &Path, guest: &Guest, work: &str, form: Form) -> Result<bool> {
    let stock = count(root, guest, Kernel::Stock, work)?;
    let ours = count(root, guest, Kernel::Tlbkit, work)?;
    if stock.len() != ours.len() {
        bail!("`linux functions {work}`: {} rows of stock Linux and {} of ours", stock.len(), ours.len());
    }
    match (stock.as_slice(), ours.as_slice()) {
        ([stock], [ours]) => tell_functions(form, stock, ours),
        (stock, ours) => tell_rows(form, stock, ours),
    }
    Ok(true)
}

fn tell_functions(form: Form, stock: &Counted, ours: &Counted) {
    let work = &stock.work;
    let mut names: Vec<&String> = stock.parts.iter().chain(&ours.parts).map(|part| &part.function).collect();
    names.sort_unstable();
    names.dedup();
    names.sort_by(|one, other| (stock.each(other) + ours.each(other)).total_cmp(&(stock.each(one) + ours.each(one))));
    if form == Form::Table {
        println!("| function, instructions in each operation of {work} | stock | tlbkit |");
        println!("|---|---|---|");
    }
    let sums = [("TLB code", stock.own(), ours.own()), ("with what tells others", stock.all(), ours.all())];
    let functions = names.into_iter().map(|name| (name.as_str(), stock.each(name), ours.each(name)));
    for (name, stock, ours) in functions.chain(sums) {
        match form {
            Form::Table => println!("| `{name}` | {stock:.1} | {ours:.1} |"),
            Form::Json => println!("{}", json!({"work": work, "function": name, "stock": stock, "tlbkit": ours})),
        }
    }
}

fn tell_rows(form: Form, stock: &[Counted], ours: &[Counted]) {
    if form == Form::Table {
        println!("| work, {CPUS} CPUs | TLB code: stock | tlbkit | | with what tells others: stock | tlbkit | |");
        println!("|---|---|---|---|---|---|---|");
    }
    let rows = stock.iter().zip(ours);
    let rows = rows.map(|(stock, ours)| (stock.work.as_str(), [stock.own(), ours.own(), stock.all(), ours.all()]));
    let rows: Vec<(&str, [f64; 4])> = rows.collect();
    let sum = |column: usize| rows.iter().map(|(_, of)| of[column]).sum::<f64>();
    let sums = ("sum", [0, 1, 2, 3].map(sum));
    for (work, [own, our_own, all, our_all]) in rows.iter().chain([&sums]) {
        let (ratio, ratio_of_all) = (our_own / own, our_all / all);
        match form {
            Form::Table => println!(
                "| {work} | {own:.0} | {our_own:.0} | {ratio:.2} | {all:.0} | {our_all:.0} | {ratio_of_all:.2} |"
            ),
            Form::Json => println!(
                "{}",
                json!({"work": work, "cpus": CPUS, "tlb_code": {"stock": own, "tlbkit": our_own},
                    "with_telling_others": {"stock": all, "tlbkit": our_all}})
            ),
        }
    }
}

fn count(root: &Path, guest: &Guest, kernel: Kernel, work: &str) -> Result<Vec<Counted>> {
    let image = build::kernel(root, kernel)?;
    let (functions, purposes) = functions(&build::folder(root, kernel))?;
    let mark = functions.iter().find(|one| one.name == MARK).with_context(|| format!("Linux has no {MARK}"))?.begin;
    let pipe = setup::target_dir(root).join("linux/executed");
    let boot = Boot::counted(CPUS, "", &format!("rows {work}"));
    let ranges: Vec<String> = functions.iter().map(|one| range(one, mark)).collect();
    let boot = boot.logged(&pipe, &ranges.join(","));
    let (ended, stretches) = boot_and_read(&boot, &image, guest, &pipe, Reader::new(&functions, mark))?;
    let rows = ended.lines("row");
    // A look before each row, and one after it.
    if !ended.is_well() || rows.is_empty() || stretches.len() != 2 * rows.len() {
        let looks = stretches.len();
        bail!("`linux functions {work}`: {} rows and {looks} looks at interrupts:\n{}", rows.len(), ended.tail());
    }
    let of_rows = stretches.iter().skip(1).step_by(2);
    of_rows.zip(&rows).map(|(stretch, row)| Ok(counted(&functions, &purposes, stretch, &Row::of(row)?))).collect()
}

/// Boots, and reads at the same time what the emulator writes into the pipe.
fn boot_and_read(
    boot: &Boot,
    image: &Path,
    guest: &Guest,
    pipe: &Path,
    reader: Reader,
) -> Result<(Ended, Vec<Stretch>)> {
    _ = fs::remove_file(pipe);
    tool(Command::new("mkfifo").arg(pipe), Path::new("."))?;
    let (log, held) = ends(pipe)?;
    let log = BufReader::with_capacity(1 << 20, log);
    let both = thread::scope(|scope| {
        let reading = scope.spawn(|| reader.read(log));
        let ended = boot.run(image, guest);
        drop(held);
        let read = reading.join().unwrap_or_else(|_| bail!("reading what the emulator wrote ended by a panic"));
        Ok((ended?, read?))
    });
    fs::remove_file(pipe)?;
    both
}

/// Where the reader reads, and a writing end: the log ends when that and the emulator's are closed. When the reader
/// gives up, no other reading end is left, and the emulator cannot fill the pipe and stand.
fn ends(pipe: &Path) -> Result<(File, File)> {
    // Open for both, so that neither end waits for the other to be opened.
    let both = File::options().read(true).write(true).open(pipe)?;
    let ends = (File::open(pipe)?, File::options().write(true).open(pipe)?);
    drop(both);
    Ok(ends)
}

fn counted(functions: &[Symbol], purposes: &[Purpose], stretch: &Stretch, row: &Row) -> Counted {
    let parts = functions.iter().zip(purposes).zip(stretch).filter(|(_, count)| **count > 0);
    let parts = parts.map(|((function, &purpose), &count)| Part {
        function: function.name.clone(),
        purpose,
        instructions: count as f64 / row.operations() as f64,
    });
    Counted { work: row.work.clone(), parts: parts.collect() }
}

/// The range of a function as the emulator takes it. The range of the mark is its first instruction alone.
fn range(function: &Symbol, mark: u64) -> String {
    let end = if function.begin == mark { mark + 1 } else { function.end };
    format!("{:#x}+{:#x}", function.begin, end - function.begin)
}

/// The functions that are counted, by address, and the purpose of each.
fn functions(folder: &Path) -> Result<(Vec<Symbol>, Vec<Purpose>)> {
    let (mut own, mut calls) = (Vec::new(), Vec::new());
    for object in OBJECTS.iter().map(|name| folder.join(name)).filter(|file| file.is_file()) {
        own.extend(symbols::read(&object)?.into_iter().filter(|one| one.is_code).map(|one| one.name));
    }
    calls.extend(symbols::read(&folder.join(CALLS))?.into_iter().filter(|one| one.is_code).map(|one| one.name));
    let purpose = |name: &String| {
        let has_one_of = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        let tells = || name == MARK || calls.contains(name) || has_one_of(&NAMES);
        let of_name =
            [(own.contains(name), Purpose::Flush), (tells(), Purpose::Tell), (has_one_of(&LISTS), Purpose::List)];
        of_name.into_iter().find_map(|(is_so, purpose)| is_so.then_some(purpose))
    };
    let mut functions = symbols::read(&folder.join("vmlinux"))?;
    functions.retain(|one| one.is_code && purpose(&one.name).is_some());
    functions.retain(|one| one.begin < one.end);
    functions.sort_by_key(|one| one.begin);
    // Two names of one address.
    functions.dedup_by_key(|one| one.begin);
    let purposes = functions.iter().filter_map(|one| purpose(&one.name)).collect();
    Ok((functions, purposes))
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_emulator_whose_reader_has_given_up_cannot_write() -> Result<()> {
        let pipe = std::env::temp_dir().join(format!("tlbkit-executed-{}", std::process::id()));
        tool(Command::new("mkfifo").arg(&pipe), Path::new("."))?;
        let emulator = || File::options().write(true).open(&pipe);
        let (mut log, held) = ends(&pipe)?;
        emulator()?.write_all(b"one")?;
        drop(held);
        let mut read = String::new();
        log.read_to_string(&mut read)?;
        assert_eq!(read, "one", "and the log has an end");
        drop(log);
        let (log, _held) = ends(&pipe)?;
        let mut writing = emulator()?;
        drop(log);
        // A process that another test starts at this moment has a copy of every end, until it runs its program.
        let is_refused = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(10));
            writing.write_all(b"two").is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
        });
        fs::remove_file(&pipe)?;
        assert!(is_refused);
        Ok(())
    }

    #[test]
    fn what_tells_others_is_not_of_the_tlb_code() {
        let functions = ["10 4 T mark", "20 8 t flush", "30 8 T send", "40 8 T lru_add"];
        let functions = functions.map(|line| symbols::symbol(line).expect("code"));
        let purposes = [Purpose::Tell, Purpose::Flush, Purpose::Tell, Purpose::List];
        let row =
            json!({"work": "munmap", "pages": 1, "threads": 2, "warm": 0, "ticks": vec![8; 10], "interrupts": 10});
        let row = Row::of(&row).expect("it has all that a row has");
        let counted = counted(&functions, &purposes, &vec![0, 30, 5, 70], &row);
        assert_eq!((counted.own(), counted.all(), counted.each("send")), (3.0, 3.5, 0.5));
        assert_eq!((counted.parts.len(), counted.each("mark"), counted.each("lru_add")), (3, 0.0, 7.0));
        assert_eq!(range(&functions[0], 0x10), "0x10+0x1");
    }
}

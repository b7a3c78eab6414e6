//! What the TLB code itself takes of each row, on both kernels. The emulator lists each block of instructions of these
//! functions when it translates it, and says whenever it executes one; what it says between two looks at
//! /proc/interrupts, with which the guest begins and ends its measured work, is counted. All of it goes through a pipe.

use anyhow::{Context, Result, bail};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::thread;

use super::boot::{Boot, Ended};
use super::build::{self, Guest, Kernel};
use super::compare::{OBJECTS, Row};
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
pub(super) fn run(root: &Path, guest: &Guest, work: &str) -> Result<bool> {
    let stock = count(root, guest, Kernel::Stock, work)?;
    let ours = count(root, guest, Kernel::Tlbkit, work)?;
    match (stock.as_slice(), ours.as_slice()) {
        ([stock], [ours]) => tell_functions(stock, ours),
        (stock, ours) if stock.len() == ours.len() => tell_rows(stock, ours),
        _ => bail!("`linux functions {work}`: {} rows of stock Linux and {} of ours", stock.len(), ours.len()),
    }
    Ok(true)
}

fn tell_functions(stock: &Counted, ours: &Counted) {
    let mut names: Vec<&String> = stock.parts.iter().chain(&ours.parts).map(|part| &part.function).collect();
    names.sort_unstable();
    names.dedup();
    names.sort_by(|one, other| (stock.each(other) + ours.each(other)).total_cmp(&(stock.each(one) + ours.each(one))));
    println!("| function, instructions in each operation of {} | stock | tlbkit |\n|---|---|---|", stock.work);
    for name in names {
        println!("| `{name}` | {:.1} | {:.1} |", stock.each(name), ours.each(name));
    }
    println!("| TLB code | {:.1} | {:.1} |", stock.own(), ours.own());
    println!("| with what tells others | {:.1} | {:.1} |", stock.all(), ours.all());
}

fn tell_rows(stock: &[Counted], ours: &[Counted]) {
    println!("| work, {CPUS} CPUs | TLB code: stock | tlbkit | | with what tells others: stock | tlbkit | |");
    println!("|---|---|---|---|---|---|---|");
    let of = |(stock, ours): (&Counted, &Counted)| [stock.own(), ours.own(), stock.all(), ours.all()];
    let mut sums = [0.0; 4];
    let line = |work: &str, [own, our_own, all, our_all]: [f64; 4]| {
        let (ratio, ratio_of_all) = (our_own / own, our_all / all);
        println!("| {work} | {own:.0} | {our_own:.0} | {ratio:.2} | {all:.0} | {our_all:.0} | {ratio_of_all:.2} |");
    };
    for both in stock.iter().zip(ours) {
        line(&both.0.work, of(both));
        sums.iter_mut().zip(of(both)).for_each(|(sum, one)| *sum += one);
    }
    line("sum", sums);
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
        own.extend(symbols(&object)?.into_iter().filter(|one| one.is_code).map(|one| one.name));
    }
    calls.extend(symbols(&folder.join(CALLS))?.into_iter().filter(|one| one.is_code).map(|one| one.name));
    let purpose = |name: &String| {
        let has_one_of = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        let tells = || name == MARK || calls.contains(name) || has_one_of(&NAMES);
        let of_name =
            [(own.contains(name), Purpose::Flush), (tells(), Purpose::Tell), (has_one_of(&LISTS), Purpose::List)];
        of_name.into_iter().find_map(|(is_so, purpose)| is_so.then_some(purpose))
    };
    let mut functions = symbols(&folder.join("vmlinux"))?;
    functions.retain(|one| one.is_code && purpose(&one.name).is_some());
    functions.retain(|one| one.begin < one.end);
    functions.sort_by_key(|one| one.begin);
    // Two names of one address.
    functions.dedup_by_key(|one| one.begin);
    let purposes = functions.iter().filter_map(|one| purpose(&one.name)).collect();
    Ok((functions, purposes))
}

/// Instructions by function, in the order of the functions, from one mark to the next.
pub(super) type Stretch = Vec<u64>;

/// A block as the emulator finds it again: where it begins, and what it was translated for. The same code is translated
/// anew, and shorter, where the clock wants to stop within it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Block {
    begin: u64,
    text: String,
}

impl Block {
    /// `Trace 0: 0x7f54d8000100 [0000000000000000/ffffffff81000000/0000c0b0/ff020000] name`.
    fn of(line: &str) -> Option<Self> {
        let text = line.strip_prefix("Trace ")?.split_once('[')?.1.split_once(']')?.0;
        let begin = u64::from_str_radix(text.split('/').nth(1)?, 16).ok()?;
        Some(Self { begin, text: text.to_owned() })
    }
}

/// Reads what the emulator writes, and counts.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    /// By address.
    functions: &'a [Symbol],
    mark: u64,
    /// Instructions of each block, and the index of its function.
    known: HashMap<Block, (u64, usize)>,
    /// Instructions of the listing that was read last, until its block is executed.
    listed: Option<u64>,
    now: Stretch,
    finished: Vec<Stretch>,
}

impl<'a> Reader<'a> {
    /// `functions` must be in the order of their addresses.
    pub(super) fn new(functions: &'a [Symbol], mark: u64) -> Self {
        let now = vec![0; functions.len()];
        Self { functions, mark, known: HashMap::new(), listed: None, now, finished: Vec::new() }
    }

    /// All stretches that a mark ends: what was executed before the first mark is the first of them.
    pub(super) fn read(mut self, log: impl BufRead) -> Result<Vec<Stretch>> {
        for line in log.split(b'\n') {
            let line = line?;
            self.take(&String::from_utf8_lossy(&line))?;
        }
        Ok(self.finished)
    }

    fn take(&mut self, line: &str) -> Result<()> {
        if line.starts_with("IN:") {
            self.listed = Some(0);
        } else if let Some(count) = self.listed.as_mut().filter(|_| line.starts_with("0x")) {
            *count += 1;
        } else if let Some(block) = Block::of(line) {
            self.execute(block)?;
        }
        Ok(())
    }

    fn execute(&mut self, block: Block) -> Result<()> {
        if block.begin == self.mark {
            self.listed = None;
            let finished = std::mem::replace(&mut self.now, vec![0; self.functions.len()]);
            self.finished.push(finished);
            return Ok(());
        }
        if let Some(count) = self.listed.take() {
            let Some(index) = self.function(block.begin) else { return Ok(()) };
            self.known.insert(block.clone(), (count, index));
        }
        match self.known.get(&block) {
            Some(&(count, index)) => self.now[index] += count,
            None if self.function(block.begin).is_none() => {}
            None => bail!("the emulator executed a block that it had not listed: [{}]", block.text),
        }
        Ok(())
    }

    fn function(&self, at: u64) -> Option<usize> {
        let index = self.functions.partition_point(|one| one.begin <= at).checked_sub(1)?;
        (at < self.functions[index].end).then_some(index)
    }
}

/// A name and the bytes that it stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) is_code: bool,
}

/// All of an object or a kernel.
pub(super) fn symbols(file: &Path) -> Result<Vec<Symbol>> {
    let output = Command::new("nm").arg("-S").arg(file).output().context("running nm")?;
    if !output.status.success() {
        bail!("nm {}: {}", file.display(), output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(symbol).collect())
}

/// `ffffffff81000000 0000000000000010 T name`; a mark in the text has no size, and ends where it begins.
pub(super) fn symbol(line: &str) -> Option<Symbol> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (begin, bytes, kind, name) = match words[..] {
        [begin, bytes, kind, name] => (begin, bytes, kind, name),
        [begin, kind, name] if begin != "U" => (begin, "0", kind, name),
        _ => return None,
    };
    let (begin, bytes) = (u64::from_str_radix(begin, 16).ok()?, u64::from_str_radix(bytes, 16).ok()?);
    Some(Symbol { name: name.to_owned(), begin, end: begin + bytes, is_code: matches!(kind, "t" | "T" | "w" | "W") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::time::Duration;

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
        let functions = functions.map(|line| symbol(line).expect("code"));
        let purposes = [Purpose::Tell, Purpose::Flush, Purpose::Tell, Purpose::List];
        let row =
            json!({"work": "munmap", "pages": 1, "threads": 2, "warm": 0, "ticks": vec![8; 10], "interrupts": 10});
        let row = Row::of(&row).expect("it has all that a row has");
        let counted = counted(&functions, &purposes, &vec![0, 30, 5, 70], &row);
        assert_eq!((counted.own(), counted.all(), counted.each("send")), (3.0, 3.5, 0.5));
        assert_eq!((counted.parts.len(), counted.each("mark"), counted.each("lru_add")), (3, 0.0, 7.0));
        assert_eq!(range(&functions[0], 0x10), "0x10+0x1");
    }

    fn functions() -> Vec<Symbol> {
        ["10 4 T mark", "20 8 t flush", "30 8 T send"].map(|line| symbol(line).expect("code")).to_vec()
    }

    fn listed(at: u64, count: u64) -> String {
        let line = |index: u64| format!("0x{:016x}:  90   nop\n", at + index);
        format!("----------------\nIN: name\n{}\n", (0..count).map(line).collect::<String>())
    }

    fn executed(at: u64, flags: u32) -> String {
        format!("Trace 0: 0x7f [0000/{at:016x}/00/{flags:x}] name\n")
    }

    #[test]
    fn a_block_counts_with_its_instructions_between_its_marks() -> Result<()> {
        let log = [
            listed(0x10, 4) + &executed(0x10, 0),
            listed(0x20, 3) + &executed(0x20, 0) + &executed(0x20, 0),
            // The clock stops within it: the same place, and one instruction.
            listed(0x20, 1) + &executed(0x20, 1) + &executed(0x20, 0),
            listed(0x34, 2) + &executed(0x34, 0) + &executed(0x10, 0),
            executed(0x20, 0) + &executed(0x10, 0),
        ];
        let stretches = Reader::new(&functions(), 0x10).read(log.concat().as_bytes())?;
        assert_eq!(stretches, [[0, 0, 0], [0, 10, 2], [0, 3, 0]]);
        Ok(())
    }

    #[test]
    fn a_block_without_a_listing_is_refused() {
        let read = |log: &str| Reader::new(&functions(), 0x10).read(log.as_bytes());
        let error = read(&executed(0x20, 0)).map(|_| ()).expect_err("how long it is cannot be known");
        assert!(error.to_string().contains("had not listed"), "{error}");
        assert!(read(&executed(0x50, 0)).is_ok(), "it lies in no function that is counted");
    }

    #[test]
    fn a_symbol_has_a_place_and_often_a_size() {
        let flush = symbol("ffffffff81000010 0000000000000020 t flush").expect("a function");
        assert_eq!((flush.begin, flush.end, flush.is_code), (0xffff_ffff_8100_0010, 0xffff_ffff_8100_0030, true));
        let mark = symbol("ffffffff82000000 D __per_cpu_start").expect("a mark");
        assert_eq!((mark.begin, mark.end, mark.is_code), (0xffff_ffff_8200_0000, 0xffff_ffff_8200_0000, false));
        assert_eq!(symbol("                 U memcpy"), None);
    }
}

//! Counts the instructions and interrupts of the same work on both kernels, in several boots of each: in one boot the
//! CPUs' turns and the timers have one phase, and another gives other figures.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::boot::{Boot, CLOCK_SHIFT};
use super::build::{self, Guest, Kernel};
use super::functions::symbols;
use crate::setup::{self, tool};

/// CPUs of the machine that is counted.
const CPUS: u32 = 4;

/// Builds both, boots each `runs` times in turns, and prints what came of it.
pub(super) fn run(root: &Path, guest: &Guest, runs: u32) -> Result<bool> {
    let images = [build::kernel(root, Kernel::Stock)?, build::kernel(root, Kernel::Tlbkit)?];
    let plugin = Plugin::compile(root)?;
    let boot = Boot::counted(CPUS, "", "rows").with_plugin(&plugin);
    let mut boots: [Vec<Vec<Counted>>; 2] = Default::default();
    for run in 1..=runs {
        for (image, boots) in images.iter().zip(&mut boots) {
            let ended = boot.run(image, guest)?;
            ensure!(
                ended.is_well(),
                "the measured programs did not end well on {}:\n{}",
                image.display(),
                ended.tail()
            );
            eprintln!("linux: boot {run} of {runs}, {}: {:.0} s", image.display(), ended.seconds);
            let mut waited = plugin.read()?.into_iter();
            let rows = ended.lines("row");
            boots.push(rows.iter().map(|row| Row::of(row)?.count(&mut waited)).collect::<Result<_>>()?);
            ensure!(waited.next().is_none(), "the emulator's plugin saw more operations than the guest has measured");
        }
    }
    println!("{}", table(&boots[0], &boots[1])?);
    let (taken, added) = build::changed_lines(root)?;
    println!("\n{taken} lines taken out of Linux and {added} added, outside the files of metal/linux\n");
    println!("| bytes | stock | tlbkit |\n|---|---|---|");
    for ((name, stock), (_, ours)) in sizes(root, Kernel::Stock)?.iter().zip(&sizes(root, Kernel::Tlbkit)?) {
        println!("| {name} | {stock} | {ours} |");
    }
    Ok(true)
}

/// What the boots of both kernels say, a line for each row: a row is above if our median exceeds each boot of stock.
fn table(stock: &[Vec<Counted>], ours: &[Vec<Counted>]) -> Result<String> {
    let (mut lines, mut below, mut above) = (String::new(), 0, 0);
    let rows = stock.first().context("no boot")?;
    for (row, counted) in rows.iter().enumerate() {
        let spread = |boots: &[Vec<Counted>], figure: fn(&Counted) -> u64| {
            let figures = boots.iter().map(|rows| rows.get(row).map(figure)).collect::<Option<Vec<_>>>();
            figures.and_then(Spread::of).with_context(|| format!("not every boot has a row {row}"))
        };
        let both = |figure| Ok::<_, anyhow::Error>((spread(stock, figure)?, spread(ours, figure)?));
        let (before, after) = both(|of| of.instructions)?;
        let (waited, waits) = both(|of| of.waiting)?;
        let (interrupted, interrupts) = both(|of| of.interrupts)?;
        let is_above = after.median > before.max;
        below += usize::from(after.median <= before.median);
        above += usize::from(is_above);
        lines += &format!(
            "| {} | {before} | {after} | {:.3} | {} | {waited} | {waits} | {} | {} |\n",
            counted.work,
            after.median as f64 / before.median as f64,
            if is_above { "above" } else { "" },
            interrupted.median,
            interrupts.median
        );
    }
    Ok(format!(
        "{below} of {} rows at or below stock, {above} above its range (boots of each kernel: {}). A row is above if \
         tlbkit's median exceeds each boot of stock.\n\n\
         | work, {CPUS} CPUs | stock | tlbkit | ratio | | waits: stock | tlbkit | interrupts: stock | tlbkit |\n\
         |---|---|---|---|---|---|---|---|---|\n{}",
        rows.len(),
        stock.len(),
        lines.trim_end()
    ))
}

/// The median of some figures and the range in which they lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Spread {
    median: u64,
    min: u64,
    max: u64,
}

impl Spread {
    /// Nothing, if there are no figures. Of an even number of them the median is the upper of the two in the middle.
    fn of(figures: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut sorted: Vec<u64> = figures.into_iter().collect();
        sorted.sort_unstable();
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Self { median: sorted[sorted.len() / 2], min, max })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.median)?;
        if self.min == self.max { Ok(()) } else { write!(f, " ({}..{})", self.min, self.max) }
    }
}

/// One row of one boot, as the guest writes it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) work: String,
    /// Instructions that all CPUs executed in each operation.
    executed: Vec<u64>,
    /// Operations before these, which are not counted.
    warm: usize,
    interrupts: u64,
}

/// What a boot says of one row: instructions of one operation; waiting, in instructions, and interrupts of all.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Counted {
    work: String,
    instructions: u64,
    waiting: u64,
    interrupts: u64,
}

impl Row {
    pub(super) fn of(line: &Value) -> Result<Self> {
        let number = |key: &str| line[key].as_u64().with_context(|| format!("a row without `{key}`: {line}"));
        let (pages, threads) = (number("pages")?, number("threads")?);
        let name = line["work"].as_str().context("a row without a name")?;
        let pages = match pages {
            0 => String::new(),
            1 => ", 1 page".to_owned(),
            pages => format!(", {pages} pages"),
        };
        let threads = if threads == 1 { String::new() } else { format!(", {threads} threads") };
        let ticks = line["ticks"].as_array().filter(|ticks| !ticks.is_empty());
        let ticks = ticks.with_context(|| format!("a row without operations: {line}"))?.iter();
        Ok(Self {
            work: format!("{name}{pages}{threads}"),
            executed: ticks.filter_map(Value::as_u64).map(|ticks| ticks >> CLOCK_SHIFT).collect(),
            warm: number("warm")? as usize,
            interrupts: number("interrupts")?,
        })
    }

    pub(super) fn operations(&self) -> usize {
        self.executed.len()
    }

    /// Takes what was waited in the operations of this row off the front of `waited`. Instructions are the median of
    /// the operations: a tick of the timer in one of them takes thousands and does not count.
    fn count(&self, waited: &mut impl Iterator<Item = Waited>) -> Result<Counted> {
        let waited: Vec<Waited> = waited.skip(self.warm).take(self.operations()).collect();
        let count = waited.len();
        ensure!(
            count == self.operations(),
            "{}: {} operations, and the waits of {count}",
            self.work,
            self.operations()
        );
        let worked = self.executed.iter().zip(&waited).map(|(executed, waited)| {
            let worked = executed.checked_sub(waited.in_kernel + waited.in_program);
            worked.with_context(|| format!("{}: {executed} instructions, {waited:?} among them", self.work))
        });
        let worked = Spread::of(worked.collect::<Result<Vec<_>>>()?).context("no operations")?;
        let waiting = waited.iter().map(|waited| waited.in_kernel).sum();
        Ok(Counted { work: self.work.clone(), instructions: worked.median, waiting, interrupts: self.interrupts })
    }
}

/// The plugin with which the emulator counts instructions that CPUs execute while they wait, and the file that it
/// writes into.
#[derive(Debug)]
pub(super) struct Plugin {
    library: PathBuf,
    lines: PathBuf,
}

/// Instructions of all CPUs in one operation that are no work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waited {
    /// In the kernel, until another CPU has answered or unlocked something.
    in_kernel: u64,
    /// In the guest's program: its threads that only run beside the one that works.
    in_program: u64,
}

impl Plugin {
    pub(super) fn compile(root: &Path) -> Result<Self> {
        let folder = setup::target_dir(root).join("linux/guest");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let library = folder.join("waits.so");
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]);
        tool(gcc.arg("metal/linux/waits.c").arg("-o").arg(&library), root)?;
        Ok(Self { library, lines: folder.join("waits.txt") })
    }

    /// The emulator's options that load it.
    pub(super) fn options(&self) -> [String; 2] {
        ["-plugin".to_owned(), format!("file={},to={}", self.library.display(), self.lines.display())]
    }

    /// What it wrote in the last boot: the operations one after the other.
    fn read(&self) -> Result<Vec<Waited>> {
        let text = fs::read_to_string(&self.lines).with_context(|| format!("reading {}", self.lines.display()))?;
        text.lines().map(waited).collect()
    }
}

/// `12 345`.
fn waited(line: &str) -> Result<Waited> {
    let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[in_kernel, in_program]) => Ok(Waited { in_kernel, in_program }),
        _ => bail!("the emulator's plugin wrote `{line}`"),
    }
}

/// The objects of the TLB code; a kernel may lack some.
pub(super) const OBJECTS: [&str; 4] =
    ["arch/x86/mm/tlb.o", "arch/x86/mm/tlb_hardware.o", "arch/x86/mm/tlb_flush.o", "arch/x86/mm/tlbkit.o"];

/// What a kernel takes of memory, read from its files: each size by its name, in bytes.
fn sizes(root: &Path, kernel: Kernel) -> Result<Vec<(&'static str, u64)>> {
    let folder = build::folder(root, kernel);
    let all = symbols(&folder.join("vmlinux"))?;
    let mut tlb_code = 0;
    for object in OBJECTS.iter().map(|name| folder.join(name)).filter(|file| file.is_file()) {
        tlb_code += symbols(&object)?.iter().filter(|one| one.is_code).map(|one| one.end - one.begin).sum::<u64>();
    }
    let find = |name: &str| {
        let found = all.iter().find(|one| one.name == name);
        found.with_context(|| format!("the kernel has no symbol {name}"))
    };
    let between = |begin: &str, end: &str| Ok::<_, anyhow::Error>(find(end)?.begin - find(begin)?.begin);
    let of_init = find("init_mm")?;
    Ok(vec![
        ("an address space (`mm_struct`)", of_init.end - of_init.begin),
        ("for each CPU (the kernel's section)", between("__per_cpu_start", "__per_cpu_end")?),
        ("code of the kernel", between("_stext", "_etext")?),
        ("code of the TLB objects", tlb_code),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn boot(instructions: u64) -> Vec<Counted> {
        let work = "munmap, 1 page".to_owned();
        vec![Counted { work, instructions, waiting: instructions / 10, interrupts: 600 }]
    }

    #[test]
    fn a_row_has_the_medians_and_ranges_of_both_kernels() -> Result<()> {
        let text = table(&[boot(200), boot(180), boot(210)], &[boot(240), boot(100), boot(250)])?;
        assert!(
            text.starts_with("0 of 1 rows at or below stock, 1 above its range (boots of each kernel: 3)"),
            "{text}"
        );
        let row = "| munmap, 1 page | 200 (180..210) | 240 (100..250) | 1.200 | above | 20 (18..21) | 24 (10..25) \
                   | 600 | 600 |";
        assert!(text.ends_with(row), "{text}");
        let within = table(&[boot(200), boot(180), boot(210)], &[boot(210), boot(210), boot(300)])?;
        assert!(
            within.contains(" 1.050 |  | ") && within.contains(", 0 above"),
            "above all boots of stock alone: {within}"
        );
        let error = table(&[boot(1), boot(1)], &[boot(1), Vec::new()]).expect_err("the last has no row");
        assert!(error.to_string().contains("row 0"), "{error}");
        Ok(())
    }

    #[test]
    fn a_row_is_counted_without_its_waits_and_what_came_before_it() -> Result<()> {
        let line = json!({"work": "munmap", "pages": 33, "threads": 2, "warm": 1, "interrupts": 10,
            "ticks": [400, 440, 40000]});
        let row = Row::of(&line)?;
        let waited = |in_kernel| Waited { in_kernel, in_program: 5 };
        let mut all = [waited(90), waited(20), waited(30), waited(7), waited(1)].into_iter();
        let counted = row.count(&mut all)?;
        assert_eq!((counted.work.as_str(), row.operations()), ("munmap, 33 pages, 2 threads", 3));
        // 100 - 25, 110 - 35 and 10,000 - 12.
        assert_eq!((counted.instructions, counted.waiting, counted.interrupts), (75, 57, 10));
        assert_eq!(all.count(), 1, "the next row's");
        Ok(())
    }

    #[test]
    fn waits_that_do_not_belong_to_the_row_are_refused() -> Result<()> {
        let row = json!({"work": "fork", "pages": 0, "threads": 1, "warm": 0, "interrupts": 0, "ticks": [400]});
        let row = Row::of(&row)?;
        let count = |waited: Option<Waited>| row.count(&mut waited.into_iter()).map_err(|error| error.to_string());
        assert!(count(None).is_err_and(|error| error.contains("the waits of 0")));
        assert!(count(Some(waited("60 41")?)).is_err_and(|error| error.contains("100 instructions")));
        assert!(waited("12").is_err() && waited("12 x").is_err() && waited("1 2 3").is_err());
        Ok(())
    }
}

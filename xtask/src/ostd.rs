//! `cargo xtask ostd`: a kernel on Asterinas' OSTD, from the registry, with its own TLB code and with tlbkit in its
//! place, side by side: value checks on both, OSTD's own tests, and instructions and interrupts.
//!
//! OSTD is fetched by cargo and laid aside under cargo's folder, where `metal/ostd/edit.sh` changes it. Nothing of it
//! is in this repository.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tlbkit_boot::{Ended, Machine, PACKAGE, PROGRAM, TARGET};

use crate::qemu::{BOCHS, LOG, emulate};
use crate::setup::{self, Need, lack, output, tool};
use crate::workshop::copy_folder;

const FOLDER: &str = "metal/ostd";
const NAME: &str = "tlbkit-ostd";
/// What has the linker script, which lies in the registry's folder beside OSTD.
const TOOL: &str = "cargo-osdk-0.18.0";
const NEEDS: [Need; 3] = [Need::Program(PROGRAM, PACKAGE), Need::Target(TARGET), Need::Crates(FOLDER)];

/// Seconds of a value check that nobody has named, and its CPUs.
const SECONDS: u32 = 10;
const CPUS: [u32; 4] = [1, 2, 4, 8];
/// The same under Bochs, whose CPUs have PCIDs and take turns.
const BOCHS_SECONDS: u32 = 2;
const BOCHS_CPUS: [u32; 3] = [1, 2, 4];
/// What Bochs boots from: GRUB, since it reads no kernel itself. This much memory is enough for OSTD.
const DRIVE: &str = "memory: guest=512, host=512\nata0: enabled=1\n\
                     ata0-master: type=cdrom, path=disc.iso, status=inserted\nboot: cdrom\n";
const DISC_NEEDS: [Need; 3] = [
    BOCHS,
    Need::Program("xorriso", "xorriso"),
    Need::File("/usr/lib/grub/i386-pc/multiboot2.mod", "grub-common grub-pc-bin"),
];
/// CPUs of a boot that counts, and how many times 2 ns an instruction takes on its clock: so few that a timer interrupt
/// does not fall into each unmap of 512 pages.
const COUNTED_CPUS: u32 = 4;
const SHIFT: u32 = 1;
/// CPUs of a boot that runs OSTD's own tests.
const TEST_CPUS: u32 = 2;
/// How long a boot may take. A kernel that waits for ever, and does not say so, is ended after the second.
const LIMIT: Duration = Duration::from_secs(600);
const SILENCE: Duration = Duration::from_secs(120);
/// OSTD's own, through isa-debug-exit.
const SUCCESS: i32 = 33;
const FAILURE: i32 = 65;

/// Whose TLB code a kernel has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kernel {
    Own,
    Ported,
}

impl Kernel {
    const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Ported => "tlbkit",
        }
    }
}

/// What a kernel does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Program {
    /// It checks values, or counts.
    Checks,
    /// It runs OSTD's own tests of its memory management.
    Tests,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Checks => "kernel",
            Self::Tests => "tests",
        }
    }

    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Checks => &[],
            Self::Tests => &["--cfg", "ktest"],
        }
    }
}

/// A change of the TLB code of a kernel that was laid aside, which takes something out.
struct Fault {
    name: &'static str,
    kernel: Kernel,
    changes: &'static [(&'static str, &'static str)],
    seen: Seen,
}

/// How a fault must end a boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    /// A task read or wrote what it must not.
    ByValue,
    /// The kernel says who does not answer.
    Unanswered,
    /// CPUs wait for ever, and the kernel does not say for what; a CPU that has nobody to wait for goes on until the
    /// memory is used up, since nothing is freed any more.
    Stuck,
    /// Not at all.
    Survived,
}

impl Seen {
    fn is_how(self, ended: &Ended) -> bool {
        let is_unanswered = told(ended).contains("a flush is not answered by CPU");
        match self {
            Self::ByValue => ended.code == Some(FAILURE) && !is_unanswered,
            Self::Unanswered => ended.code == Some(FAILURE) && is_unanswered,
            Self::Stuck => ended.code.is_none() || told(ended).contains("NoMemory"),
            Self::Survived => ended.code == Some(SUCCESS),
        }
    }
}

const FAULTS: &[Fault] = &[
    Fault {
        name: "a flush names the page behind",
        kernel: Kernel::Ported,
        changes: &[("VirtAddr(named.start as u64)", "VirtAddr((named.start + PAGE_SIZE) as u64)")],
        seen: Seen::ByValue,
    },
    Fault {
        name: "a frame is freed before the flush",
        kernel: Kernel::Ported,
        changes: &[("self.frames.0.push(frame);", "drop(frame);")],
        seen: Seen::ByValue,
    },
    Fault {
        name: "the handler forgets to answer",
        kernel: Kernel::Ported,
        changes: &[
            ("cpu.answer(&IrqsOff::assume());", "let _ = cpu;"),
            (
                "    fn apic_id(&self, _",
                "    fn patience_rounds(&self) -> u32 {\n        64\n    }\n\n    fn apic_id(&self, _",
            ),
        ],
        seen: Seen::Unanswered,
    },
    Fault {
        name: "every third interrupt is lost",
        kernel: Kernel::Ported,
        changes: &[(
            "        let sender = IPI_SENDER",
            "        static SENT: AtomicU64 = AtomicU64::new(0);\n        \
             if SENT.fetch_add(1, core::sync::atomic::Ordering::Relaxed) % 3 == 2 {\n            \
             return Sent::ByKernel;\n        }\n        let sender = IPI_SENDER",
        )],
        seen: Seen::Survived,
    },
    Fault {
        name: "other CPUs flush nothing",
        kernel: Kernel::Own,
        changes: &[("new_op_queue.flush_all();", "new_op_queue.clear_without_flush();")],
        seen: Seen::ByValue,
    },
    Fault {
        name: "a frame is freed before the flush",
        kernel: Kernel::Own,
        changes: &[("self.frame_keeper.push(frame);", "drop(frame);")],
        seen: Seen::ByValue,
    },
    Fault {
        name: "the handler forgets to answer",
        kernel: Kernel::Own,
        changes: &[("ipi_sender.inter_processor_call(&target_cpus, do_remote_flush);", "let _ = do_remote_flush;")],
        seen: Seen::Stuck,
    },
];

/// Runs one part, or all but the faults; false if something was wrong.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    let format = if arguments.iter().any(|word| word == "--json") { lines } else { table };
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|&word| word != "--json").collect();
    let part = Part::of(&words)?;
    if let Some(how) = lack(&NEEDS) {
        bail!("{how}");
    }
    let place = Place::new(root)?;
    let both = |check: &dyn Fn(Kernel) -> Result<bool>| Ok(check(Kernel::Own)? & check(Kernel::Ported)?);
    let stressed = |seconds| both(&|kernel| stress(&place, kernel, &CPUS, seconds));
    let tested = || both(&|kernel| tests(&place, kernel));
    let with_pcids = || both(&|kernel| bochs(&place, kernel, &BOCHS_CPUS));
    let counted = || counts(&place).map(|rows| print!("{}", format(&rows))).map(|()| true);
    match part {
        Part::All => Ok(stressed(SECONDS)? & tested()? & with_pcids()? & counted()?),
        Part::Stress(seconds) => stressed(seconds),
        Part::Tests => tested(),
        Part::Bochs => with_pcids(),
        Part::Count => counted(),
        Part::Faults => faults(&place),
        Part::Short => {
            let is_fine = stress(&place, Kernel::Ported, &[2], SECONDS)? & tests(&place, Kernel::Ported)?;
            Ok(is_fine & bochs(&place, Kernel::Ported, &[2])?)
        }
    }
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    All,
    /// The value checks, for so many seconds each.
    Stress(u32),
    Tests,
    Bochs,
    Count,
    Faults,
    /// Of the port alone, one boot of each check.
    Short,
}

impl Part {
    fn of(words: &[&str]) -> Result<Self> {
        let seconds = |text: &str| text.parse().ok().filter(|seconds| (1..=200).contains(seconds));
        Ok(match *words {
            [] => Self::All,
            ["stress"] => Self::Stress(SECONDS),
            ["stress", text] => {
                Self::Stress(seconds(text).with_context(|| format!("`ostd stress {text}`: must be 1 to 200"))?)
            }
            ["tests"] => Self::Tests,
            ["bochs"] => Self::Bochs,
            ["count"] => Self::Count,
            ["faults"] => Self::Faults,
            ["--short"] => Self::Short,
            _ => bail!(
                "`ostd` takes stress [SECONDS], tests, bochs, count or faults, and --json; got `{}`",
                words.join(" ")
            ),
        })
    }
}

/// Where OSTD is laid aside and built.
struct Place {
    /// The source tree.
    root: PathBuf,
    folder: PathBuf,
    /// OSTD as the registry has it.
    ostd: PathBuf,
}

impl Place {
    fn new(root: &Path) -> Result<Self> {
        let mut metadata = Command::new("cargo");
        metadata.args(["metadata", "--format-version=1", "--offline", "--filter-platform", TARGET, "--manifest-path"]);
        let metadata: Value = serde_json::from_str(&output(metadata.arg(root.join(FOLDER).join("Cargo.toml")))?)?;
        let mut packages = metadata["packages"].as_array().into_iter().flatten();
        let manifest =
            packages.find(|package| package["name"] == "ostd").and_then(|ostd| ostd["manifest_path"].as_str());
        let ostd = Path::new(manifest.context("cargo knows no package `ostd`")?).parent().context("no folder")?;
        let folder = setup::target_dir(root).join("ostd");
        Ok(Self { root: root.to_path_buf(), folder, ostd: ostd.to_path_buf() })
    }

    fn file(&self, kernel: Kernel) -> PathBuf {
        self.folder.join(kernel.name()).join("ostd/src/mm/tlb.rs")
    }

    /// Lays OSTD and the program aside, edits OSTD, and builds.
    fn build(&self, kernel: Kernel) -> Result<PathBuf> {
        self.build_with(kernel, Program::Checks, &[])
    }

    fn build_with(&self, kernel: Kernel, program: Program, changes: &[(&str, &str)]) -> Result<PathBuf> {
        let place = self.folder.join(kernel.name());
        // Edited elsewhere, so that files which come out as they were are not built again.
        let fresh = self.folder.join("fresh");
        copy_folder(&self.ostd, &fresh)?;
        let mut edit = Command::new("sh");
        edit.arg(self.root.join(FOLDER).join("edit.sh")).arg(&fresh);
        if kernel == Kernel::Ported {
            edit.arg(self.root.join("lib"));
        }
        tool(&mut edit, &self.root)?;
        let file = fresh.join("src/mm/tlb.rs");
        let mut text = fs::read_to_string(&file)?;
        for (from, to) in changes {
            ensure!(text.matches(from).count() == 1, "{}: not once: {}", file.display(), from.trim());
            text = text.replace(from, to);
        }
        fs::write(&file, text)?;
        copy_folder(&fresh, &place.join("ostd"))?;
        copy_folder(&self.root.join(FOLDER).join("src"), &place.join("src"))?;
        for name in ["Cargo.toml", "Cargo.lock"] {
            fs::copy(self.root.join(FOLDER).join(name), place.join(name))?;
        }
        let script = self.ostd.with_file_name(TOOL).join("src/base_crate/x86_64.ld.template");
        let link = format!("link-arg=-T{}", script.display());
        let flags =
            ["relocation-model=static", "relro-level=off", "force-unwind-tables=yes", "no-redzone=y", link.as_str()];
        let mut flags: Vec<&str> = flags.iter().flat_map(|flag| ["-C", *flag]).collect();
        // OSTD is written for nightly Rust, and its own code is not ours to warn of.
        flags.push("-Awarnings");
        flags.extend(program.flags());
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--offline", "--quiet", "--target", TARGET, "--config"]);
        cargo.arg(format!("patch.crates-io.ostd.path='{}'", place.join("ostd").display()));
        let target = place.join(program.name());
        cargo.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", &target);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        for name in ["USERNAME", "HOSTNAME", "RUSTC"] {
            cargo.env(format!("OSDK_BUILD_{name}"), "unknown");
        }
        tool(&mut cargo, &place)?;
        Ok(target.join(TARGET).join("release").join(NAME))
    }

    /// Lines that were added or taken out elsewhere.
    fn edits(&self, kernel: Kernel) -> Result<u64> {
        let copy = self.folder.join(kernel.name()).join("ostd");
        let mut git = Command::new("git");
        git.args(["diff", "--no-index", "--numstat"]).arg(&self.ostd).arg(&copy);
        // It ends with 1, as there are differences.
        let text = git.output().context("running git diff")?.stdout;
        let of_line = |line: &str| -> Option<u64> {
            let mut words = line.split_whitespace();
            Some(words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?)
        };
        let text = String::from_utf8_lossy(&text);
        Ok(text
            .lines()
            .filter(|line| !line.ends_with("tlb.rs}") && !line.ends_with("tlb.rs"))
            .filter_map(of_line)
            .sum())
    }

    /// Lines with code of the file that the port replaces, or by which it does.
    fn lines(&self, kernel: Kernel) -> Result<u64> {
        let text = fs::read_to_string(self.file(kernel))?;
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        Ok(text.lines().filter(is_code).count() as u64)
    }
}

/// Value checks for some seconds on each number of CPUs; false if one failed.
fn stress(place: &Place, kernel: Kernel, cpus: &[u32], seconds: u32) -> Result<bool> {
    let elf = place.build(kernel)?;
    let mut is_fine = true;
    for &cpus in cpus {
        let ended = boot(&elf, cpus, &format!("seconds={seconds}"), LIMIT)?;
        println!("ostd: {}, {cpus} CPUs: {}", kernel.name(), told(&ended));
        is_fine &= ended.code == Some(SUCCESS);
    }
    Ok(is_fine)
}

/// Value checks under Bochs, on CPUs with PCIDs, which the port must use; false if one failed.
fn bochs(place: &Place, kernel: Kernel, cpus: &[u32]) -> Result<bool> {
    if let Some(how) = lack(&DISC_NEEDS) {
        println!("ostd bochs: skipped: {how}");
        return Ok(true);
    }
    let elf = place.build(kernel)?;
    let mut is_fine = true;
    for &cpus in cpus {
        let ended = boot_in_bochs(&elf, cpus, &format!("seconds={BOCHS_SECONDS}"))?;
        let has_pcids = ended.lines().pop().and_then(|line| line["pcids"].as_bool());
        let with = has_pcids.map_or("", |has_them| if has_them { ", with PCIDs" } else { ", without PCIDs" });
        println!("ostd bochs: {}, {cpus} CPUs{with}: {}", kernel.name(), told(&ended));
        is_fine &= ended.code == Some(SUCCESS) && has_pcids == Some(kernel == Kernel::Ported);
    }
    Ok(is_fine)
}

/// OSTD's own tests of its memory management; false if one failed.
fn tests(place: &Place, kernel: Kernel) -> Result<bool> {
    let elf = place.build_with(kernel, Program::Tests, &[])?;
    let mut all = Vec::new();
    loop {
        let ended = boot(&elf, TEST_CPUS, &format!("from={}", all.len()), SILENCE)?;
        let before = all.len();
        all.extend(tests_of(&ended.lines()));
        // The boot ends with a test that panics, and begins anew behind it.
        if all.len() == before || ended.lines().pop().is_some_and(|line| line["test"] == "tests") {
            break;
        }
    }
    let failed: Vec<&Test> = all.iter().filter(|test| test.why.is_some()).collect();
    println!("ostd: {}: {} of {} tests of `mm` hold", kernel.name(), all.len() - failed.len(), all.len());
    for test in &failed {
        println!("  {}: {}", test.name, test.why.as_deref().unwrap_or_default());
    }
    Ok(failed.is_empty() && !all.is_empty())
}

/// One of OSTD's tests, and why it fails, if it does.
struct Test {
    name: String,
    why: Option<String>,
}

/// The tests of a boot. Each says its name when it begins, and ends with its verdict.
fn tests_of(lines: &[Value]) -> Vec<Test> {
    let mut tests: Vec<Test> = Vec::new();
    for line in lines {
        if let Some(name) = line["name"].as_str() {
            tests.push(Test { name: name.to_owned(), why: Some("it does not end".to_owned()) });
        } else if let (Some(test), Some(holds)) = (tests.last_mut(), line["holds"].as_bool()) {
            test.why = (!holds).then(|| line["why"].as_str().unwrap_or_default().to_owned());
        }
    }
    tests
}

/// Builds and boots each fault; false if one was not seen, or if a kernel without one does not pass.
fn faults(place: &Place) -> Result<bool> {
    let mut is_fine = true;
    let has_bochs = lack(&DISC_NEEDS).is_none();
    for fault in FAULTS {
        let elf = place.build_with(fault.kernel, Program::Checks, fault.changes)?;
        let limit = if fault.seen == Seen::Stuck { SILENCE } else { LIMIT };
        let seconds = if fault.seen == Seen::Survived { SECONDS } else { 200 };
        let mut boots = vec![("QEMU", boot(&elf, 4, &format!("seconds={seconds}"), limit)?)];
        if has_bochs && fault.seen == Seen::ByValue {
            boots.push(("Bochs", boot_in_bochs(&elf, 2, &format!("seconds={seconds}"))?));
        }
        for (emulator, ended) in boots {
            let is_right = fault.seen.is_how(&ended);
            let wrong = if is_right { String::new() } else { format!(": WRONG, not {:?}", fault.seen) };
            println!("ostd: {}, {}, in {emulator}: {}{wrong}", fault.kernel.name(), fault.name, told(&ended));
            is_fine &= is_right;
        }
    }
    for kernel in [Kernel::Own, Kernel::Ported] {
        is_fine &= stress(place, kernel, &[4], SECONDS)?;
    }
    Ok(is_fine)
}

/// The last that a kernel said, and nothing if it said nothing in time.
fn told(ended: &Ended) -> String {
    match (ended.lines().pop(), ended.code) {
        (Some(line), Some(_)) if line["test"] == "stress" => {
            let number = |name: &str| line[name].as_u64().unwrap_or_default();
            let (reads, changes) = (number("reads"), number("changes"));
            format!("{reads} reads, {changes} changes, {} forks, {} ends", number("forks"), number("ends"))
        }
        (Some(line), Some(_)) if line["why"].is_string() => line["why"].as_str().unwrap_or_default().to_owned(),
        (_, Some(code)) => format!("ended with {code}"),
        (_, None) => "nothing, in the time that it had".to_owned(),
    }
}

/// All counts of both kernels.
fn counts(place: &Place) -> Result<Vec<Row>> {
    let elves = [place.build(Kernel::Own)?, place.build(Kernel::Ported)?];
    let [own, ported] = [count(&elves[0])?, count(&elves[1])?];
    let mut rows: Vec<Row> = own.into_iter().zip(ported).map(|(own, ported)| Row::of(&own, &ported)).collect();
    rows.push(Row::sizes("lines of TLB code", [place.lines(Kernel::Own)?, place.lines(Kernel::Ported)?]));
    rows.push(Row::sizes("lines changed elsewhere", [place.edits(Kernel::Own)?, place.edits(Kernel::Ported)?]));
    rows.push(Row::sizes("bytes of text, whole kernel", [text(&elves[0])?, text(&elves[1])?]));
    Ok(rows)
}

/// The rows that a kernel counts.
fn count(image: &Path) -> Result<Vec<Value>> {
    let ended = boot_by_clock(image, COUNTED_CPUS, &format!("shift={SHIFT}"))?;
    ensure!(ended.code == Some(SUCCESS), "a kernel does not count: {}", told(&ended));
    Ok(ended.lines().into_iter().filter(|line| line["row"].is_string()).collect())
}

/// With more CPUs than hosts have, they take turns.
fn boot(elf: &Path, cpus: u32, command_line: &str, limit: Duration) -> Result<Ended> {
    let threads = if cpus > 4 { "tcg,thread=single" } else { "tcg,thread=multi" };
    boot_in_qemu(elf, cpus, command_line, &["-accel", threads], limit)
}

/// By a clock that counts instructions.
fn boot_by_clock(elf: &Path, cpus: u32, command_line: &str) -> Result<Ended> {
    let clock = format!("shift={SHIFT},align=off,sleep=off");
    boot_in_qemu(elf, cpus, command_line, &["-accel", "tcg,thread=single", "-icount", &clock], LIMIT)
}

fn boot_in_qemu(elf: &Path, cpus: u32, command_line: &str, options: &[&str], limit: Duration) -> Result<Ended> {
    let kernel = &elf.with_extension("image");
    let mut bytes = fs::read(elf)?;
    bytes[18] = 3; // a machine of 32 bits, or QEMU does not read the Multiboot header
    fs::write(kernel, bytes)?;
    let accelerator = &[&["-m", "4G", "-cpu", "max"], options].concat();
    Ok(Machine { kernel, command_line, cpus, accelerator }.boot_within(limit)?)
}

/// Under Bochs, which tells no exit code: what the kernel said last stands for it.
fn boot_in_bochs(elf: &Path, cpus: u32, command_line: &str) -> Result<Ended> {
    let folder = elf.with_extension("bochs");
    let boot = folder.join("disc/boot");
    fs::create_dir_all(boot.join("grub"))?;
    output(Command::new("strip").arg("-o").arg(boot.join("kernel")).arg(elf))?;
    fs::write(boot.join("grub/grub.cfg"), format!("multiboot2 /boot/kernel {command_line}\nboot\n"))?;
    output(Command::new("grub-mkrescue").args(["--output=disc.iso", "disc"]).current_dir(&folder))?;
    let seconds = emulate(&folder, cpus, DRIVE, LIMIT)?;
    let text = String::from_utf8_lossy(&fs::read(folder.join(LOG)).unwrap_or_default()).into_owned();
    let code = tlbkit_boot::lines(&text).pop().map(|line| if line["test"] == "stress" { SUCCESS } else { FAILURE });
    Ok(Ended { text, code, seconds })
}

/// Bytes of the kernel's code.
fn text(image: &Path) -> Result<u64> {
    let sizes = output(Command::new("size").args(["-A", "-d"]).arg(image))?;
    let line = sizes.lines().find(|line| line.starts_with(".text ")).context("a kernel without .text")?;
    line.split_whitespace().nth(1).and_then(|bytes| bytes.parse().ok()).context("`size` tells no size")
}

/// One count of both kernels: OSTD's own first.
struct Row {
    name: String,
    counts: [u64; 2],
    /// Of other CPUs, where an operation may cause some.
    interrupts: Option<[u64; 2]>,
}

impl Row {
    fn of(own: &Value, ported: &Value) -> Self {
        let both = |name: &str| [own, ported].map(|row| row[name].as_u64().unwrap_or_default());
        let name = own["row"].as_str().unwrap_or_default().to_owned();
        let interrupts = name.starts_with("unmap").then(|| both("interrupts"));
        Self { name: format!("{name}: instructions"), counts: both("instructions"), interrupts }
    }

    fn sizes(name: &str, counts: [u64; 2]) -> Self {
        Self { name: name.to_owned(), counts, interrupts: None }
    }
}

fn lines(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let [own, ported] = row.counts;
        let interrupts = row.interrupts.map(|[own, ported]| json!({"own": own, "tlbkit": ported}));
        json!({"row": row.name, "own": own, "tlbkit": ported, "interrupts": interrupts}).to_string() + "\n"
    };
    rows.iter().map(line).collect()
}

fn table(rows: &[Row]) -> String {
    let mut text =
        "| OSTD 0.18.0 | its own | tlbkit | interrupts, its own | tlbkit |\n|---|---|---|---|---|\n".to_owned();
    for row in rows {
        let interrupts = row.interrupts.map_or("| |".to_owned(), |[own, ported]| format!("{own} | {ported} |"));
        let _ = writeln!(text, "| {} | {} | {} | {interrupts}", row.name, row.counts[0], row.counts[1]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_ours_is_in_the_text_once() -> Result<()> {
        let text = fs::read_to_string(setup::root()?.join(FOLDER).join("tlb.rs"))?;
        let of_ours = FAULTS.iter().filter(|fault| fault.kernel == Kernel::Ported);
        for (from, _) in of_ours.flat_map(|fault| fault.changes) {
            assert_eq!(text.matches(from).count(), 1, "{from}");
        }
        Ok(())
    }

    #[test]
    fn a_part_is_named_by_its_words() {
        assert_eq!(Part::of(&["stress", "60"]).ok(), Some(Part::Stress(60)));
        assert_eq!(Part::of(&[]).ok(), Some(Part::All));
        assert!(Part::of(&["stress", "201"]).is_err() && Part::of(&["bochs", "2"]).is_err());
    }

    #[test]
    fn a_test_fails_that_says_so_or_does_not_end() {
        let text = "{\"at\":0,\"name\":\"a\"}\n{\"holds\":true,\"why\":\"\"}\n{\"at\":1,\"name\":\"b\"}\n\
                    {\"holds\":false,\"why\":\"2 is not 3\"}\n{\"at\":2,\"name\":\"c\"}\n";
        let tests = tests_of(&tlbkit_boot::lines(text));
        let why: Vec<Option<&str>> = tests.iter().map(|test| test.why.as_deref()).collect();
        assert_eq!(why, [None, Some("2 is not 3"), Some("it does not end")]);
        assert_eq!(tests[2].name, "c");
    }

    #[test]
    fn a_boot_is_told_by_its_last_line() {
        let ended = |code, text: &str| Ended { text: text.to_owned(), code, seconds: 1.0 };
        let stress = "{\"test\":\"stress\",\"reads\":7,\"changes\":3,\"forks\":1,\"ends\":2}\n";
        assert_eq!(told(&ended(Some(SUCCESS), stress)), "7 reads, 3 changes, 1 forks, 2 ends");
        assert_eq!(told(&ended(Some(65), "{\"test\":\"panic\",\"why\":\"an old frame\"}\n")), "an old frame");
        assert_eq!(told(&ended(Some(1), "")), "ended with 1");
        assert!(told(&ended(None, stress)).starts_with("nothing"));
    }
}

//! One boot of a Linux under QEMU or Bochs, and what its guest said.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use tlbkit_boot::{LIMIT, Machine};

use super::build::{self, Guest, Kernel};
use super::compare::Plugin;
use crate::qemu::{self, BOCHS, Threads};
use crate::setup::{self, Need, lack, tool};

/// What the guest returns through the emulator when all went well.
pub(super) const WELL: i32 = 33;
/// Nanoseconds of the clock for each instruction, as a power of two, where instructions are counted.
pub(super) const CLOCK_SHIFT: u32 = 2;

/// Counting does not depend on the host's load, so it may take as long as that makes it.
const COUNTED_LIMIT: Duration = Duration::from_secs(1800);
/// A line for many of the blocks that are executed.
const LOGGED_LIMIT: Duration = Duration::from_secs(7200);

/// Linux counts ticks of the old timer within a few milliseconds of its boot, and panics so when they are too few: a
/// busy host delays them, for the emulator's timers have a separate thread. There is one CPU then and no program.
const STARVED: &str = "IO-APIC + timer doesn't work";
/// Boots until a panic of that kind counts.
const ATTEMPTS: u32 = 4;

/// One boot.
#[derive(Clone, Debug)]
pub(super) struct Boot {
    cpus: u32,
    words: String,
    accelerator: Vec<String>,
    limit: Duration,
}

/// How it ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) text: String,
    pub(super) seconds: f64,
}

impl Ended {
    pub(super) fn is_well(&self) -> bool {
        self.code == Some(WELL)
    }

    /// The objects of one kind that the guest wrote.
    pub(super) fn lines(&self, kind: &str) -> Vec<Value> {
        // The kernel's own messages may stand before one on its line.
        let objects = self.text.lines().filter_map(|line| line.find("{\"kind\"").map(|at| &line[at..]));
        let objects = objects.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.filter(|object| object["kind"] == kind).collect()
    }

    /// What the guest says that is no object: what a test wrote that failed.
    pub(super) fn remarks(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| line.strip_prefix("# ")).map(str::trim_end)
    }

    /// The last lines, from which one sees what went wrong.
    pub(super) fn tail(&self) -> String {
        let lines: Vec<&str> = self.text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}

impl Boot {
    /// CPUs that run at the same time.
    pub(super) fn at_once(cpus: u32, words: &str, verb: &str) -> Self {
        let accelerator = owned(Threads::Parallel.accelerator());
        Self { cpus, words: command_line(words, verb), accelerator, limit: LIMIT }
    }

    /// The boot with more memory and a longer limit.
    pub(super) fn at_length(self, limit: Duration) -> Self {
        Self { accelerator: [self.accelerator, owned(&["-m", "2048"])].concat(), limit, ..self }
    }

    /// CPUs in turns, and a clock that counts instructions: the same kernel and words give the same run.
    pub(super) fn counted(cpus: u32, words: &str, verb: &str) -> Self {
        let accelerator =
            owned(&["-accel", "tcg,thread=single", "-cpu", "max", "-icount", "shift=2,align=off,sleep=off"]);
        Self { cpus, words: command_line(words, verb), accelerator, limit: COUNTED_LIMIT }
    }

    /// The boot in which waiting is counted as well.
    pub(super) fn with_plugin(mut self, plugin: &Plugin) -> Self {
        self.accelerator.extend(plugin.options());
        self
    }

    /// The boot that writes each block of instructions which begins in one of `ranges` into `log`: its listing when it
    /// is translated, and its address whenever it is executed.
    pub(super) fn logged(mut self, log: &Path, ranges: &str) -> Self {
        let log = log.display().to_string();
        self.accelerator.extend(owned(&["-d", "exec,in_asm,nochain", "-D", &log, "-dfilter", ranges]));
        self.limit = LOGGED_LIMIT;
        self
    }

    /// Boots, and keeps the console if that did not end well.
    pub(super) fn run(&self, kernel: &Path, guest: &Guest) -> Result<Ended> {
        until_not_starved(|| {
            let ended = self.run_once(kernel, guest)?;
            if !ended.is_well() {
                let folder = guest.image.with_file_name("consoles");
                eprintln!(
                    "linux: a boot did not end well; all that it wrote: {}",
                    self.keep(&ended, &folder)?.display()
                );
            }
            Ok(ended)
        })
    }

    fn run_once(&self, kernel: &Path, guest: &Guest) -> Result<Ended> {
        let image = guest.image.display().to_string();
        let mut accelerator: Vec<&str> = self.accelerator.iter().map(String::as_str).collect();
        accelerator.extend(["-initrd", &image]);
        let (command_line, cpus) = (&self.words, self.cpus);
        let ended = Machine { kernel, command_line, cpus, accelerator: &accelerator }.boot_within(self.limit)?;
        Ok(Ended { code: ended.code, text: ended.text, seconds: ended.seconds })
    }

    /// Keeps the whole console of a boot: what went wrong may not go wrong again.
    fn keep(&self, ended: &Ended, folder: &Path) -> Result<PathBuf> {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let time_s = SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
        // Two may end within one second.
        let names = (0..).map(|number| folder.join(format!("{time_s}-{number}.txt")));
        let file = names.into_iter().find(|file| !file.exists()).context("no name is free")?;
        let (cpus, words, code) = (self.cpus, &self.words, ended.code);
        let code = code.map_or("none, it was out of time".to_owned(), |code| code.to_string());
        let head = format!("{cpus} CPUs, {words}\nexit code {code} after {:.0} s\n\n", ended.seconds);
        fs::write(&file, head + &ended.text).with_context(|| format!("writing {}", file.display()))?;
        Ok(file)
    }
}

/// A boot that the host did not let come to its programs says nothing of the kernel, and is made again.
fn until_not_starved(mut boot: impl FnMut() -> Result<Ended>) -> Result<Ended> {
    for _ in 1..ATTEMPTS {
        let ended = boot()?;
        if !ended.text.contains(STARVED) {
            return Ok(ended);
        }
        eprintln!("linux: the host did not run the emulator's timers in time (\"{STARVED}\"): once more");
    }
    boot()
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// What the kernel is told, and behind the hyphens what its guest is.
pub(super) fn command_line(words: &str, verb: &str) -> String {
    format!("console=ttyS0 quiet panic=-1 norandmaps tsc=reliable rdinit=/guest {words} -- {verb}")
}

/// What makes a disk that boots: a loader, a part of it, and the program that writes the disk.
const LOADER: &str = "/usr/lib/ISOLINUX/isolinux.bin";
const PART: &str = "/usr/lib/syslinux/modules/bios/ldlinux.c32";
const BOCHS_NEEDS: [Need; 4] = [
    BOCHS,
    Need::Program("genisoimage", "genisoimage"),
    Need::File(LOADER, "isolinux"),
    Need::File(PART, "syslinux-common"),
];
const DRIVE: &str = "ata1: enabled=1\nata1-master: type=cdrom, path=boot.iso, status=inserted\nboot: cdrom\n";
/// Bochs is slower than QEMU by a factor of ten.
const BOCHS_LIMIT: Duration = Duration::from_secs(900);
/// The CPU says by CPUID that its clock runs at 3.5 GHz; under Bochs it advances by one with each instruction, of which
/// there are five million in a second of its time. With two CPUs that idle by MWAIT both have slept for ever here.
const CLOCK: &str = "tsc_early_khz=5000 idle=nomwait";
/// Seconds of the guest's clock for the value checks.
const SECONDS: u32 = 3;
/// With isolation and without, and with the tags not used.
const RUNS: &[(&str, u32)] = &[("pti=off", 1), ("pti=off", 4), ("pti=on", 1), ("pti=on", 4), ("nopcid pti=on", 2)];

/// Boots Linux on tlbkit under Bochs, whose CPU models have PCIDs and INVPCID: the port's slots, its hints not to flush
/// and its owed flushes of the user half are instructions there, and not left out as under QEMU. False if one boot did
/// not pass, or used no tags where it could.
pub(super) fn on_bochs(root: &Path, guest: &Guest) -> Result<bool> {
    if let Some(how) = lack(&BOCHS_NEEDS) {
        println!("linux: bochs: skipped: {how}");
        return Ok(true);
    }
    let (kernel, mut is_fine) = (build::kernel(root, Kernel::Tlbkit)?, true);
    for &(words, cpus) in RUNS {
        let ended = boot_on_bochs(root, &kernel, guest, cpus, words)?;
        let (has_tags, wants_tags) = (!ended.lines("tags").is_empty(), !words.contains("nopcid"));
        let is_well = ended.is_well() && has_tags == wants_tags;
        let (verdict, took) = (if is_well { "passed" } else { "FAILED" }, ended.seconds);
        let tags = if has_tags { "with" } else { "without" };
        println!("linux: bochs: {cpus} CPUs, `{words}`: {verdict} {tags} PCIDs after {took:.0} s");
        if !is_well {
            println!("{}", ended.tail());
        }
        is_fine &= is_well;
    }
    Ok(is_fine)
}

fn boot_on_bochs(root: &Path, kernel: &Path, guest: &Guest, cpus: u32, words: &str) -> Result<Ended> {
    let folder = setup::target_dir(root).join("linux/bochs");
    let words = command_line(&format!("{CLOCK} {words}"), &format!("check {SECONDS}"));
    write_disk(&folder, kernel, guest, &words)?;
    let seconds = qemu::emulate(&folder, cpus, DRIVE, BOCHS_LIMIT)?;
    let text = String::from_utf8_lossy(&fs::read(folder.join(qemu::LOG)).unwrap_or_default()).into_owned();
    // Bochs returns the same whatever the guest meant: its last line says it.
    let mut ended = Ended { code: None, text, seconds };
    if ended.lines("end").last().is_some_and(|line| line["passed"] == true) {
        ended.code = Some(WELL);
    }
    Ok(ended)
}

/// A disk with the kernel, its file system in memory, and a loader that starts it with these words.
fn write_disk(folder: &Path, kernel: &Path, guest: &Guest, words: &str) -> Result<()> {
    let disk = folder.join("disk");
    fs::create_dir_all(&disk).with_context(|| format!("making {}", disk.display()))?;
    let settings = format!("default linux\nprompt 0\nlabel linux\nkernel /linux\nappend initrd=/memory {words}\n");
    fs::write(disk.join("isolinux.cfg"), settings)?;
    let files: [(PathBuf, &str); 4] = [
        (LOADER.into(), "isolinux.bin"),
        (PART.into(), "ldlinux.c32"),
        (kernel.to_owned(), "linux"),
        (guest.image.clone(), "memory"),
    ];
    for (from, to) in files {
        fs::copy(&from, disk.join(to)).with_context(|| format!("copying {}", from.display()))?;
    }
    let line = "-quiet -o boot.iso -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table disk";
    tool(Command::new("genisoimage").args(line.split_whitespace()), folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_behind_the_kernels_words() {
        let text = "[    1.0] smp: {\"kind\":\"row\",\"ticks\":8}\r\n{\"kind\":\"end\"}\n{\"kind\":\"ro";
        let ended = Ended { code: Some(WELL), text: text.to_owned(), seconds: 0.0 };
        assert_eq!(ended.lines("row").len(), 1);
        assert_eq!(ended.lines("row")[0]["ticks"], 8);
        assert!(ended.is_well() && !Ended { code: Some(35), ..ended }.is_well());
    }

    #[test]
    fn the_console_of_a_boot_that_failed_is_kept_whole() -> Result<()> {
        let folder = crate::setup::target_dir(&crate::setup::root()?).join("linux-consoles-of-a-test");
        let text: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let ended = Ended { code: Some(0), text, seconds: 13.0 };
        let boot = Boot::at_once(4, "pti=off", "check 8");
        let (first, second) = (boot.keep(&ended, &folder)?, boot.keep(&ended, &folder)?);
        assert_ne!(first, second, "the second does not take the place of the first");
        let kept = fs::read_to_string(&first)?;
        fs::remove_dir_all(&folder)?;
        assert!(kept.contains("pti=off -- check 8\nexit code 0 after 13 s\n\nline 0\n"), "{kept}");
        assert!(kept.ends_with("line 99\n"), "{kept}");
        Ok(())
    }

    #[test]
    fn a_boot_without_timers_is_made_again_and_not_for_ever() -> Result<()> {
        let ended = |text: &str| Ended { code: Some(0), text: text.to_owned(), seconds: 1.0 };
        let panic = "Kernel panic - not syncing: IO-APIC + timer doesn't work!  Boot with apic=debug";
        let boots = |texts: &[&str]| -> Result<(u32, String)> {
            let mut count = 0;
            let last = until_not_starved(|| {
                count += 1;
                Ok(ended(texts[(count as usize - 1).min(texts.len() - 1)]))
            })?;
            Ok((count, last.text))
        };
        assert_eq!(boots(&["Kernel panic - not syncing: tlbkit"])?.0, 1, "any other panic counts at once");
        assert_eq!(boots(&[panic, panic, "well"])?, (3, "well".to_owned()));
        assert_eq!(boots(&[panic])?, (ATTEMPTS, panic.to_owned()));
        Ok(())
    }

    #[test]
    fn the_shift_is_the_one_that_the_emulator_is_told() {
        let boot = Boot::counted(1, "", "rows");
        assert!(boot.accelerator.iter().any(|word| word.starts_with(&format!("shift={CLOCK_SHIFT},"))));
    }
}

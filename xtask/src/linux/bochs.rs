//! Linux on tlbkit under Bochs, whose CPU models have PCIDs and INVPCID: the port's slots, its hints not to flush and
//! its owed flushes of the user half are instructions there, and not left out as under QEMU.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::boot::{self, Ended};
use super::build::{self, Kernel};
use super::guest::Guest;
use crate::qemu::{self, BOCHS};
use crate::setup::{self, Need, lack, tool};

/// What makes a disk that boots: a loader, a part of it, and the program that writes the disk.
const LOADER: &str = "/usr/lib/ISOLINUX/isolinux.bin";
const PART: &str = "/usr/lib/syslinux/modules/bios/ldlinux.c32";
const NEEDS: [Need; 4] = [
    BOCHS,
    Need::Program("genisoimage", "genisoimage"),
    Need::File(LOADER, "isolinux"),
    Need::File(PART, "syslinux-common"),
];
const DRIVE: &str = "ata1: enabled=1\nata1-master: type=cdrom, path=boot.iso, status=inserted\nboot: cdrom\n";
/// Bochs is slower than QEMU by a factor of ten.
const LIMIT: Duration = Duration::from_secs(900);
/// The CPU says by CPUID that its clock runs at 3.5 GHz; under Bochs it advances by one with each instruction, of which
/// there are five million in a second of its time. With two CPUs that idle by MWAIT both have slept for ever here.
const CLOCK: &str = "tsc_early_khz=5000 idle=nomwait";
/// Seconds of the guest's clock for the value checks.
const SECONDS: u32 = 3;
/// With isolation and without, and with the tags not used.
const RUNS: &[(&str, u32)] = &[("pti=off", 1), ("pti=off", 4), ("pti=on", 1), ("pti=on", 4), ("nopcid pti=on", 2)];

/// Boots each; false if one did not pass, or used no tags where it could.
pub(super) fn run(root: &Path, guest: &Guest) -> Result<bool> {
    if let Some(how) = lack(&NEEDS) {
        println!("linux: bochs: skipped: {how}");
        return Ok(true);
    }
    let (kernel, mut is_fine) = (build::kernel(root, Kernel::Tlbkit)?, true);
    for &(words, cpus) in RUNS {
        let ended = boot(root, &kernel, guest, cpus, words)?;
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

fn boot(root: &Path, kernel: &Path, guest: &Guest, cpus: u32, words: &str) -> Result<Ended> {
    let folder = setup::target_dir(root).join("linux/bochs");
    let words = boot::command_line(&format!("{CLOCK} {words}"), &format!("check {SECONDS}"));
    write_disk(&folder, kernel, guest, &words)?;
    let seconds = qemu::emulate(&folder, cpus, DRIVE, LIMIT)?;
    let text = String::from_utf8_lossy(&fs::read(folder.join(qemu::LOG)).unwrap_or_default()).into_owned();
    // Bochs returns the same whatever the guest meant: its last line says it.
    let mut ended = Ended { code: None, text, seconds };
    if ended.lines("end").last().is_some_and(|line| line["passed"] == true) {
        ended.code = Some(boot::WELL);
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

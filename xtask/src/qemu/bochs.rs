//! The kernel under Bochs, whose CPU models have PCIDs and INVPCID: the manual's rules asked of it, and whole runs
//! beside the simulator, with tags. Bochs drops more than it must, so a lost flush of a tag does not show here; the
//! counts do.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::compare;
use super::emulator::{self, Ended};
use super::image;
use crate::setup::Need;

pub(crate) const LOG: &str = "serial.log";
const DISK: &str = "disk.img";

/// What the test kernel boots from.
const DRIVE: &str = "ata0: enabled=1\nata0-master: type=disk, path=disk.img, mode=flat\nboot: disk\n";

/// What Bochs is told, but for the number of CPUs and what it boots from. Its timing is by instructions, so a run is
/// the same each time.
const SETTINGS: &str = "\
plugin_ctrl: unmapped=1, biosdev=1, speaker=0
config_interface: textconfig
display_library: rfb, options=\"timeout=0\"
memory: guest=512, host=512
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
log: bochs.log
panic: action=fatal
error: action=ignore
com1: enabled=1, mode=file, dev=serial.log
sound: driver=default, waveoutdrv=dummy
speaker: enabled=0
";

/// Asks for the rules and compares the runs; false if something was wrong.
pub(super) fn run(root: &Path) -> Result<bool> {
    if let Some(how) = BOCHS.lack() {
        println!("qemu bochs: skipped: {how}");
        return Ok(true);
    }
    let machine = Bochs::new(&emulator::build(root)?)?;
    let ended = machine.boot(1, "mode=rules")?;
    machine.lines()?.iter().filter(|line| line["kind"] == "rule").for_each(tell);
    println!("qemu bochs: rules: {}: {}", ended.kind(), ended.what());
    let are_right = compare::run_all(compare::WITH_TAGS, &|case| machine.boot(case.cpus(), &case.words()))?;
    Ok(ended.is_fine() && are_right)
}

/// The emulator's program.
pub(crate) const BOCHS: Need = Need::Program("bochs", "bochs bochsbios vgabios");

fn tell(line: &Value) {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    let verdict = if line["holds"] == true { "" } else { "   WRONG" };
    println!("  {:<58} {}{verdict}", text("name"), text("found"));
}

/// Runs Bochs in `folder` until its guest ends it, or for `limit`, and says how many seconds that took. What the guest
/// wrote stands in [`LOG`] of that folder.
pub(crate) fn emulate(folder: &Path, cpus: u32, drive: &str, limit: Duration) -> Result<f64> {
    // A lock of a run that was killed must not stop this one.
    for old in [LOG, "disk.img.lock"] {
        let _ = fs::remove_file(folder.join(old));
    }
    let cpu = format!("cpu: count={cpus}, model=corei7_skylake_x, ips=5000000, reset_on_triple_fault=0\n");
    fs::write(folder.join("bochsrc"), format!("{SETTINGS}{drive}{cpu}"))?;
    // Debian's build starts in its debugger: "continue".
    fs::write(folder.join("commands"), "c\n")?;
    let mut command = Command::new("bochs");
    command.args(["-q", "-f", "bochsrc", "-rc", "commands"]).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    tlbkit_boot::wait(command.spawn().context("running bochs")?, limit)?;
    Ok(begun.elapsed().as_secs_f64())
}

/// A folder with what Bochs reads and writes.
pub(super) struct Bochs {
    folder: PathBuf,
    elf: Vec<u8>,
}

impl Bochs {
    pub(super) fn new(kernel: &Path) -> Result<Self> {
        let folder = kernel.with_extension("bochs");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(Self { folder, elf: fs::read(kernel)? })
    }

    pub(super) fn boot(&self, cpus: u32, words: &str) -> Result<Ended> {
        fs::write(self.folder.join(DISK), image::of(&self.elf, &format!("cpus={cpus} {words}"))?)?;
        let seconds = emulate(&self.folder, cpus, DRIVE, tlbkit_boot::LIMIT)?;
        let last = self.lines()?.pop().unwrap_or(Value::Null);
        Ok(Ended { last, seconds })
    }

    /// What the kernel wrote.
    fn lines(&self) -> Result<Vec<Value>> {
        let path = self.folder.join(LOG);
        let text = if path.exists() { fs::read(&path)? } else { Vec::new() };
        Ok(tlbkit_boot::lines(&String::from_utf8_lossy(&text)))
    }
}

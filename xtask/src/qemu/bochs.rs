//! The kernel under Bochs, whose CPU models have PCIDs and INVPCID: the manual's rules asked of it, and whole runs
//! beside the simulator, with tags. Bochs drops more than it must, so a lost flush of a tag does not show here; the
//! counts do.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Ended, compare};
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
    let machine = Bochs::new(&super::build(root)?)?;
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
        fs::write(self.folder.join(DISK), image_of(&self.elf, &format!("cpus={cpus} {words}"))?)?;
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

/// What stands before that place in the image.
const MARK: &[u8] = b"tlbkit command :";
const COMMAND_BYTES: usize = 1024;
const LOADED_AT: u64 = 1 << 20;
const SECTOR_BYTES: usize = 512;
/// What the boot sector loads at a time, and where in the sector their number stands.
const CHUNK_BYTES: usize = 32 << 10;
const CHUNKS_AT: usize = 508;
/// Bochs wants whole cylinders: 16 heads of 63 sectors.
const CYLINDER_BYTES: usize = 16 * 63 * SECTOR_BYTES;
const LOADABLE: u32 = 1;

/// A disk image that boots the kernel of an ELF file without a loader: its boot sector, then its segments laid flat
/// from 1 MiB on, with the command line written into the place that the kernel keeps for it.
fn image_of(elf: &[u8], command_line: &str) -> Result<Vec<u8>> {
    let mut flat = Vec::new();
    for header in segments(elf)? {
        let (from, at, bytes) = (number(elf, header + 8)?, number(elf, header + 24)?, number(elf, header + 32)?);
        let at = at.checked_sub(LOADED_AT).context("a segment below 1 MiB")? as usize;
        let content = elf.get(from as usize..(from + bytes) as usize).context("a segment beyond the file")?;
        flat.resize(flat.len().max(at + content.len()), 0);
        flat[at..at + content.len()].copy_from_slice(content);
    }
    write_command_line(&mut flat, command_line)?;
    let chunks = flat.len().div_ceil(CHUNK_BYTES);
    let mut disk = sector(elf)?.to_vec();
    disk[CHUNKS_AT..CHUNKS_AT + 2].copy_from_slice(&u16::try_from(chunks)?.to_le_bytes());
    disk.append(&mut flat);
    disk.resize((SECTOR_BYTES + chunks * CHUNK_BYTES).next_multiple_of(CYLINDER_BYTES), 0);
    Ok(disk)
}

fn write_command_line(flat: &mut [u8], text: &str) -> Result<()> {
    if text.len() >= COMMAND_BYTES {
        bail!("a command line of {} bytes: must be below {COMMAND_BYTES}", text.len());
    }
    let mark = flat.windows(MARK.len()).position(|window| window == MARK).context("no place for a command line")?;
    flat[mark + MARK.len()..][..text.len()].copy_from_slice(text.as_bytes());
    Ok(())
}

/// Where the headers of loadable segments stand.
fn segments(elf: &[u8]) -> Result<Vec<usize>> {
    let (first, size, count) = (number(elf, 32)? as usize, short(elf, 54)?, short(elf, 56)?);
    let all = (0..count).map(|n| first + n * size);
    all.map(|at| Ok((number(elf, at)? as u32 == LOADABLE).then_some(at))).filter_map(Result::transpose).collect()
}

/// The boot sector: the one section of 512 bytes that ends in its signature.
fn sector(elf: &[u8]) -> Result<&[u8]> {
    let (first, size, count) = (number(elf, 40)? as usize, short(elf, 58)?, short(elf, 60)?);
    for at in (0..count).map(|n| first + n * size) {
        let (from, bytes) = (number(elf, at + 24)? as usize, number(elf, at + 32)? as usize);
        let content = elf.get(from..from + bytes).unwrap_or_default();
        if bytes == SECTOR_BYTES && content.ends_with(&[0x55, 0xaa]) {
            return Ok(content);
        }
    }
    bail!("no boot sector in the kernel")
}

fn number(elf: &[u8], at: usize) -> Result<u64> {
    let bytes = elf.get(at..at + 8).with_context(|| format!("an ELF file that ends before byte {at}"))?;
    Ok(u64::from_le_bytes(bytes.try_into()?))
}

fn short(elf: &[u8], at: usize) -> Result<usize> {
    let bytes = elf.get(at..at + 2).with_context(|| format!("an ELF file that ends before byte {at}"))?;
    Ok(usize::from(u16::from_le_bytes(bytes.try_into()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One segment of `content` at 1 MiB, one boot sector.
    fn elf(content: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56 + 64 + SECTOR_BYTES];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        let (header, section, sector, data) = (64, 120, 184, 184 + SECTOR_BYTES);
        put(32, &(header as u64).to_le_bytes());
        put(40, &(section as u64).to_le_bytes());
        [(54, 56u16), (56, 1), (58, 64), (60, 1)].iter().for_each(|(at, value)| put(*at, &value.to_le_bytes()));
        put(header, &1u64.to_le_bytes());
        [(8, data as u64), (24, LOADED_AT), (32, content.len() as u64)]
            .iter()
            .for_each(|(at, value)| put(header + at, &value.to_le_bytes()));
        put(section + 24, &(sector as u64).to_le_bytes());
        put(section + 32, &(SECTOR_BYTES as u64).to_le_bytes());
        put(sector + 510, &[0x55, 0xaa]);
        file.extend_from_slice(content);
        file
    }

    fn kernel() -> Vec<u8> {
        let mut content = b"code".to_vec();
        content.extend_from_slice(MARK);
        content.resize(40_000, 0);
        elf(&content)
    }

    #[test]
    fn the_segments_follow_the_sector_and_hold_the_command_line() -> Result<()> {
        let disk = image_of(&kernel(), "cpus=2")?;
        assert_eq!(disk.len() % CYLINDER_BYTES, 0);
        assert_eq!(disk[CHUNKS_AT..SECTOR_BYTES], [2, 0, 0x55, 0xaa]);
        assert_eq!(&disk[SECTOR_BYTES..][..27], b"codetlbkit command :cpus=2\0");
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(image_of(&kernel(), &"x".repeat(COMMAND_BYTES)).is_err_and(|error| error.to_string().contains("1024")));
        assert!(image_of(&elf(b"no mark"), "").is_err());
        assert!(image_of(b"short", "").is_err());
    }
}

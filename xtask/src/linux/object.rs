//! The library as one relocatable file that a kernel's own build links like an object of its own.
//!
//! The archive as it is does not fit: compiler_builtins stand beside the library, each function has a section of its
//! own, and calls of `memcpy` and its like go through a global offset table, which Linux does not allow. So the
//! library's own object is taken out, its sections are merged, and the instructions that name the table are replaced by
//! direct ones of the same length.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c_library::{self, tool};
use crate::setup;

const SECTIONS: &str = "\
SECTIONS {
    .text : { *(.text .text.*) }
    .rodata : { *(.rodata .rodata.*) }
    .data : { *(.data .data.*) }
    .bss : { *(.bss .bss.* COMMON) }
    /DISCARD/ : { *(.eh_frame .comment .note.* .debug_* .llvmbc .llvmcmd) }
}
";

/// Builds it and says where it is.
pub(crate) fn make(root: &Path) -> Result<PathBuf> {
    let archive = c_library::archive(root, "linux/archive", "")?;
    let folder = setup::target_dir(root).join("linux/object");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    fs::write(folder.join("sections.ld"), SECTIONS)?;
    // The library's own member is named after its crate; the others are compiler_builtins.
    let script = format!(
        "ar x {0} $(ar t {0} | grep ^tlbkit_c) && \
         ld -r --gc-sections -T sections.ld -e tlbkit_answer $(nm tlbkit_c*.o 2>/dev/null \
         | sed -n 's/.* T \\(tlbkit_.*\\)/-u \\1/p') -o tlbkit.o tlbkit_c*.o",
        archive.display()
    );
    tool(Command::new("sh").args(["-c", &script]), &folder)?;
    let file = folder.join("tlbkit.o");
    let mut bytes = fs::read(&file)?;
    call_directly(&mut bytes).with_context(|| format!("in {}", file.display()))?;
    fs::write(&file, bytes)?;
    Ok(file)
}

/// Relocations that name an entry of the global offset table, and the one that names the symbol itself.
const THROUGH_TABLE: [u32; 3] = [9, 41, 42];
const DIRECT: u32 = 2;
/// Of a section: relocations with addends.
const RELOCATIONS: u32 = 4;

/// Replaces each instruction that goes through the table; says how many there were.
fn call_directly(elf: &mut [u8]) -> Result<usize> {
    let sections = Sections::of(elf)?;
    let mut count = 0;
    for section in sections.all(elf)? {
        if section.kind != RELOCATIONS {
            continue;
        }
        let target = sections.one(elf, section.applies_to as usize)?.offset;
        for entry in (section.offset..section.offset + section.bytes).step_by(24) {
            let info = u64_at(elf, entry + 8)?;
            if !THROUGH_TABLE.contains(&(info as u32)) {
                continue;
            }
            let place = target + u64_at(elf, entry)? as usize;
            replace(elf, place)?;
            put_u64(elf, entry + 8, info & !0xffff_ffff | u64::from(DIRECT))?;
            count += 1;
        }
    }
    Ok(count)
}

/// The instruction whose 32-bit displacement is at `place`.
fn replace(elf: &mut [u8], place: usize) -> Result<()> {
    let opcode =
        place.checked_sub(2).and_then(|first| elf.get_mut(first..place)).context("a relocation out of place")?;
    match *opcode {
        [0xff, 0x15] => opcode.copy_from_slice(&[0x67, 0xe8]), // call *table -> a call, one prefix longer
        [0x8b, _] => opcode[0] = 0x8d,                         // mov from the table -> lea
        [a, b] => bail!("no way to take instruction {a:02x} {b:02x} from the offset table"),
        _ => bail!("a relocation out of place"),
    }
    Ok(())
}

/// Where an ELF file has its table of sections.
struct Sections {
    first: usize,
    count: usize,
}

struct Section {
    kind: u32,
    offset: usize,
    bytes: usize,
    applies_to: u32,
}

impl Sections {
    fn of(elf: &[u8]) -> Result<Self> {
        if elf.get(..5) != Some(&[0x7f, b'E', b'L', b'F', 2]) {
            bail!("no 64-bit ELF file");
        }
        Ok(Self { first: u64_at(elf, 0x28)? as usize, count: (u64_at(elf, 0x38)? >> 32) as usize & 0xffff })
    }

    fn one(&self, elf: &[u8], index: usize) -> Result<Section> {
        let at = self.first + 64 * index;
        Ok(Section {
            kind: (u64_at(elf, at)? >> 32) as u32,
            offset: u64_at(elf, at + 24)? as usize,
            bytes: u64_at(elf, at + 32)? as usize,
            applies_to: (u64_at(elf, at + 40)? >> 32) as u32,
        })
    }

    fn all(&self, elf: &[u8]) -> Result<Vec<Section>> {
        (0..self.count).map(|index| self.one(elf, index)).collect()
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64> {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).context("a table beyond the end")?;
    Ok(u64::from_le_bytes(word))
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) -> Result<()> {
    bytes.get_mut(at..at + 8).context("a table beyond the end")?.copy_from_slice(&value.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_go_through_the_table_become_direct_ones_of_the_same_length() -> Result<()> {
        let mut call = [0xff, 0x15, 0, 0, 0, 0];
        replace(&mut call, 2)?;
        assert_eq!(call, [0x67, 0xe8, 0, 0, 0, 0]);
        let mut load = [0x4c, 0x8b, 0x2d, 0, 0, 0, 0];
        replace(&mut load, 3)?;
        assert_eq!(load, [0x4c, 0x8d, 0x2d, 0, 0, 0, 0]);
        let unknown = replace(&mut [0x3b, 0x05, 0, 0, 0, 0], 2);
        assert!(unknown.is_err_and(|error| error.to_string().contains("3b 05")));
        Ok(())
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(call_directly(&mut b"!<arch>\n".to_vec()).is_err_and(|error| error.to_string().contains("ELF")));
    }
}

//! The library for C as one relocatable object, ready for a kernel's linker: what `ld -r` of a kernel's build takes as
//! it is.
//!
//! The compiler puts all of the library into one member of the archive; the others are its own support, which a kernel
//! has. What is left to do: calls of `memcpy` and its like go through a GOT, whatever the relocation model, as core was
//! compiled so; each is made a direct one here, as a linker would. Sections are merged, and what only the library calls
//! becomes local; it keeps its name, for those who read a stack or, like objtool, follow calls.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// One section of each kind.
const SCRIPT: &str = "\
SECTIONS {
    .text 0 : { *(.text .text.*) }
    .rodata 0 : { *(.rodata .rodata.*) }
    .data.rel.ro 0 : { *(.data.rel.ro .data.rel.ro.*) }
    .data 0 : { *(.data .data.*) }
    .bss 0 : { *(.bss .bss.* COMMON) }
    /DISCARD/ : { *(.eh_frame .eh_frame.* .comment .debug_* .llvmbc .llvmcmd) }
}
";

const R_X86_64_PC32: u64 = 2;
const R_X86_64_PLT32: u64 = 4;
const R_X86_64_GOTPCREL: u64 = 9;

/// Makes `object` of the archive, in the folder of `object`.
pub(crate) fn make(archive: &Path, object: &Path) -> Result<()> {
    let dir = object.parent().context("an object has a folder")?;
    let members = output(Command::new("ar").arg("t").arg(archive))?.stdout;
    let members = String::from_utf8(members)?;
    let member = members.lines().find(|name| name.starts_with("tlbkit_c")).context("the archive lacks the library")?;
    let mut bytes = output(Command::new("ar").arg("p").arg(archive).arg(member))?.stdout;
    call_directly(&mut bytes)?;
    let (loose, script) = (dir.join("loose.o"), dir.join("merge.ld"));
    fs::write(&loose, bytes).with_context(|| format!("writing {}", loose.display()))?;
    fs::write(&script, SCRIPT).with_context(|| format!("writing {}", script.display()))?;
    output(Command::new("ld").args(["-r", "-T"]).arg(&script).arg("-o").arg(object).arg(&loose))?;
    output(Command::new("objcopy").args(["--wildcard", "--keep-global-symbol=tlbkit_*", "--strip-debug"]).arg(object))?;
    for file in [loose, script] {
        fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
    }
    complaint(object)?.map_or(Ok(()), |why| bail!("{}: {why}", object.display()))
}

fn output(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(output)
}

/// Turns each use of the GOT into a direct one of the same length, with its relocation.
fn call_directly(object: &mut [u8]) -> Result<()> {
    for (target, table, count) in relocations(object)? {
        for index in 0..count {
            let entry = table + 24 * index;
            let (offset, info) = (number(object, entry, 8)?, number(object, entry + 8, 8)?);
            if info & 0xffff_ffff != R_X86_64_GOTPCREL {
                continue;
            }
            let (at, symbol) = (target + offset as usize - 2, info >> 32 << 32);
            let (kind, moved) = match object.get(at..at + 6) {
                Some([0xff, 0x15, ..]) => {
                    object[at..at + 2].copy_from_slice(&[0x67, 0xe8]); // a prefix that changes nothing, and CALL
                    (R_X86_64_PLT32, 0)
                }
                Some([0xff, 0x25, ..]) => {
                    (object[at], object[at + 5]) = (0xe9, 0x90); // JMP, and NOP at its end
                    (R_X86_64_PLT32, 1)
                }
                Some([0x8b, ..]) => {
                    object[at] = 0x8d; // LEA: the address itself, where the GOT's entry was read
                    (R_X86_64_PC32, 0)
                }
                _ => bail!("a use of the GOT that is no call, jump or load"),
            };
            object[entry..entry + 8].copy_from_slice(&(offset - moved).to_le_bytes());
            object[entry + 8..entry + 16].copy_from_slice(&(symbol | kind).to_le_bytes());
        }
    }
    Ok(())
}

/// For each table of relocations: where the section to which it applies begins in the file, where the table itself
/// begins, and how many relocations it has.
fn relocations(object: &[u8]) -> Result<Vec<(usize, usize, usize)>> {
    const RELA: u64 = 4;
    ensure!(object.starts_with(b"\x7fELF\x02\x01"), "no object file of 64 bits");
    let (headers, count) = (number(object, 40, 8)? as usize, number(object, 60, 2)? as usize);
    let field = |index: usize, at: usize, bytes: usize| number(object, headers + 64 * index + at, bytes);
    let mut found = Vec::new();
    for index in 0..count {
        if field(index, 4, 4)? == RELA {
            let target = field(field(index, 44, 4)? as usize, 24, 8)?;
            found.push((target as usize, field(index, 24, 8)? as usize, field(index, 32, 8)? as usize / 24));
        }
    }
    Ok(found)
}

/// A little-endian number of up to 8 bytes.
fn number(bytes: &[u8], at: usize, count: usize) -> Result<u64> {
    let part = bytes.get(at..at + count).context("the object is cut")?;
    Ok(part.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// What in the object a kernel's build would stumble over.
fn complaint(object: &Path) -> Result<Option<String>> {
    let text = |args: &[&str]| -> Result<String> {
        Ok(String::from_utf8(output(Command::new("readelf").args(args).arg(object))?.stdout)?)
    };
    let relocations = text(&["-rW"])?;
    if let Some(line) = relocations.lines().find(|line| line.contains("GOT")) {
        return Ok(Some(format!("a relocation through the GOT: {line}")));
    }
    let symbols = text(&["-sW"])?;
    let is_known = |name: &str| name.starts_with("tlbkit_") || ["memcpy", "memset", "memcmp", "strlen"].contains(&name);
    let global = symbols.lines().filter(|line| line.contains(" GLOBAL ") || line.contains(" WEAK "));
    if let Some(name) = global.filter_map(|line| line.split_whitespace().last()).find(|name| !is_known(name)) {
        return Ok(Some(format!("a global symbol of another name: {name}")));
    }
    let sections = text(&["-SW"])?;
    let names = sections.lines().filter_map(|line| line.split_once("] ")?.1.split_whitespace().next());
    const KNOWN: &[&str] = &[
        ".text",
        ".rodata",
        ".data.rel.ro",
        ".data",
        ".bss",
        ".symtab",
        ".strtab",
        ".shstrtab",
        ".note.GNU-stack",
        ".rela.text",
        ".rela.rodata",
        ".rela.data.rel.ro",
        ".rela.data",
        "NULL",
    ];
    let unknown = names.filter(|name| name.starts_with('.')).find(|name| !KNOWN.contains(name));
    Ok(unknown.map(|name| format!("a section of another name: {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_their_low_end() -> Result<()> {
        assert_eq!(number(&[0, 0x34, 0x12], 1, 2)?, 0x1234);
        assert!(number(&[0], 0, 2).is_err());
        Ok(())
    }

    /// An object of one section of code, `call *f(%rip)` through the GOT, made by the assembler.
    #[test]
    fn a_call_through_the_got_becomes_a_direct_one() -> Result<()> {
        let mut object = vec![0; 64 + 2 * 64 + 6 + 24];
        object[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, value: u64, bytes: usize| {
            object[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        };
        let (code, table) = (192, 198);
        put(40, 64, 8);
        put(60, 2, 2);
        put(64 + 24, code as u64, 8); // section 0: the code
        put(128 + 4, 4, 4); // section 1: its relocations
        put(128 + 24, table as u64, 8);
        put(128 + 32, 24, 8);
        put(code, 0x15ff, 2);
        put(table, 2, 8);
        put(table + 8, 7 << 32 | R_X86_64_GOTPCREL, 8);
        call_directly(&mut object)?;
        assert_eq!(object[code..code + 2], [0x67, 0xe8]);
        assert_eq!(number(&object, table + 8, 8)?, 7 << 32 | R_X86_64_PLT32);
        object[code] = 0;
        put_back(&mut object, table);
        assert!(call_directly(&mut object).is_err(), "what is none of them is refused");
        Ok(())
    }

    fn put_back(object: &mut [u8], table: usize) {
        object[table + 8] = R_X86_64_GOTPCREL as u8;
    }
}

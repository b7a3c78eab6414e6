//! `cargo xtask c-kernel`: the C example, built with gcc, ld and the archive, booted as it is and with each fault.
//!
//! A boot without a fault must pass every test, whichever way spaces end; one that loses interrupts or drops INVLPG
//! must not; one that flushes inside the wait of another must end in the kernel's own hook. All of it twice: with the
//! example's own instructions, and with those of the archive's feature `x86`.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tlbkit_boot::{Ended, Machine, PACKAGE, PROGRAM, TARGET};

use crate::c_library;
use crate::qemu::Threads;
use crate::setup::{self, Need, lack, tool};

/// Where it is built, in cargo's folder.
const FOLDER: &str = "c-kernel";

/// How a kernel's objects are compiled; nothing here is special to the library.
const KERNEL_FLAGS: &str = "-std=gnu11 -O2 -Wall -Wextra -Werror -ffreestanding -fno-stack-protector -fno-pic \
    -mno-red-zone -mcmodel=kernel -mgeneral-regs-only -I lib/tlbkit-c/include";

/// A boot argument and how the boot must end: QEMU's exit code and the `test` of the last line.
const BOOTS: &[(&str, i32, &str, Threads)] = &[
    ("", 33, "all", Threads::Parallel),
    ("no-ipi", 35, "late", Threads::Parallel),
    ("no-invlpg", 35, "failed", Threads::Parallel),
    ("nested", 37, "misuse", Threads::Parallel),
    // Three ways to end a space that an idle CPU holds; docs/kernel/ compares `ticks` of the line `destroy`.
    ("", 33, "all", Threads::Repeatable),
    ("counted", 33, "all", Threads::Repeatable),
    ("shot-down", 33, "all", Threads::Repeatable),
];

/// Which instructions the table of functions holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Instructions {
    Own,
    OfTheArchive,
}

/// Builds, boots and tells; false if a boot ended otherwise than it must.
pub(crate) fn run(root: &Path) -> Result<bool> {
    if let Some(how) = lack(&[Need::Program(PROGRAM, PACKAGE), Need::Program("gcc", "gcc"), Need::Target(TARGET)]) {
        bail!("{how}");
    }
    for instructions in [Instructions::Own, Instructions::OfTheArchive] {
        let kernel = build(root, instructions)?;
        for &(argument, code, test, threads) in BOOTS {
            if let Some(why) = wrong_end(&boot(&kernel, argument, threads)?, code, test) {
                let name = if argument.is_empty() { "without a fault" } else { argument };
                println!("instructions {instructions:?}, boot {name}: {why}");
                return Ok(false);
            }
        }
    }
    println!("{} boots", 2 * BOOTS.len());
    Ok(true)
}

/// Builds the archive and the kernel, and returns the kernel.
fn build(root: &Path, instructions: Instructions) -> Result<PathBuf> {
    let (feature, define) = match instructions {
        Instructions::Own => ("history", "-UTLBKIT_X86"),
        Instructions::OfTheArchive => ("history,x86", "-DTLBKIT_X86"),
    };
    let archive = c_library::archive(root, FOLDER, feature)?;
    let target = setup::target_dir(root).join(FOLDER);
    let sources = root.join("metal/c-kernel");
    let mut objects = Vec::new();
    for entry in fs::read_dir(&sources).with_context(|| format!("reading {}", sources.display()))? {
        let source = entry?.path();
        if source.extension().is_some_and(|ending| ending == "c" || ending == "S") {
            let object = target.join(source.with_extension("o").file_name().unwrap_or_default());
            // Relative, so that no message of the kernel names a folder of this machine.
            let relative = source.strip_prefix(root).unwrap_or(&source);
            let mut gcc = Command::new("gcc");
            tool(
                gcc.args(KERNEL_FLAGS.split_whitespace())
                    .args([define, "-DTLBKIT_HISTORY", "-c"])
                    .arg(relative)
                    .arg("-o")
                    .arg(&object),
                root,
            )?;
            objects.push(object);
        }
    }
    let kernel = target.join("kernel.elf");
    let mut ld = Command::new("ld");
    ld.args(["-n", "-static", "--gc-sections", "--build-id=none", "--no-warn-rwx-segments", "-T"]);
    ld.arg(sources.join("linker.ld")).arg("-o").arg(&kernel).args(&objects);
    tool(ld.arg(archive), root)?;
    Ok(kernel)
}

/// Boots the kernel on four CPUs, and passes its lines on.
fn boot(kernel: &Path, argument: &str, threads: Threads) -> Result<Ended> {
    let accelerator = threads.accelerator();
    let ended = Machine { kernel, command_line: argument, cpus: 4, accelerator }.boot()?;
    print!("{}", ended.text);
    Ok(ended)
}

/// How a boot ended, if not as it must.
fn wrong_end(ended: &Ended, code: i32, test: &str) -> Option<String> {
    let last = ended.lines().pop().unwrap_or_default();
    if ended.code == Some(code) && last["test"] == test {
        return None;
    }
    let found = ended.code.map_or("no end in time".to_owned(), |code| format!("exit code {code}"));
    Some(format!("{found}, last line `{last}`; wanted exit code {code} and test `{test}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_that_ends_otherwise_is_told() {
        let ended = |code: i32, text: &str| Ended { text: text.to_owned(), code: Some(code), seconds: 1.0 };
        assert_eq!(wrong_end(&ended(33, "{\"test\": \"lazy\"}\n{\"test\": \"all\"}\n"), 33, "all"), None);
        assert!(wrong_end(&ended(35, "{\"test\": \"all\"}\n"), 33, "all").is_some());
        assert!(wrong_end(&ended(33, "{\"test\": \"lazy\"}\n"), 33, "all").is_some());
        assert!(wrong_end(&ended(33, ""), 33, "all").is_some());
        assert!(wrong_end(&Ended { code: None, ..ended(33, "{\"test\": \"all\"}\n") }, 33, "all").is_some());
    }
}

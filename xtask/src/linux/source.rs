//! The source of Linux, from the distribution's package, unpacked twice: as it is, and with the TLB code replaced.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup::{self, Need, lack, tool};

/// The package, its archive, and the folder in it.
const PACKAGE: &str = "linux-source-6.12";
const ARCHIVE: &str = "/usr/src/linux-source-6.12.tar.xz";
/// What else a kernel's build wants.
const NEEDS: &[Need] = &[
    Need::Program("flex", "flex"),
    Need::Program("bison", "bison"),
    Need::Program("bc", "bc"),
    Need::Program("xz", "xz-utils"),
    Need::Program("make", "make"),
    Need::Program("gcc", "gcc"),
    Need::File("/usr/include/libelf.h", "libelf-dev"),
    Need::File("/usr/include/openssl/ssl.h", "libssl-dev"),
    Need::File(ARCHIVE, PACKAGE),
];

/// Our files in Linux, all in the folder of the one that is replaced.
const FILES: [&str; 4] = ["tlb.c", "tlb_flush.c", "tlb_hardware.c", "tlb_internal.h"];
const MM: &str = "arch/x86/mm";

/// What is missing here and cannot be installed, in one line.
pub(super) fn missing() -> Option<String> {
    lack(NEEDS)
}

/// The source as the distribution has it.
pub(super) fn stock(root: &Path) -> Result<PathBuf> {
    let (folder, tree) = (folder(root)?, folder(root)?.join(PACKAGE));
    if !tree.join("Makefile").is_file() {
        println!("linux: unpacking {ARCHIVE}");
        tool(Command::new("tar").args(["xJf", ARCHIVE]), &folder)?;
    }
    Ok(tree)
}

/// The headers that programs take from this kernel, in a folder of their own.
pub(super) fn headers(root: &Path) -> Result<PathBuf> {
    let (tree, built) = (stock(root)?, folder(root)?.join("headers-build"));
    let headers = built.join("usr/include");
    if !headers.join("linux/fs.h").is_file() {
        let mut make = Command::new("make");
        make.arg("-s").arg("-C").arg(&tree).arg(format!("O={}", built.display())).arg("headers");
        make.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("CARGO_MAKEFLAGS");
        tool(&mut make, root)?;
    }
    Ok(headers)
}

/// The source with our files in it; whatever did not change keeps its time, so that little is built again.
pub(super) fn replaced(root: &Path, object: &Path) -> Result<PathBuf> {
    let (stock, tree) = (stock(root)?, folder(root)?.join("linux-tlbkit"));
    let ours = root.join("metal/linux");
    let edits = fs::read_to_string(ours.join("edit.sh"))?;
    if fs::read_to_string(tree.join("edited-by")).ok().as_deref() != Some(&edits) {
        if tree.exists() {
            fs::remove_dir_all(&tree).with_context(|| format!("removing {}", tree.display()))?;
        }
        tool(Command::new("cp").arg("-al").arg(&stock).arg(&tree), root)?;
        tool(Command::new("sh").arg(ours.join("edit.sh")).arg(&tree), root)?;
        fs::write(tree.join("edited-by"), &edits)?;
    }
    for file in FILES {
        put(&fs::read(ours.join(file))?, &tree.join(MM).join(file))?;
    }
    put(header(root)?.as_bytes(), &tree.join("arch/x86/include/asm/tlbkit.h"))?;
    put(&fs::read(object)?, &tree.join(MM).join("tlbkit.o_shipped"))?;
    Ok(tree)
}

/// True if nothing has changed since the last build after which all of Linux is built again.
pub(super) fn is_current(root: &Path) -> Result<bool> {
    let tree = folder(root)?.join("linux-tlbkit");
    let edits = fs::read_to_string(root.join("metal/linux/edit.sh"))?;
    let header_is = fs::read_to_string(tree.join("arch/x86/include/asm/tlbkit.h")).unwrap_or_default();
    Ok(fs::read_to_string(tree.join("edited-by")).is_ok_and(|text| text == edits) && header_is == header(root)?)
}

/// The header with the kernel's own types in place of those of a C library.
fn header(root: &Path) -> Result<String> {
    let text = fs::read_to_string(root.join("lib/tlbkit-c/include/tlbkit.h"))?;
    let of_c = |line: &&str| !["#include <stdbool.h>", "#include <stddef.h>"].contains(line);
    let lines: Vec<&str> = text.lines().filter(of_c).collect();
    Ok(lines.join("\n").replace("#include <stdint.h>", "#include <linux/types.h>") + "\n")
}

/// Replaces a file, which may be a link that both trees share, if it is another.
pub(super) fn put(bytes: &[u8], to: &Path) -> Result<()> {
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    _ = fs::remove_file(to);
    fs::write(to, bytes).with_context(|| format!("writing {}", to.display()))
}

/// Lines of Linux that the port takes away and adds, outside its own files.
pub(super) fn changed_lines(root: &Path) -> Result<(usize, usize)> {
    let (stock, tree) = (stock(root)?, folder(root)?.join("linux-tlbkit"));
    let (mut taken, mut added) = (0, 0);
    for file in edited(root)? {
        let output = Command::new("diff").arg(stock.join(&file)).arg(tree.join(&file)).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.is_empty() {
            bail!("edit.sh names {file} and changes nothing in it");
        }
        taken += text.lines().filter(|line| line.starts_with('<')).count();
        added += text.lines().filter(|line| line.starts_with('>')).count();
    }
    Ok((taken, added))
}

/// The files that the script of edits names.
fn edited(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join("metal/linux/edit.sh"))?;
    let words = text.split_whitespace().filter(|word| word.starts_with("$asm/") || word.starts_with("arch/"));
    Ok(words.map(|word| word.replace("$asm", "arch/x86/include/asm")).collect())
}

fn folder(root: &Path) -> Result<PathBuf> {
    let folder = setup::target_dir(root).join("linux");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_for_linux_asks_for_nothing_of_a_c_library() -> Result<()> {
        let text = header(&setup::root()?)?;
        let asked: Vec<&str> = text.lines().filter(|line| line.starts_with("#include")).collect();
        assert_eq!(asked, ["#include <linux/types.h>"]);
        Ok(())
    }

    #[test]
    fn the_files_that_are_edited_are_read_from_the_script() -> Result<()> {
        let files = edited(&setup::root()?)?;
        assert!(files.contains(&"arch/x86/kernel/smpboot.c".to_owned()), "{files:?}");
        assert_eq!(files.len(), 6, "{files:?}");
        Ok(())
    }
}

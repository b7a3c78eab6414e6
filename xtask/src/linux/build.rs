//! The two kernels, built out of their trees, each again only as far as something has changed. The source of Linux is
//! the distribution's package, unpacked twice: as it is, and with the TLB code replaced. And the guest's programs.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use crate::setup::{self, Need, lack, tool};
use crate::{c_library, object};

/// Which of the two kernels: they differ in their TLB code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kernel {
    Stock,
    Tlbkit,
}

impl Kernel {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Tlbkit => "tlbkit",
        }
    }
}

/// Where a kernel is built.
pub(super) fn folder(root: &Path, kernel: Kernel) -> PathBuf {
    setup::target_dir(root).join("linux").join(kernel.name())
}

fn image(folder: &Path) -> PathBuf {
    folder.join("arch/x86/boot/bzImage")
}

pub(super) fn is_built(root: &Path, kernel: Kernel) -> bool {
    image(&folder(root, kernel)).is_file()
}

/// The program of a kernel's build that packs a file system in memory.
pub(super) fn packer(root: &Path) -> Result<PathBuf> {
    let of = |kernel| folder(root, kernel).join("usr/gen_init_cpio");
    if is_built(root, Kernel::Stock) {
        return Ok(of(Kernel::Stock));
    }
    kernel(root, Kernel::Tlbkit)?;
    Ok(of(Kernel::Tlbkit))
}

/// Builds a kernel and returns its image.
pub(super) fn kernel(root: &Path, kernel: Kernel) -> Result<PathBuf> {
    let tree = match kernel {
        Kernel::Stock => stock(root)?,
        Kernel::Tlbkit => replaced(root, &object(root)?)?,
    };
    let folder = folder(root, kernel);
    fs::create_dir_all(&folder)?;
    configure(root, &tree, &folder)?;
    compile(&tree, &folder)
}

/// How the library is built: without checks, and with the kernel's functions found by name, but for the interrupt flag.
/// The instructions are the kernel's own, since isolation has more to do. Optimized as all of Linux is (`-O2`).
const FORM: [&str; 5] = ["--no-default-features", "--features", "flags", "--config", "profile.kernel.opt-level=2"];

/// The library as one relocatable file that a kernel's own build links like a separate object.
pub(super) fn object(root: &Path) -> Result<PathBuf> {
    let archive = c_library::build(root, "linux/archive", &FORM)?;
    let folder = setup::target_dir(root).join("linux/object");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let file = folder.join("tlbkit.o");
    object::make(&archive, &file)?;
    Ok(file)
}

/// What is built of `tree` as it is now.
pub(super) fn compile(tree: &Path, folder: &Path) -> Result<PathBuf> {
    let jobs = available_parallelism().map_or(1, |count| count.get());
    if !image(folder).is_file() {
        println!("linux: building {} the first time, some minutes", folder.display());
    }
    make(tree, folder, &[&format!("-j{jobs}"), "bzImage"])?;
    Ok(image(folder))
}

/// The smallest configuration and what ours adds; nothing if that was done.
fn configure(root: &Path, tree: &Path, folder: &Path) -> Result<()> {
    let (ours, done) = (fs::read_to_string(root.join("metal/linux/config"))?, folder.join("configured-by"));
    if fs::read_to_string(&done).is_ok_and(|text| text == ours) {
        return Ok(());
    }
    make(tree, folder, &["tinyconfig"])?;
    let file = folder.join(".config");
    let smallest = fs::read_to_string(&file)?;
    fs::write(&file, smallest + &ours)?;
    make(tree, folder, &["olddefconfig"])?;
    let made = fs::read_to_string(&file)?;
    if let Some(lost) = ours.lines().find(|line| line.starts_with("CONFIG_") && !made.lines().any(|word| word == *line))
    {
        bail!("metal/linux/config: this source has no {lost}");
    }
    Ok(fs::write(done, ours)?)
}

/// Runs the kernel's own build; what it says goes into a file, and its end is told if it fails.
fn make(tree: &Path, folder: &Path, arguments: &[&str]) -> Result<()> {
    let log = folder.join("make.log");
    let file = fs::File::create(&log)?;
    let mut make = Command::new("make");
    make.arg("-s").arg("-C").arg(tree).arg(format!("O={}", folder.display())).args(arguments);
    // A build that runs inside another one, as under cargo, must not take its settings.
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("CARGO_MAKEFLAGS");
    let status = make.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).status()?;
    if status.success() {
        return Ok(());
    }
    let text = fs::read_to_string(&log)?;
    let first =
        text.lines().find(|line| line.contains("error") || line.contains("***")).unwrap_or("it does not say why");
    bail!("Linux does not build: {first} (all of it: {})", log.display())
}

/// The package, its archive, and the folder in it.
const PACKAGE: &str = "linux-source-6.12";
const ARCHIVE: &str = "/usr/src/linux-source-6.12.tar.xz";
/// What else a kernel's build wants.
pub(super) const NEEDS: &[Need] = &[
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

/// The source as the distribution has it.
pub(super) fn stock(root: &Path) -> Result<PathBuf> {
    let (folder, tree) = (sources(root)?, sources(root)?.join(PACKAGE));
    if !tree.join("Makefile").is_file() {
        println!("linux: unpacking {ARCHIVE}");
        tool(Command::new("tar").args(["xJf", ARCHIVE]), &folder)?;
    }
    Ok(tree)
}

/// The headers that programs take from this kernel, in a separate folder.
pub(super) fn headers(root: &Path) -> Result<PathBuf> {
    let (tree, built) = (stock(root)?, sources(root)?.join("headers-build"));
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
    let (stock, tree) = (stock(root)?, sources(root)?.join("linux-tlbkit"));
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
    let tree = sources(root)?.join("linux-tlbkit");
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
    let (stock, tree) = (stock(root)?, sources(root)?.join("linux-tlbkit"));
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

fn sources(root: &Path) -> Result<PathBuf> {
    let folder = setup::target_dir(root).join("linux");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

const GUEST_FLAGS: &str = "-std=gnu11 -O2 -Wall -Wextra -Werror -static -pthread";

/// A file system for the kernel to begin with.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) image: PathBuf,
}

impl Guest {
    /// Compiles the programs and says where they are.
    pub(super) fn compile(root: &Path) -> Result<PathBuf> {
        let folder = setup::target_dir(root).join("linux/guest");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let program = folder.join("guest");
        let sources = ["common.c", "check.c", "judge.c", "memory.c", "rows.c", "main.c"];
        let sources = sources.map(|name| Path::new("metal/linux/guest").join(name));
        let mut gcc = Command::new("gcc");
        tool(gcc.args(GUEST_FLAGS.split_whitespace()).args(sources).arg("-o").arg(&program), root)?;
        Ok(program)
    }

    /// Packs them with a shell, if there is one to be had. The program that packs is one of the kernel's own.
    pub(super) fn build(root: &Path) -> Result<Self> {
        Self::pack(root, "initramfs", "")
    }

    /// Packs the guest with `more` files: lines as the kernel's own program takes them.
    pub(super) fn pack(root: &Path, name: &str, more: &str) -> Result<Self> {
        let packer = packer(root)?;
        let program = Self::compile(root)?;
        let folder = setup::target_dir(root).join("linux/guest");
        let mut list = String::from(LIST);
        list += &format!("file /guest {} 0755 0 0\n", program.display());
        if lack(&[Need::Program("busybox", "busybox-static")]).is_none() {
            let shell = setup::find("busybox").context("busybox is gone")?;
            list += &format!("file /bin/busybox {} 0755 0 0\nslink /bin/sh busybox 0777 0 0\n", shell.display());
        }
        list += more;
        fs::write(folder.join(format!("{name}.list")), list)?;
        let image = folder.join(name);
        let script = format!("{} {name}.list > {name}", packer.display());
        tool(Command::new("sh").args(["-c", &script]), &folder)?;
        Ok(Self { image })
    }
}

const LIST: &str = "\
dir /bin 0755 0 0
dir /dev 0755 0 0
dir /proc 0755 0 0
dir /sys 0755 0 0
dir /tmp 0777 0 0
nod /dev/console 0600 0 0 c 5 1
";

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

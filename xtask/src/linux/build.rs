//! The two kernels, built out of their trees, each again only as far as something has changed.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use super::source;
use crate::{c_library, object, setup};

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
        Kernel::Stock => source::stock(root)?,
        Kernel::Tlbkit => source::replaced(root, &object(root)?)?,
    };
    let folder = folder(root, kernel);
    fs::create_dir_all(&folder)?;
    configure(root, &tree, &folder)?;
    compile(&tree, &folder)
}

/// How the library is built: without checks, and with the kernel's functions found by name, but for the interrupt flag.
/// The instructions are the kernel's own, since isolation has more to do. Optimized as all of Linux is (`-O2`).
const FORM: [&str; 5] = ["--no-default-features", "--features", "flags", "--config", "profile.kernel.opt-level=2"];

/// The library as one relocatable file that a kernel's own build links like an object of its own.
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

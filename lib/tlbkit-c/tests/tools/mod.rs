//! What the tests of the archive share: building it as a kernel's author does, and running tools.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How a kernel's own objects are compiled.
pub(crate) const KERNEL_FLAGS: &[&str] = &[
    "-ffreestanding",
    "-mno-red-zone",
    "-mcmodel=kernel",
    "-mgeneral-regs-only",
    "-fno-pic",
    "-O2",
    "-Werror",
    "-Wall",
];

/// The folder of this crate.
pub(crate) fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder for what a test makes.
pub(crate) fn scratch(name: &str) -> Result<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Runs a tool to its end and returns what it printed; what it complains about is the error.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{command:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

/// The archive for a kernel with these features beside the checks: see [`archive_of`].
pub(crate) fn archive(features: &str) -> Result<Option<PathBuf>> {
    archive_of(&format!("archive-{features}"), &["--features", features])
}

/// The archive for a kernel, freshly built in the folder `name` by the command that `kernel.toml` names and these
/// arguments; `None`, said aloud, where the compiler has no such target.
pub(crate) fn archive_of(name: &str, features: &[&str]) -> Result<Option<PathBuf>> {
    let target = "x86_64-unknown-none";
    let libs = run(Command::new("rustc").args(["--print", "target-libdir", "--target", target]))?;
    if !Path::new(libs.trim()).is_dir() {
        println!("skipped: no target {target}; to have it, run: rustup target add {target}");
        return Ok(None);
    }
    let target_dir = scratch(name)?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(crate_dir().join("../..")).env("CARGO_TARGET_DIR", &target_dir);
    cargo.args(["rustc", "--quiet", "--config", "lib/tlbkit-c/kernel.toml", "--package", "tlbkit-c"]);
    cargo.args(["--profile", "kernel", "--crate-type", "staticlib"]).args(features);
    run(&mut cargo)?;
    Ok(Some(target_dir.join(target).join("kernel/libtlbkit_c.a")))
}

//! The kernel's image, built by cargo from the source tree that this program came from or that it is run in.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// What it is built for.
const TARGET: &str = "x86_64-unknown-none";
const NAME: &str = "tlbkit-kernel";

/// Builds it, if it is not up to date, and says where it is.
pub(super) fn build() -> Result<PathBuf> {
    let root = root().context("no source tree here: boot needs the folder kernel/ of a clone; run it inside one")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    let target = target.join("kernel");
    let built = Command::new("cargo")
        .args(["build", "--release", "--quiet"])
        .current_dir(root.join("kernel"))
        .env("CARGO_TARGET_DIR", &target)
        // The kernel has settings of its own.
        .env_remove("RUSTFLAGS")
        .output()
        .context("cargo, which builds the kernel, does not start")?;
    let message = String::from_utf8_lossy(&built.stderr);
    let first = message.lines().find(|line| line.starts_with("error")).unwrap_or("see cargo build in kernel/");
    ensure!(built.status.success(), "the kernel does not build (is the target {TARGET} installed?): {first}");
    Ok(target.join(TARGET).join("release").join(NAME))
}

/// The nearest folder with the kernel: around the current one, else where this program was built.
fn root() -> Option<PathBuf> {
    let here = env::current_dir().unwrap_or_default();
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().chain(home.ancestors()).find(|folder| holds_kernel(folder)).map(Path::to_path_buf)
}

fn holds_kernel(folder: &Path) -> bool {
    let manifest = std::fs::read_to_string(folder.join("kernel/Cargo.toml"));
    manifest.is_ok_and(|text| text.contains(NAME))
}

//! The kernel's image, from the source tree that this program came from or that it is run in.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What the manifest of the kernel calls it.
const NAME: &str = "tlbkit-kernel";

/// Builds it, if it is not up to date, and says where it is.
pub(super) fn build() -> Result<PathBuf> {
    let root =
        root().context("no source tree here: boot needs the folder metal/kernel/ of a clone; run it inside one")?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
    Ok(tlbkit_boot::build(&root.join("metal/kernel"), &target.join("kernel"))?)
}

/// The nearest folder with the kernel: around the current one, else where this program was built.
fn root() -> Option<PathBuf> {
    let here = env::current_dir().unwrap_or_default();
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().chain(home.ancestors()).find(|folder| holds_kernel(folder)).map(Path::to_path_buf)
}

fn holds_kernel(folder: &Path) -> bool {
    let manifest = std::fs::read_to_string(folder.join("metal/kernel/Cargo.toml"));
    manifest.is_ok_and(|text| text.contains(NAME))
}

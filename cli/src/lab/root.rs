//! The option `--root`: the folder with the sys, proc and run of the machine that a verb looks at.

use std::path::Path;

use anyhow::{Result, ensure};

/// Refuses a root that is no folder.
pub(crate) fn check_root(root: &Path) -> Result<()> {
    let root_text = root.display();
    ensure!(root.is_dir(), "--root {root_text}: no such folder; want the one with a machine's sys, proc and run");
    Ok(())
}

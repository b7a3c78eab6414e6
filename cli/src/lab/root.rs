//! Whose machine a verb looks at: the folder with its sys, proc and run.

use std::path::Path;

use anyhow::{Result, ensure};

/// Whether there is such a folder.
pub(crate) fn check_root(root: &Path) -> Result<()> {
    let root_text = root.display();
    ensure!(root.is_dir(), "--root {root_text}: no such folder; want the one with a machine's sys, proc and run");
    Ok(())
}

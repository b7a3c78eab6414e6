//! A copy of some crates as a separate workspace, in which they can be changed and built without touching the tree.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup::{self, output};

/// How many CPUs a word of the protocol's sets names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sets {
    /// 64, as kernels link it: a checked machine's sets are single words.
    Wide,
    /// Two, under `cfg(narrow_sets)`: on four CPUs sets of several words and inboxes with a top, as above 512 CPUs.
    Narrow,
}

impl Sets {
    pub(crate) const ALL: [Self; 2] = [Self::Wide, Self::Narrow];

    /// What the compiler is told.
    pub(crate) const fn flags(self) -> &'static str {
        match self {
            Self::Wide => "",
            Self::Narrow => "--cfg narrow_sets",
        }
    }

    /// Has cargo give the same to the compiler for the crates of the workspace alone. Both builds may then be in one
    /// folder, in which what they link of other people is built once.
    pub(crate) fn give(self, cargo: &mut Command) -> Result<()> {
        if !self.flags().is_empty() {
            cargo.env("RUSTC_WORKSPACE_WRAPPER", setup::root()?.join("xtask/with-flags.sh"));
            cargo.env("TLBKIT_FLAGS", self.flags());
        }
        Ok(())
    }

    /// The folder that keeps one build from the other's way.
    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }
}

/// What a copy with the protocol in it must have too: cargo looks for it even where its feature is off.
pub(crate) const OBSERVED: &str = "sim/tlbkit-observed";
/// What a copy with a library in it must have too: cargo looks for what tests need even where it builds none.
pub(crate) const TESTKIT: &str = "lib/tlbkit-testkit";

/// The copy, with a build folder that outlives it, so that only what was changed is built again.
pub(crate) struct Workshop {
    /// Root of the copied workspace.
    pub(crate) root: PathBuf,
    /// Where cargo builds it.
    pub(crate) target: PathBuf,
}

impl Workshop {
    /// Copies `crates`, each a folder of the workspace at `tree`, to `place`.
    pub(crate) fn new(tree: &Path, place: &Path, crates: &[&str]) -> Result<Self> {
        let workshop = Self { root: place.join("tree"), target: place.join("build") };
        crates.iter().try_for_each(|name| workshop.add(tree, name))?;
        fs::copy(tree.join("Cargo.lock"), workshop.root.join("Cargo.lock"))?;
        let manifest = manifest(&fs::read_to_string(tree.join("Cargo.toml"))?, crates)?;
        write_if_new(&workshop.root.join("Cargo.toml"), manifest)?;
        Ok(workshop)
    }

    /// Copies a folder of the tree.
    pub(crate) fn add(&self, tree: &Path, folder: &str) -> Result<()> {
        copy_folder(&tree.join(folder), &self.root.join(folder)).with_context(|| format!("copying {folder}"))
    }

    /// Does `work` while a unified diff is applied.
    pub(crate) fn with<T>(&self, patch: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.git(&[], patch).context("the patch does not apply any more")?;
        let done = work();
        self.git(&["--reverse"], patch)?;
        done
    }

    fn git(&self, args: &[&str], patch: &Path) -> Result<()> {
        let mut git = Command::new("git");
        git.args(["apply", "--whitespace=nowarn"]).args(args).arg(patch).current_dir(&self.root);
        // Without the ceiling git would find the repository around the build folder, and skip what it does not track.
        git.env("GIT_CEILING_DIRECTORIES", self.root.parent().unwrap_or(&self.root));
        output(&mut git).map(drop)
    }
}

/// The workspace's manifest with `crates` as its only members.
fn manifest(whole: &str, crates: &[&str]) -> Result<String> {
    let mut manifest: toml::Table = whole.parse()?;
    let workspace = manifest.get_mut("workspace").and_then(toml::Value::as_table_mut).context("no [workspace]")?;
    let members = crates.iter().map(|&name| toml::Value::from(name)).collect::<Vec<_>>();
    workspace.insert("members".to_owned(), members.into());
    workspace.remove("default-members");
    workspace.remove("exclude");
    Ok(manifest.to_string())
}

/// Copies what differs and removes what is gone, so that times of unchanged files stay and cargo builds little.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !from.join(entry.file_name()).exists() {
            if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
        }
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            write_if_new(&target, &fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

fn write_if_new(file: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    if fs::read(file).ok().as_deref() != Some(content.as_ref()) {
        fs::write(file, content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copied_manifest_keeps_what_crates_inherit() -> Result<()> {
        let whole =
            "[workspace]\nmembers = [\"a\", \"b\"]\nexclude = [\"c\"]\n[workspace.package]\nedition = \"2024\"\n";
        let copied = manifest(whole, &["b"])?;
        assert!(copied.contains("members = [\"b\"]") && copied.contains("edition") && !copied.contains("exclude"));
        Ok(())
    }
}

//! The crates that a kernel links build with the oldest Rust that they promise, `rust-version` of the workspace.

use crate::outcome::{Outcome, cargo};
use crate::setup::{self, Ready};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const CRATES: &str =
    "--package tlbkit --package tlbkit-arch --package tlbkit-pmap --package tlbkit-x86 --package tlbkit-c";
/// In a folder of its own: another compiler's results would be thrown away each time.
const TARGET_DIR: &str = "target/oldest";

/// The step.
pub(crate) fn check(root: &Path) -> Result<Outcome> {
    let manifest = root.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).with_context(|| format!("reading {}", manifest.display()))?;
    let version = promised(&text).context("Cargo.toml: no rust-version")?;
    match setup::toolchain(version) {
        Ready::Yes(()) => build(root, version),
        Ready::No(how) => Ok(Outcome::Skipped(format!("no Rust {version}; {how}"))),
    }
}

fn build(root: &Path, version: &str) -> Result<Outcome> {
    Ok(match cargo(root, &format!("+{version} check --quiet --target-dir {TARGET_DIR} {CRATES}"))? {
        Outcome::Ok(_) => Outcome::Ok(format!("built with Rust {version}")),
        other => other,
    })
}

fn promised(manifest: &str) -> Option<&str> {
    let value = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "))?;
    value.strip_prefix('"')?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::promised;

    #[test]
    fn the_promised_version_is_read() {
        assert_eq!(promised("[a]\nrust-version = \"1.88\"\n"), Some("1.88"));
        assert_eq!(promised("[a]\nversion = \"1.88\"\n"), None);
    }
}

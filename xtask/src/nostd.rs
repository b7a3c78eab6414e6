//! The crates that a kernel links hold no std: built for a target that has none, or, where that target is not to be
//! had, read for the two lines that decide it.

use crate::outcome::{Outcome, cargo};
use crate::setup::{self, Ready};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const TARGET: &str = "x86_64-unknown-none";
const CRATES: &[&str] = &["lib/tlbkit", "lib/tlbkit-arch", "lib/tlbkit-pmap", "sim/tlbkit-workloads", "lib/tlbkit-x86"];

/// The step: a build if that is possible here.
pub(crate) fn check(root: &Path) -> Result<Outcome> {
    match setup::target(TARGET) {
        Ready::Yes(()) => build(root),
        Ready::No(how) => check_sources(root, &how),
    }
}

fn build(root: &Path) -> Result<Outcome> {
    let packages: Vec<String> = CRATES.iter().map(|path| format!("--package {}", package(path))).collect();
    let line = format!("build --quiet --target {TARGET} --no-default-features {}", packages.join(" "));
    Ok(match cargo(root, &line)? {
        Outcome::Ok(_) => Outcome::Ok(format!("built for {TARGET}")),
        other => other,
    })
}

fn check_sources(root: &Path, how: &str) -> Result<Outcome> {
    for path in CRATES {
        let lib = root.join(path).join("src/lib.rs");
        let text = fs::read_to_string(&lib).with_context(|| format!("reading {}", lib.display()))?;
        if let Some(why) = std_in(&text) {
            return Ok(Outcome::Failed(format!("{path}/src/lib.rs {why}")));
        }
    }
    Ok(Outcome::Ok(format!("sources read only, no target {TARGET}; {how}")))
}

/// The package that lies in the folder `path`.
fn package(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Why a crate root is not free of std, if it is not. `tidy` reads the other files.
fn std_in(lib: &str) -> Option<&'static str> {
    let mut lines = lib.lines().map(str::trim);
    if !lines.clone().any(|line| line == "#![no_std]") {
        return Some("has no `#![no_std]`");
    }
    lines.any(|line| line == "extern crate std;").then_some("links std")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_root_with_std_is_found() {
        assert_eq!(std_in("//! A.\n#![no_std]\npub mod a;\n"), None);
        assert_eq!(std_in("//! #![no_std]\n"), Some("has no `#![no_std]`"));
        assert_eq!(std_in("#![no_std]\nextern crate std;\n"), Some("links std"));
    }
}

//! What a kernel links, as it is handed out: built without std, built with the oldest Rust that is promised, and packed
//! as a registry would have it.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c_library::tool;
use crate::outcome::{StepOutcome, cargo, cargo_command, run};
use crate::setup::{self, Ready};

/// The folders of `lib/`, but for what their tests run on; all else but [`OBSERVED_NAME`] says `publish = false`.
pub(crate) const LIBRARIES: &[&str] = &["tlbkit", "tlbkit-arch", "tlbkit-pmap", "tlbkit-x86", "tlbkit-c"];
/// What `tlbkit` links for simulators and checkers alone. A registry takes no package that names one it does not have,
/// be it for a feature.
const OBSERVED_NAME: &str = "tlbkit-observed";
/// Crates that must build for [`BARE_TARGET`]: the libraries but the C interface, whose archive has a step of its own,
/// and what the test kernel shares with the simulator.
const WITHOUT_STD: &[&str] =
    &["lib/tlbkit", "lib/tlbkit-arch", "lib/tlbkit-pmap", "sim/tlbkit-workloads", "lib/tlbkit-x86"];
const BARE_TARGET: &str = "x86_64-unknown-none";
/// All crates of the workspace have one version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The oldest Rust that all of them promise.
const OLDEST_RUST: &str = env!("CARGO_PKG_RUST_VERSION");

/// The step `no_std`: built for a target that has no std, or, where that target is not to be had, read for the two
/// lines of each crate's root that decide it.
pub(crate) fn check_without_std(root: &Path) -> Result<StepOutcome> {
    if let Ready::No(how) = setup::target(BARE_TARGET) {
        return read_roots(root, &how);
    }
    let names = WITHOUT_STD.iter().map(|path| path.rsplit('/').next().unwrap_or(path));
    let line = format!("build --quiet --target {BARE_TARGET} --no-default-features {}", packages(names));
    Ok(cargo(root, &line)?.noting(format!("built for {BARE_TARGET}")))
}

fn read_roots(root: &Path, how: &str) -> Result<StepOutcome> {
    for path in WITHOUT_STD {
        let lib = root.join(path).join("src/lib.rs");
        let text = fs::read_to_string(&lib).with_context(|| format!("reading {}", lib.display()))?;
        if let Some(why) = std_in(&text) {
            return Ok(StepOutcome::Failed(format!("{path}/src/lib.rs {why}")));
        }
    }
    Ok(StepOutcome::Ok(format!("sources read only, no target {BARE_TARGET}; {how}")))
}

/// Why a crate root is not free of std, if it is not. `tidy` reads the other files.
fn std_in(lib: &str) -> Option<&'static str> {
    let mut lines = lib.lines().map(str::trim);
    // Tests, and what loom explores, are programs of a host.
    let has_none = |line| line == "#![no_std]" || line == "#![cfg_attr(not(any(test, loom)), no_std)]";
    if !lines.clone().any(has_none) {
        return Some("has no `#![no_std]`");
    }
    lines.any(|line| line == "extern crate std;").then_some("links std")
}

/// The step `oldest Rust`: the libraries build with `rust-version` of the workspace.
pub(crate) fn check_oldest_rust(root: &Path) -> Result<StepOutcome> {
    if let Ready::No(how) = setup::toolchain(OLDEST_RUST) {
        return Ok(StepOutcome::Skipped(format!("no Rust {OLDEST_RUST}; {how}")));
    }
    let names = packages(LIBRARIES.iter().copied());
    let mut command = cargo_command(root, &format!("+{OLDEST_RUST} check --quiet {names}"));
    // In a folder of its own: another compiler's results would be thrown away each time.
    command.env("CARGO_TARGET_DIR", setup::target_dir(root).join("oldest"));
    Ok(run(&mut command)?.noting(format!("built with Rust {OLDEST_RUST}")))
}

/// The step `packages`: each library is packed, and built from its package alone, where [`OBSERVED_NAME`] is not to be
/// had: no kernel needs it. What is packed is the working tree, committed or not; no registry is asked, and nothing is
/// sent anywhere.
///
/// Cargo's own check of packages that need each other fails where something stands in for crates.io, as a mirror or a
/// folder does. So the packages are unpacked here, and a crate that uses all of them is checked.
pub(crate) fn check_packages(root: &Path) -> Result<StepOutcome> {
    let names = packages(LIBRARIES.iter().copied().chain([OBSERVED_NAME]));
    let packed =
        cargo(root, &format!("package --quiet --allow-dirty --offline --no-verify --exclude-lockfile {names}"))?;
    if matches!(packed, StepOutcome::Failed(_)) {
        return Ok(packed);
    }
    let user = unpack(root)?;
    let mut command = cargo_command(root, "check --quiet --offline --manifest-path");
    command.arg(user).env("CARGO_TARGET_DIR", unpacked_dir(root).join("target"));
    Ok(run(&mut command)?.noting(format!("{} crates packed, {} built", LIBRARIES.len() + 1, LIBRARIES.len())))
}

fn unpacked_dir(root: &Path) -> PathBuf {
    setup::target_dir(root).join("unpacked")
}

/// Unpacks the packages side by side, and returns the manifest of a crate that uses them all and nothing of the tree.
fn unpack(root: &Path) -> Result<PathBuf> {
    let folder = unpacked_dir(root);
    let user = folder.join("user");
    fs::create_dir_all(user.join("src")).with_context(|| format!("making {}", user.display()))?;
    for name in LIBRARIES {
        let package = format!("{name}-{VERSION}");
        let file = setup::target_dir(root).join(format!("package/{package}.crate"));
        if folder.join(&package).exists() {
            fs::remove_dir_all(folder.join(&package))?;
        }
        tool(Command::new("tar").args(["-x", "-z", "-f"]).arg(&file), &folder)?;
    }
    // The versions of other crates are those of the tree: no registry is asked for newer ones.
    fs::copy(root.join("Cargo.lock"), user.join("Cargo.lock")).context("copying Cargo.lock")?;
    fs::write(user.join("src/lib.rs"), "")?;
    let manifest = user.join("Cargo.toml");
    fs::write(&manifest, manifest_of_user()).with_context(|| format!("writing {}", manifest.display()))?;
    Ok(manifest)
}

/// Each library is a dependency by its version, and that version is the unpacked one.
fn manifest_of_user() -> String {
    let head = "[package]\nname = \"user\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n";
    let lines = |line: fn(&str) -> String| LIBRARIES.iter().map(|name| line(name)).collect::<String>();
    let needed = lines(|name| format!("{name} = \"{VERSION}\"\n"));
    let unpacked = lines(|name| format!("{name} = {{ path = \"../{name}-{VERSION}\" }}\n"));
    format!("{head}\n[dependencies]\n{needed}\n[patch.crates-io]\n{unpacked}")
}

/// The arguments with which cargo takes these packages.
fn packages<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("--package {name}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_root_with_std_is_found() {
        assert_eq!(std_in("//! A.\n#![no_std]\npub mod a;\n"), None);
        assert_eq!(std_in("//! A.\n#![cfg_attr(not(any(test, loom)), no_std)]\n"), None);
        assert_eq!(std_in("//! #![no_std]\n"), Some("has no `#![no_std]`"));
        assert_eq!(std_in("#![cfg_attr(not(feature), no_std)]\n"), Some("has no `#![no_std]`"));
        assert_eq!(std_in("#![no_std]\nextern crate std;\n"), Some("links std"));
    }

    #[test]
    fn the_libraries_and_the_machine_of_their_tests_are_the_folders_of_lib() -> Result<()> {
        let folders = fs::read_dir(setup::root()?.join("lib"))?;
        let mut names: Vec<_> = folders.map(|folder| Ok(folder?.file_name().into_string())).collect::<Result<_>>()?;
        names.sort();
        let mut listed: Vec<_> = LIBRARIES.iter().chain(&["tlbkit-testkit"]).map(|&name| Ok(name.to_owned())).collect();
        listed.sort();
        assert_eq!(names, listed);
        Ok(())
    }
}

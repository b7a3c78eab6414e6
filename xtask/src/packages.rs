//! `cargo xtask packages`: what a kernel links, packed as a registry would have it.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup::{self, tool};

/// The folders of `lib/`, but for what their tests run on; all else but [`OBSERVED_NAME`] says `publish = false`.
const LIBRARIES: &[&str] = &["tlbkit", "tlbkit-arch", "tlbkit-pmap", "tlbkit-x86", "tlbkit-c"];
/// What `tlbkit` links for simulators and checkers alone. A registry takes no package that names one it does not have,
/// be it for a feature.
const OBSERVED_NAME: &str = "tlbkit-observed";
/// All crates of the workspace have one version.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Each library is packed, and built from its package alone, where [`OBSERVED_NAME`] is not to be
/// had: no kernel needs it. What is packed is the working tree, committed or not; no registry is asked, and nothing is
/// sent anywhere.
///
/// Cargo's own check of packages that need each other fails where something stands in for crates.io, as a mirror or a
/// folder does. So the packages are unpacked here, and a crate that uses all of them is checked.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let mut package = Command::new("cargo");
    package.args(["package", "--quiet", "--allow-dirty", "--offline", "--no-verify", "--exclude-lockfile"]);
    LIBRARIES.iter().chain([&OBSERVED_NAME]).for_each(|name| _ = package.args(["--package", name]));
    tool(&mut package, root)?;
    let mut check = Command::new("cargo");
    check.args(["check", "--quiet", "--offline", "--manifest-path"]).arg(unpack(root)?);
    tool(check.env("CARGO_TARGET_DIR", unpacked_dir(root).join("target")), root)?;
    Ok(true)
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

#[cfg(test)]
mod tests {
    use super::*;

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

//! What a check needs on the machine, and how it gets it: a program or a compiler target, installed where that may be
//! done without asking, or else the one command that would do it.

use anyhow::{Context, Result};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Whether something that a check needs is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ready<T> {
    /// Everything is ready.
    Yes(T),
    /// Something is missing. The text is a command or a sentence that says what would change that.
    No(String),
}

/// Finds one of `names` on the PATH, installing `package` first if this is root on a Debian-like system.
pub(crate) fn program(names: &[&str], package: &str) -> Ready<PathBuf> {
    if let Some(found) = find(names) {
        return Ready::Yes(found);
    }
    let command = format!("apt-get install --yes --no-install-recommends {package}");
    if !is_root() || find(&["apt-get"]).is_none() {
        return Ready::No(format!("to have it, run: sudo {command}"));
    }
    println!("installing {package}");
    let installed = shell(&command) || (shell("apt-get update") && shell(&command));
    match find(names) {
        Some(found) if installed => Ready::Yes(found),
        _ => Ready::No(format!("`{command}` did not work")),
    }
}

/// Finds a file, installing `package`, which has it, first if this is root on a Debian-like system.
pub(crate) fn file(path: &str, package: &str) -> Ready<PathBuf> {
    let file = PathBuf::from(path);
    if file.is_file() {
        return Ready::Yes(file);
    }
    let command = format!("apt-get install --yes --no-install-recommends {package}");
    if !is_root() || find(&["apt-get"]).is_none() {
        return Ready::No(format!("to have it, run: sudo {command}"));
    }
    println!("installing {package}");
    let installed = shell(&command) || (shell("apt-get update") && shell(&command));
    if installed && file.is_file() { Ready::Yes(file) } else { Ready::No(format!("`{command}` did not work")) }
}

fn find(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let dirs: Vec<PathBuf> = env::split_paths(&path).collect();
    let candidates = names.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    candidates.into_iter().find(|file| file.is_file())
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Runs a package manager's line quietly and without questions, one at a time: two at once would refuse each other.
fn shell(line: &str) -> bool {
    static RUNNING: Mutex<()> = Mutex::new(());
    let _alone = RUNNING.lock();
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Makes sure that the compiler can build for `target`.
pub(crate) fn target(target: &str) -> Ready<()> {
    if has_target(target) {
        return Ready::Yes(());
    }
    let add = Command::new("rustup").args(["target", "add", target]).stdin(Stdio::null()).status();
    match add {
        Ok(status) if status.success() && has_target(target) => Ready::Yes(()),
        _ => Ready::No(format!("to have it, run: rustup target add {target}")),
    }
}

/// Makes sure that there is a Rust of exactly this version.
pub(crate) fn toolchain(version: &str) -> Ready<()> {
    if has_toolchain(version) {
        return Ready::Yes(());
    }
    let line = ["toolchain", "install", version, "--profile", "minimal", "--no-self-update"];
    let installed = Command::new("rustup").args(line).stdin(Stdio::null()).stderr(Stdio::null()).status();
    match installed {
        Ok(status) if status.success() => Ready::Yes(()),
        _ => Ready::No(format!("to have it, run: rustup {}", line.join(" "))),
    }
}

fn has_toolchain(version: &str) -> bool {
    let mut rustc = Command::new("rustup");
    rustc.args(["run", version, "rustc", "--version"]).stdin(Stdio::null()).stderr(Stdio::null());
    rustc.output().is_ok_and(|output| output.status.success())
}

/// The folder of the compiler's own LLVM tools, which read what its instrumentation writes.
pub(crate) fn llvm_tools() -> Ready<PathBuf> {
    if let Some(folder) = has_llvm_tools() {
        return Ready::Yes(folder);
    }
    let line = ["component", "add", "llvm-tools"];
    let added = Command::new("rustup").args(line).stdin(Stdio::null()).status();
    match has_llvm_tools() {
        Some(folder) if added.is_ok_and(|status| status.success()) => Ready::Yes(folder),
        _ => Ready::No(format!("to have llvm-cov, run: rustup {}", line.join(" "))),
    }
}

fn has_llvm_tools() -> Option<PathBuf> {
    // Beside the host's libraries lies a folder of programs.
    let output = Command::new("rustc").args(["--print", "target-libdir"]).output().ok()?;
    let folder = Path::new(String::from_utf8_lossy(&output.stdout).trim()).parent()?.join("bin");
    folder.join("llvm-cov").is_file().then_some(folder)
}

/// True if the compiler's own folder holds the target's core library, whoever put it there.
fn has_target(target: &str) -> bool {
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|output| {
        let dir = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success() && Path::new(&dir).is_dir()
    })
}

/// The root of the repository: the folder above this crate, as built, or the current one if the tree has moved.
pub(crate) fn root() -> Result<PathBuf> {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf);
    let given =
        env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).and_then(|dir| dir.parent().map(Path::to_path_buf));
    let root = given.or(built_in).filter(|root| root.join("Cargo.toml").is_file());
    root.map_or_else(|| env::current_dir().context("finding the current folder"), Ok)
}

/// The folder that cargo builds into.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_on_the_path_is_found_and_a_missing_one_is_not() {
        assert!(find(&["no-such-program-anywhere", "sh"]).is_some());
        assert_eq!(find(&["no-such-program-anywhere"]), None);
    }

    #[test]
    fn an_unknown_target_is_absent_and_the_host_is_present() {
        assert!(!has_target("x86_64-unknown-nowhere"));
        assert!(has_target("x86_64-unknown-linux-gnu") || cfg!(not(all(target_arch = "x86_64", target_os = "linux"))));
    }

    #[test]
    fn the_root_holds_the_workspace() -> Result<()> {
        assert!(root()?.join("xtask/src/setup.rs").is_file());
        Ok(())
    }
}

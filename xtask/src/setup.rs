//! What a check needs on the machine, and how it gets it: a program or a compiler target, installed where that may be
//! done without asking, or else the one command that would do it.

use anyhow::{Context, Result};
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Something that a check cannot do without.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// A program on the PATH, and the Debian package that has it.
    Program(&'static str, &'static str),
    /// A file, and the package that has it.
    File(&'static str, &'static str),
    /// A target of the compiler.
    Target(&'static str),
    /// A version of Rust.
    Rust(&'static str),
    /// What a workspace outside of this one links, by its folder.
    Crates(&'static str),
}

impl Need {
    /// What would change that it is missing here; nothing if it is here, perhaps by now.
    pub(crate) fn lack(&self) -> Option<String> {
        if self.is_met() {
            return None;
        }
        let (command, may_install) = match *self {
            Self::Program(_, package) | Self::File(_, package) => {
                let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
                (format!("apt-get install --yes --no-install-recommends {package}"), is_root && on_path("apt-get"))
            }
            Self::Target(target) => (format!("rustup target add {target}"), true),
            Self::Rust(version) => {
                (format!("rustup toolchain install {version} --profile minimal --no-self-update"), true)
            }
            Self::Crates(folder) => (format!("sh {}", fetcher(folder)), true),
        };
        if !may_install {
            return Some(format!("to have it, run: sudo {command}"));
        }
        let is_done = shell(&command) || command.starts_with("apt-get") && shell("apt-get update") && shell(&command);
        if is_done && self.is_met() { None } else { Some(format!("this did not work: {command}")) }
    }

    fn is_met(&self) -> bool {
        let answers = |line: &[&str]| {
            let mut command = Command::new(line[0]);
            command.args(&line[1..]).stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
        };
        match *self {
            Self::Program(name, _) => on_path(name),
            Self::File(path, _) => Path::new(path).is_file(),
            // The compiler's own folder holds the target's core library, if anything put it there.
            Self::Target(target) => {
                let libraries = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
                libraries.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_dir())
            }
            Self::Rust(version) => answers(&["rustup", "run", version, "rustc", "--version"]),
            Self::Crates(folder) => answers(&["sh", &fetcher(folder), "--offline"]),
        }
    }
}

/// The script that gets the crates of a workspace, or says by `--offline` whether they are there.
fn fetcher(folder: &str) -> String {
    root().unwrap_or_default().join(folder).join("fetch.sh").display().to_string()
}

/// What is missing of `needs` and cannot be installed.
pub(crate) fn lack<'a>(needs: impl IntoIterator<Item = &'a Need>) -> Option<String> {
    needs.into_iter().find_map(Need::lack)
}

/// Where a program is.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|file| file.is_file())
}

fn on_path(name: &str) -> bool {
    find(name).is_some()
}

/// Runs an installer's line without questions, one at a time: two at once would refuse each other.
fn shell(line: &str) -> bool {
    static RUNNING: Mutex<()> = Mutex::new(());
    let _alone = RUNNING.lock();
    let mut command = Command::new("sh");
    command.args(["-c", line]).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}

/// Runs a tool in `dir`; what it complains about goes where our errors go.
pub(crate) fn tool(command: &mut Command, dir: &Path) -> Result<()> {
    let status = command.current_dir(dir).status().with_context(|| format!("running {command:?}"))?;
    anyhow::ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// What a tool writes, if it succeeds.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?}: {}: {}", output.status, complaint.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The root of the repository: the folder above this crate, as built, or the current one if the tree has moved.
pub(crate) fn root() -> Result<PathBuf> {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf();
    let folders = [env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from), Some(built_in)];
    let roots = folders.into_iter().flatten().filter_map(|folder| folder.parent().map(Path::to_path_buf));
    let root = roots.into_iter().find(|root| root.join("Cargo.toml").is_file());
    root.map_or_else(|| env::current_dir().context("finding the current folder"), Ok)
}

/// The folder that cargo builds into.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_here_is_not_lacking_and_what_is_nowhere_is_named_with_its_command() {
        assert_eq!(Need::Program("sh", "dash").lack(), None);
        assert!(!Need::Program("no-such-program-anywhere", "none").is_met());
        assert!(!Need::Target("x86_64-unknown-nowhere").is_met());
        let how = Need::Rust("0.1").lack();
        assert!(how.is_some_and(|how| how.contains("rustup toolchain install 0.1")));
    }

    #[test]
    fn a_tool_that_fails_is_an_error_with_what_it_wrote() {
        let error = output(Command::new("sh").args(["-c", "echo lost >&2; exit 3"])).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("lost") && text.contains("sh")));
    }

    #[test]
    fn the_root_holds_the_workspace() -> Result<()> {
        assert!(root()?.join("xtask/src/setup.rs").is_file());
        Ok(())
    }
}

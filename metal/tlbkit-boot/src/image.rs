//! The kernel's image, built by cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, TARGET};

const NAME: &str = "tlbkit-kernel";

/// Builds the kernel in `folder` into `target`, if it is not up to date, and says where the image is.
///
/// # Errors
/// If cargo does not start, or the kernel does not build.
pub fn build(folder: &Path, target: &Path) -> Result<PathBuf, Error> {
    let built = Command::new("cargo")
        .args(["build", "--release", "--quiet"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        // The kernel has settings of its own.
        .env_remove("RUSTFLAGS")
        .output()
        .map_err(Error::Cargo)?;
    if built.status.success() {
        Ok(target.join(TARGET).join("release").join(NAME))
    } else {
        Err(Error::Build(complaint(&String::from_utf8_lossy(&built.stderr))))
    }
}

/// The compiler's first error, and where it is.
fn complaint(text: &str) -> String {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("error"));
    let Some(first) = lines.next() else { return "see cargo build in metal/kernel/".to_owned() };
    match lines.next().and_then(|line| line.trim_start().strip_prefix("--> ")) {
        Some(place) => format!("{place}: {first}"),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_told_with_its_place() {
        let text = "warning: x\nerror[E0425]: cannot find y\n  --> src/run.rs:3:5\n   |\nerror: another\n";
        assert_eq!(complaint(text), "src/run.rs:3:5: error[E0425]: cannot find y");
        assert_eq!(complaint("error: no such target\n"), "error: no such target");
        assert_eq!(complaint("killed"), "see cargo build in metal/kernel/");
    }
}

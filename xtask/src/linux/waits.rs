//! The plugin with which the emulator counts instructions that CPUs execute while they wait, and what it writes.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup::{self, tool};

const FLAGS: &str = "-std=gnu11 -O2 -Wall -Wextra -Werror -fPIC -shared";

/// The plugin, and the file that it writes into.
#[derive(Debug)]
pub(super) struct Plugin {
    library: PathBuf,
    lines: PathBuf,
}

/// Instructions of all CPUs in one operation that are no work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waited {
    /// In the kernel, until another CPU has answered or unlocked something.
    pub(super) in_kernel: u64,
    /// In the guest's program: its threads that only run beside the one that works.
    pub(super) in_program: u64,
}

impl Plugin {
    pub(super) fn compile(root: &Path) -> Result<Self> {
        let folder = setup::target_dir(root).join("linux/guest");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let library = folder.join("waits.so");
        let mut gcc = Command::new("gcc");
        gcc.args(FLAGS.split_whitespace()).arg("metal/linux/waits.c").arg("-o").arg(&library);
        tool(&mut gcc, root)?;
        let lines = folder.join("waits.txt");
        Ok(Self { library, lines })
    }

    /// The emulator's options that load it.
    pub(super) fn options(&self) -> [String; 2] {
        ["-plugin".to_owned(), format!("file={},to={}", self.library.display(), self.lines.display())]
    }

    /// What it wrote in the last boot: the operations one after the other.
    pub(super) fn read(&self) -> Result<Vec<Waited>> {
        let text = fs::read_to_string(&self.lines).with_context(|| format!("reading {}", self.lines.display()))?;
        text.lines().map(waited).collect()
    }
}

/// `12 345`.
fn waited(line: &str) -> Result<Waited> {
    let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[in_kernel, in_program]) => Ok(Waited { in_kernel, in_program }),
        _ => bail!("the emulator's plugin wrote `{line}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_instructions_of_the_kernel_and_of_programs() -> Result<()> {
        assert_eq!(waited("12 345")?, Waited { in_kernel: 12, in_program: 345 });
        assert!(waited("12").is_err() && waited("12 x").is_err() && waited("1 2 3").is_err());
        Ok(())
    }
}

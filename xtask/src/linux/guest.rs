//! The guest's programs, and the file system in memory that holds them.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build;
use crate::setup::{self, Need, lack, tool};

const FLAGS: &str = "-std=gnu11 -O2 -Wall -Wextra -Werror -static -pthread";

/// A file system for the kernel to begin with.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) image: PathBuf,
}

impl Guest {
    /// Compiles the programs and says where they are.
    pub(super) fn compile(root: &Path) -> Result<PathBuf> {
        let folder = setup::target_dir(root).join("linux/guest");
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let program = folder.join("guest");
        let sources = ["common.c", "check.c", "judge.c", "memory.c", "rows.c", "main.c"];
        let sources = sources.map(|name| Path::new("metal/linux/guest").join(name));
        let mut gcc = Command::new("gcc");
        tool(gcc.args(FLAGS.split_whitespace()).args(sources).arg("-o").arg(&program), root)?;
        Ok(program)
    }

    /// Packs them with a shell, if there is one to be had. The program that packs is one of the kernel's own.
    pub(super) fn build(root: &Path) -> Result<Self> {
        Self::pack(root, "initramfs", "")
    }

    /// Packs the guest with `more` files: lines as the kernel's own program takes them.
    pub(super) fn pack(root: &Path, name: &str, more: &str) -> Result<Self> {
        let packer = build::packer(root)?;
        let program = Self::compile(root)?;
        let folder = setup::target_dir(root).join("linux/guest");
        let mut list = String::from(LIST);
        list += &format!("file /guest {} 0755 0 0\n", program.display());
        if lack(&[Need::Program("busybox", "busybox-static")]).is_none() {
            let shell = setup::find("busybox").context("busybox is gone")?;
            list += &format!("file /bin/busybox {} 0755 0 0\nslink /bin/sh busybox 0777 0 0\n", shell.display());
        }
        list += more;
        fs::write(folder.join(format!("{name}.list")), list)?;
        let image = folder.join(name);
        let script = format!("{} {name}.list > {name}", packer.display());
        tool(Command::new("sh").args(["-c", &script]), &folder)?;
        Ok(Self { image })
    }
}

const LIST: &str = "\
dir /bin 0755 0 0
dir /dev 0755 0 0
dir /proc 0755 0 0
dir /sys 0755 0 0
dir /tmp 0777 0 0
nod /dev/console 0600 0 0 c 5 1
";

//! `cargo xtask c-library`: the C interface as a kernel's build wants it, in one folder: header, archive, pkg-config
//! file; and one object, the fast form, for builds that take objects alone.
//!
//! The archive is the checked one, with the instructions of the feature `x86`: what a kernel does not call, its
//! linker leaves out. The pkg-config file finds its neighbours wherever the folder is moved to.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tlbkit_boot::TARGET;

use crate::object;
use crate::setup::{self, Need, tool};

/// Where the folder is made, in cargo's.
const FOLDER: &str = "c-library";

const PKG_CONFIG: &str = "\
prefix=${pcfiledir}/../..

Name: tlbkit
Description: The TLB subsystem of an x86-64 kernel
Version: VERSION
Cflags: -I${prefix}/include -DTLBKIT_X86
Libs: -L${prefix}/lib -ltlbkit_c
";

/// The pkg-config file of the fast object. Its macros must be the features with which the object was built.
const PKG_CONFIG_FAST: &str = "\
prefix=${pcfiledir}/../..

Name: tlbkit-fast
Description: The TLB subsystem of an x86-64 kernel, without checks, as one object
Version: VERSION
Cflags: -I${prefix}/include -DTLBKIT_X86 -DTLBKIT_LINKED
Libs: ${prefix}/lib/tlbkit-fast.o
";

/// Uses what a kernel cannot do without, so that a link shows what is missing.
const USER: &str = "\
#include <tlbkit.h>
bool start(void);
bool start(void) {
    static struct tlbkit_hardware_ops ops;
    return tlbkit_header_fits() && tlbkit_x86_fill(&ops) == TLBKIT_STATUS_OK;
}
";

/// A kernel that brings what the fast object asks for.
const FAST_USER: &str = "\
#include <tlbkit.h>
void tlbkit_k_send_ipi(uint32_t cpu, uint32_t to) { (void)cpu, (void)to; }
void tlbkit_k_send_ipi_to_others(uint32_t cpu) { (void)cpu; }
void *memcpy(void *to, const void *from, size_t n);
void *memcpy(void *to, const void *from, size_t n) {
    for (size_t i = 0; i < n; i++)
        ((char *)to)[i] = ((const char *)from)[i];
    return to;
}
void *memset(void *to, int byte, size_t n);
void *memset(void *to, int byte, size_t n) {
    for (size_t i = 0; i < n; i++)
        ((char *)to)[i] = (char)byte;
    return to;
}
int memcmp(const void *a, const void *b, size_t n);
int memcmp(const void *a, const void *b, size_t n) { return a == b ? 0 : (int)n; }
size_t strlen(const char *text);
size_t strlen(const char *text) { return *text ? 1 : 0; }
bool _start(void);
bool _start(void) { return tlbkit_header_fits(); }
";

/// Makes the folder and tells where it is. With `--check` a C object is compiled and linked with what pkg-config says,
/// and with nothing else.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    if let Some(how) = Need::Target(TARGET).lack() {
        bail!("{how}");
    }
    match args {
        [] => {}
        [flag] if flag == "--check" => return check(root),
        _ => bail!("`c-library` takes `--check` alone, got `{}`", args.join(" ")),
    }
    let folder = make(root)?;
    println!("{}", folder.display());
    println!("  include/tlbkit.h, lib/libtlbkit_c.a, lib/tlbkit-fast.o, lib/pkgconfig/tlbkit.pc and tlbkit-fast.pc");
    println!("use it: PKG_CONFIG_PATH={}/lib/pkgconfig pkg-config --cflags --libs tlbkit", folder.display());
    Ok(true)
}

fn check(root: &Path) -> Result<bool> {
    let folder = make(root)?;
    let source = folder.join("user.c");
    fs::write(&source, USER).with_context(|| format!("writing {}", source.display()))?;
    let script = "gcc -O2 -Wall -Wextra -Werror -ffreestanding -fno-pic -mno-red-zone -mcmodel=kernel \
        -mgeneral-regs-only $(pkg-config --cflags tlbkit) -c user.c -o user.o \
        && ld --gc-sections -static -e start user.o $(pkg-config --libs tlbkit) -o user";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("PKG_CONFIG_PATH", folder.join("lib/pkgconfig"));
    let linked = tool(&mut shell, &folder);
    let linked = linked.and_then(|()| link_object(&folder));
    for file in ["user.c", "user.o", "user", "fast.c"] {
        _ = fs::remove_file(folder.join(file));
    }
    linked.map(|()| true)
}

/// A kernel's object, and ours, by `ld -r` and then by the last link, with the kernel's own `memcpy` and no other.
fn link_object(folder: &Path) -> Result<()> {
    let source = folder.join("fast.c");
    fs::write(&source, FAST_USER).with_context(|| format!("writing {}", source.display()))?;
    let script = "gcc -O2 -Wall -Wextra -Werror -ffreestanding -fno-pic -mno-red-zone -mcmodel=kernel \
        -mgeneral-regs-only -fno-tree-loop-distribute-patterns $(pkg-config --cflags tlbkit-fast) -c fast.c -o user.o \
        && ld -r user.o $(pkg-config --libs tlbkit-fast) -o user \
        && ld --fatal-warnings --no-warn-rwx-segments -T /dev/stdin user -o user.o <<END
SECTIONS {
    . = 0xffffffff80100000;
    .text : { *(.text) }
    .rodata : { *(.rodata .data.rel.ro) }
    .data : { *(.data) }
    .bss : { *(.bss) }
    .got : { *(.got) }
    ASSERT(SIZEOF(.got) == 0, \"the object needs a GOT\")
    /DISCARD/ : { *(.eh_frame .comment .note.*) }
}
END";
    let mut shell = Command::new("sh");
    tool(shell.args(["-c", script]).env("PKG_CONFIG_PATH", folder.join("lib/pkgconfig")), folder)
}

fn make(root: &Path) -> Result<PathBuf> {
    let archive = archive(root, FOLDER, "x86")?;
    let fast = build(root, "c-library-fast", &["--no-default-features", "--features", "linked,x86"])?;
    let folder = setup::target_dir(root).join(FOLDER).join("tlbkit");
    for dir in ["include", "lib/pkgconfig"] {
        let dir = folder.join(dir);
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    }
    let header = root.join("lib/tlbkit-c/include/tlbkit.h");
    for (from, to) in [(header, "include/tlbkit.h"), (archive, "lib/libtlbkit_c.a")] {
        let to = folder.join(to);
        fs::copy(&from, &to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    }
    object::make(&fast, &folder.join("lib/tlbkit-fast.o"))?;
    for (name, text) in [("tlbkit.pc", PKG_CONFIG), ("tlbkit-fast.pc", PKG_CONFIG_FAST)] {
        let file = folder.join("lib/pkgconfig").join(name);
        let text = text.replace("VERSION", env!("CARGO_PKG_VERSION"));
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(folder)
}

/// Builds the checked archive for kernels with `features`, in a folder `name` of cargo's, and returns it.
pub(crate) fn archive(root: &Path, name: &str, features: &str) -> Result<PathBuf> {
    build(root, name, &["--features", features])
}

/// Builds an archive for kernels as cargo's arguments `features` say, in a folder `name` of cargo's, and returns it.
pub(crate) fn build(root: &Path, name: &str, features: &[&str]) -> Result<PathBuf> {
    let target = setup::target_dir(root).join(name);
    let mut cargo = Command::new("cargo");
    cargo.args(["rustc", "--quiet", "--config", "lib/tlbkit-c/kernel.toml", "--package", "tlbkit-c"]);
    cargo.args(["--profile", "kernel", "--crate-type", "staticlib"]).args(features);
    tool(cargo.env("CARGO_TARGET_DIR", &target), root)?;
    Ok(target.join(TARGET).join("kernel/libtlbkit_c.a"))
}

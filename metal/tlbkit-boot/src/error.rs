//! What a boot needs, and why there was none.

use std::io;

/// The emulator.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// The Debian package that has it.
pub const PACKAGE: &str = "qemu-system-x86";
/// What the kernel is built for.
pub const TARGET: &str = "x86_64-unknown-none";

/// What stood in the way.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Cargo does not start.
    #[error("cargo, which builds the kernel, does not start: {0}")]
    Cargo(#[source] io::Error),
    /// The compiler's first complaint.
    #[error("the kernel does not build (is the target {TARGET} installed?): {0}")]
    Build(String),
    /// There is no QEMU.
    #[error("no program {PROGRAM}: on Debian, sudo apt-get install {PACKAGE}")]
    NoQemu,
    /// QEMU's last words.
    #[error("{PROGRAM} did not start the kernel: {0}")]
    Refused(String),
    /// The operating system's answer.
    #[error("running {PROGRAM}: {0}")]
    Run(#[from] io::Error),
}

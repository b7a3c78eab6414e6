//! Why there was no boot.

use std::io;

use crate::image::TARGET;
use crate::qemu::{PACKAGE, PROGRAM};

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

//! The test kernel from outside: its image, a boot under QEMU, and what the kernel wrote.
//!
//! Nothing is judged here: whether a run went well, and whether its cycles mean anything, is for those who boot it.
#![forbid(unsafe_code)]

mod error;
mod image;
mod qemu;

pub use error::{Error, PACKAGE, PROGRAM, TARGET};
pub use image::build;
pub use qemu::{Ended, LIMIT, Machine, REPEATABLE, find, lines, wait};

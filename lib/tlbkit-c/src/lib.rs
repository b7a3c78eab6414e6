//! tlbkit for kernels in C: a static library and one header, `include/tlbkit.h`.
//!
//! ```sh
//! cargo rustc --config lib/tlbkit-c/kernel.toml --package tlbkit-c --profile kernel --crate-type staticlib
//! ```
//!
//! The target has no red zone, uses no vector registers and places code for `-mcmodel=kernel`, so the archive links
//! with any kernel. It allocates nothing: the structs of the header are opaque storage that the kernel places where it
//! wants. `memcpy` and its relatives are in the archive as weak symbols, which those of the kernel override.
//!
//! # The contract of every function
//!
//! A pointer is null, misaligned, or points to what the header says, which stays valid and in place for as long as the
//! comment of the function says. A null or misaligned pointer is refused with an error code. So is a struct that was
//! not initialized, a CPU that does not exist, the wrong interrupt state, and a value out of range. Misuse that cannot
//! be detected from the arguments ends in the hook of [`panic::tlbkit_set_panic_hook`]: no panic unwinds into C.
//!
//! Layers, lowest first: `status` (what a call returns), `mark` (how one CPU finds what another one has initialized)
//! and `panic`; `storage` (what C allocates) and `values` (what C passes); `ops` (the hardware interface in C), `hot`
//! (its hot-path functions, which can also be reached without the table) and `hardware` (both as a
//! [`tlbkit::Hardware`]); `machine` (which checks every call and finds its CPU); `cpu`, `space` and `gather`; `batch`
//! and `flush`. The feature `x86` adds the instructions, for a kernel that does not bring its own; the feature
//! `history` adds what only the policies of older kernels need.
#![no_std]
// loom's atomics do not fit into the structs of C, so its tests compile `mark` alone.
#![cfg(not(loom))]
#![allow(clippy::missing_safety_doc, reason = "one contract for all functions, at the top of this file")]

pub mod batch;
pub mod cpu;
#[cfg(feature = "reuse")]
pub mod deferred;
pub mod flush;
pub mod gather;
mod hardware;
#[cfg(feature = "history")]
pub mod history;
mod hot;
pub mod machine;
mod mark;
pub mod ops;
pub mod panic;
#[cfg(doctest)]
pub mod refused;
#[cfg(feature = "directories")]
pub mod sharers;
pub mod space;
pub mod status;
pub mod storage;
pub mod values;
#[cfg(feature = "x86")]
pub mod x86;

/// The Rust of the tutorial for kernels and of its recipes, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/kernel/tutorial.md")]
#[doc = include_str!("../../../docs/kernel/recipes.md")]
pub struct GuideForKernels;

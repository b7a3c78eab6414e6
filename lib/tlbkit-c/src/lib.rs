//! tlbkit for kernels written in C: a static library and one header, `include/tlbkit.h`.
//!
//! ```sh
//! cargo rustc --config lib/tlbkit-c/kernel.toml --package tlbkit-c --profile kernel --crate-type staticlib
//! ```
//!
//! That target uses no red zone and no vector register and puts code where `-mcmodel=kernel` wants it, so the archive
//! links with any kernel. It allocates nothing: the structs of the header are opaque storage that the kernel places
//! where it likes. `memcpy` and its like are in it as weak symbols, which the kernel's own replace.
//!
//! # The contract of every function
//!
//! A pointer is null, misaligned, or points to what the header says, which lives and stays in its place for as long as
//! the function's comment says. The first two are refused with an error code; so are structs that were never made, CPUs
//! that do not exist, interrupts in the wrong state, and values out of range. What cannot be told from here ends in the
//! hook of [`panic::tlbkit_set_panic_hook`]: no panic crosses the border.
//!
//! Layers, lowest first: `status` (what a call returns), `mark` (how one CPU finds what another has made) and `panic`;
//! `storage` (what C allocates), `words` and `policy` (with what C chooses); `space` (what a space is) and `events`;
//! `ops` (the kernel's table of functions), `hot` (those that are reached in other ways too), `functions` and
//! `hardware` (both as [`tlbkit::Hardware`]); `machine` (the door of every call: checks, then [`tlbkit::Cpu`]); `cpu`,
//! `lifetime` and `gather`; `pending`, `batch` and `flush`. `x86`, a feature, has the instructions for a kernel that
//! has none of its own; `history`, another, what only the policies of older kernels need.
#![no_std]
// loom's atomics do not fit into C's structs: its tests compile `mark` alone.
#![cfg(not(loom))]
#![allow(clippy::missing_safety_doc, reason = "one contract for all functions: at the head of this file")]

pub mod batch;
pub mod cpu;
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
pub mod space;
pub mod status;
pub mod storage;
pub mod values;
#[cfg(feature = "x86")]
pub mod x86;

/// The Rust of the porting guide, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/porting.md")]
pub struct PortingGuide;

//! The handshakes of the page tables under loom, on their real source: locks, overlapping sweeps, windows that are
//! unmapped, exchanges against the page walker, and the end of a space. Run by
//! `RUSTFLAGS="--cfg loom" cargo test -p tlbkit-pmap --test handshakes`.
//!
//! **How it is set up.** A thread is a CPU. Its TLB is one list without PCIDs, which any invalidation empties, and the
//! CPU uses every translation up to that moment: an access may come as late as the architecture allows. Frames, tables
//! and addresses are cells without synchronisation, so that reusing one must happen after every access through a stale
//! translation. Every lock guards such a cell as well. Words of memory are loaded and stored as x86-64 does it, with
//! Acquire and Release, which does not keep a CPU from finding an old value.
//!
//! **Interrupts.** A CPU looks for them before each access of its program, at each turn of waiting, and until all
//! programs have ended. A wait that never ends runs into loom's limit of steps.
#![cfg(loom)]

mod core;
mod cpu;
mod explore;
mod machine;
mod memory;

mod ends;
mod locks;
mod sweeps;
mod walker;
mod windows;

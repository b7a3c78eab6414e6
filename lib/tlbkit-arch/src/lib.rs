//! What the x86-64 manuals say about address translation, in one place for everything that needs it.
//!
//! | module | contents |
//! |---|---|
//! | [`addr`] | how an address selects an entry at each page-table level, and which addresses are canonical |
//! | [`pte`] | the bits of a page-table entry, one step of a page walk, and which change of an entry needs a flush |
//! | [`scope`] | what each instruction invalidates, as the single table that all emulated CPUs share |
//! | [`random`] | a random number generator whose sequence never changes |
//! | `store` | a TLB of unlimited size, for simulators and tests (behind the feature of the same name) |
//!
//! The crate holds facts: it makes no decisions and executes no instructions. The protocol does not use it; code that
//! edits page tables, and code that emulates a CPU, does. The litmus tests in `verify/tlbkit-check/tests/litmus` check
//! the same facts on the adversarial machine, and the rules of the test kernel check them on real CPUs and emulators.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "store")]
extern crate alloc;

pub mod addr;
pub mod pte;
pub mod random;
pub mod scope;
#[cfg(feature = "store")]
pub mod store;

pub use addr::{entry_at, index, is_canonical, next, span_shift, span_start, stride};
pub use pte::{Pte, Rights, WalkStep};
pub use random::SplitMix64;
pub use scope::{CurrentTag, Instruction, Invalidation, Path, Translation};

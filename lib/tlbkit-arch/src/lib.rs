//! What the x86-64 manuals say about translations, written once for all who need it.
//!
//! | module | fact |
//! |---|---|
//! | [`addr`] | which bits of an address choose an entry in a table of each level, and which addresses are canonical |
//! | [`pte`] | the bits of a page-table entry, one step of a walk, and which change of an entry needs a flush |
//! | [`scope`] | what each instruction invalidates: *the* table, whoever stores the entries |
//! | [`random`] | a generator of numbers that is frozen, so that a seed means the same for ever |
//! | `store` | a TLB without a limit, for simulators and tests (behind the feature of the same name) |
//!
//! The crate decides nothing and executes nothing. The protocol does not use it; what edits page tables, and what
//! plays a CPU, does. `verify/tlbkit-check/tests/litmus` asks the adversarial machine the same questions, and the test
//! kernel's rules ask real CPUs and emulators.
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

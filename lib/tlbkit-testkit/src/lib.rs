//! The machine that the tests and benchmarks of the library crates run on: CPUs in software whose TLBs keep all that no
//! instruction has invalidated, so that a missing flush shows.
//!
//! Each CPU is a [`TestCpu`], and a test implements [`Machine`] for what it adds to its CPUs. They are [`Stepped`] on
//! one thread, or each is a thread: [`Threads`] is the machine of a test that adds little. [`Nothing`] is hardware on
//! which instructions are counted.
//!
//! Model checkers do not use this crate. loom has its own atomics, and the adversarial machine of `tlbkit-check` must
//! not share a fault with these tests.
#![forbid(unsafe_code)]

mod apics;
mod cpu;
mod hardware;
mod nothing;
mod stepped;
mod threads;

pub use apics::Apics;
pub use cpu::{Did, Machine, TestCpu};
pub use nothing::{Nothing, lone_cpu};
pub use stepped::{Delivery, Stepped};
pub use threads::Threads;

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, CpuState, Features, PhysAddr, Policy, SpaceToken, Tlb};

/// A CPU with tags and INVPCID.
pub const MODERN: Features = Features { pcid: true, invpcid: true };

/// Items that live as long as a kernel does: a test makes few of them.
pub fn leak<T>(items: impl IntoIterator<Item = T>) -> &'static [T] {
    items.into_iter().collect::<Vec<_>>().leak()
}

/// As many words of zeros.
#[must_use]
pub fn words(count: usize) -> &'static [AtomicU64] {
    leak((0..count).map(|_| AtomicU64::new(0)))
}

/// The protocol's memory for `cpus` CPUs.
#[must_use]
pub fn tlb(cpus: usize, kernel_root: PhysAddr, policy: Policy) -> Tlb<'static> {
    Tlb::new(leak((0..cpus).map(|_| CpuState::new())), words(Tlb::matrix_words(cpus)), kernel_root, policy)
}

/// A new space of a machine of `cpus` CPUs.
#[must_use]
pub fn space(tlb: &Tlb<'_>, cpus: usize, token: usize, root: PhysAddr) -> AddressSpace {
    AddressSpace::new(tlb.fresh_id(), SpaceToken(token as u64), root, words(AddressSpace::set_words(cpus)))
}

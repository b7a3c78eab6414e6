//! [`Hardware`](tlbkit::Hardware) of a real x86-64 CPU: every instruction that the protocol needs, and nothing else.
//!
//! | file | what |
//! |---|---|
//! | `invalidate` | INVLPG and INVPCID; INVLPGB and TLBSYNC |
//! | `registers` | CR3, CR4, and setting PCIDs up in the order that the manual demands; MSRs; the time-stamp counter |
//! | `apic` | sending an interrupt: xAPIC and x2APIC |
//! | `interrupts` | the interrupt flag, and waiting for an interrupt |
//! | `cpuid` | what a CPU says of itself |
//! | `errata` | what it says wrongly, as data |
//! | `cpu` | [`X86Cpu`], which puts them together |
//!
//! Everything is for ring 0 of 64-bit mode. Every asm block is a compiler barrier for memory: none is marked `nomem`,
//! because a page-table store moved across an invalidation is the bug that this library is about.
//!
//! A kernel sets each CPU up once and then hands an [`X86Cpu`] to [`Tlb::cpu`](tlbkit::Tlb::cpu):
//!
//! ```no_run
//! use tlbkit::{AddressSpace, CpuId, Features, SpaceToken, Tlb, sync::AtomicU64};
//! use tlbkit_x86::{Apic, Identity, Kernel, Overrides, X86Cpu, enable_tags};
//!
//! struct MyKernel(AddressSpace<[AtomicU64; 1]>);
//! impl Kernel for MyKernel {
//!     type Set = [AtomicU64; 1];
//!     type Token = SpaceToken;
//!     fn with_space_of<R>(&self, _token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
//!         f(&self.0)
//!     }
//!     fn apic_id(&self, cpu: CpuId) -> u32 {
//!         cpu.0
//!     }
//! }
//!
//! fn start(kernel: &MyKernel, tlb: &Tlb<'_>, me: CpuId) {
//!     // SAFETY: ring 0, interrupts off, and CR3 names tables whose kernel half is mapped.
//!     let features = unsafe {
//!         let wanted: Features = Identity::of_this_cpu().with_microcode_read().features(Overrides::default());
//!         enable_tags(wanted)
//!     };
//!     // SAFETY: as above; the APIC is enabled and its registers lie in the identity map.
//!     let cpu = unsafe { X86Cpu::new(kernel, features, Apic::Memory(0xfee0_0000 as *mut u32), 0xf0) };
//!     tlb.cpu(me, &cpu).bring_up(&tlbkit::IrqsOff::assume());
//! }
//! ```
#![no_std]
#![cfg(target_arch = "x86_64")]

mod apic;
mod cpu;
mod cpuid;
mod errata;
pub mod interrupts;
mod invalidate;
mod registers;

pub use apic::{Apic, Destination};

pub use cpu::{Kernel, X86Cpu};
pub use cpuid::{Identity, Vendor};
pub use errata::{ERRATA, Erratum, Overrides, Trust, Wrong};
pub use invalidate::{Broadcast, Descriptor, invlpg, invpcid, tlbsync};
pub use registers::{
    CR4_PCIDE, CR4_PGE, disable_tags, enable_tags, now_cycles, read_cr2, read_cr3, read_cr4, read_msr, toggle_pge,
    write_cr3, write_cr4, write_msr,
};

//! The [`Hardware`](tlbkit::Hardware) of a real x86-64 CPU: every instruction that the protocol needs, and no more.
//!
//! | file | contents |
//! |---|---|
//! | `invalidate` | INVLPG and INVPCID; INVLPGB and TLBSYNC |
//! | `registers` | CR2, CR3, CR4; enabling PCIDs in the order that the manual requires; MSRs; the time-stamp counter |
//! | `apic` | sending an IPI through xAPIC or x2APIC |
//! | `interrupts` | the interrupt flag, and STI; HLT |
//! | `cpuid` | what CPUID reports |
//! | `errata` | where CPUID or the manual is wrong, as a table |
//! | `cpu` | [`X86Cpu`], the [`Hardware`](tlbkit::Hardware) made of all of these |
//!
//! Everything runs in ring 0 of 64-bit mode. Every asm block is a compiler barrier for memory: none is marked `nomem`,
//! because a page-table store that moves across an invalidation is exactly the bug that this library exists to prevent.
//!
//! A kernel sets each CPU up once and then hands an [`X86Cpu`] to [`Tlb::cpu`](tlbkit::Tlb::cpu):
//!
//! ```no_run
//! use tlbkit::{AddressSpace, CpuId, Features, SpaceToken, Tlb, sync::AtomicU64};
//! use tlbkit_x86::{Apic, Identity, Kernel, Overrides, X86Cpu, enable_pcids};
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
//!     // SAFETY: ring 0, interrupts off, and CR3 points to tables that map the kernel half.
//!     let features = unsafe {
//!         let wanted: Features = Identity::of_this_cpu().with_microcode_read().features(Overrides::default());
//!         enable_pcids(wanted)
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

pub use cpu::{Invalidate, Invalidation, Kernel, Sent, X86Cpu};
pub use cpuid::{Identity, Vendor};
pub use errata::{Defect, ERRATA, Erratum, Overrides, Trust};
pub use invalidate::{Operands, invlpg, invpcid, tlbsync};
pub use registers::{
    CR4_PCIDE, CR4_PGE, disable_pcids, enable_pcids, now_cycles, read_cr2, read_cr3, read_cr4, read_msr, toggle_pge,
    write_cr3, write_cr4, write_msr,
};

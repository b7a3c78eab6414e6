//! [`Hardware`](tlbkit::Hardware) of a real x86-64 CPU: every instruction that the protocol needs, and nothing else.
//!
//! | file | what |
//! |---|---|
//! | `invalidate` | INVLPG and INVPCID |
//! | `broadcast` | INVLPGB and TLBSYNC |
//! | `control` | CR3, CR4, and setting PCIDs up in the order that the manual demands |
//! | `apic` | sending an interrupt: xAPIC and x2APIC |
//! | `interrupts` | the interrupt flag, PAUSE, the time-stamp counter |
//! | `msr` | model-specific registers |
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
//! use tlbkit::{AddressSpace, CpuId, Features, SpaceToken, Tlb};
//! use tlbkit_x86::{Apic, Identity, Kernel, Overrides, X86Cpu, enable_tags};
//!
//! struct MyKernel(AddressSpace<'static>);
//! impl Kernel for MyKernel {
//!     fn space(&self, _token: SpaceToken) -> &AddressSpace<'_> {
//!         &self.0
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
mod broadcast;
mod control;
mod cpu;
mod cpuid;
mod errata;
mod interrupts;
mod invalidate;
mod msr;

pub use apic::{Apic, Destination};
pub use broadcast::{Broadcast, Descriptor, tlbsync};
pub use control::{
    CR4_PCIDE, CR4_PGE, enable_tags, read_cr2, read_cr3, read_cr4, toggle_pge, without_tags, write_cr3, write_cr4,
};
pub use cpu::{Kernel, X86Cpu};
pub use cpuid::{Identity, Vendor};
pub use errata::{ERRATA, Erratum, Overrides, Trust, Wrong};
pub use interrupts::{are_on, halt, now_cycles, off, on, pause};
pub use invalidate::{invlpg, invpcid};
pub use msr::{read_msr, write_msr};

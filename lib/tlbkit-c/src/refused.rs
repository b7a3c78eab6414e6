//! What the compiler refuses of the misuse in docs/porting.md: each beside the same without the mistake, which
//! compiles.
//!
//! A switch, an answer, a bring-up with interrupts on:
//!
//! ```
//! # use tlbkit::{AddressSpace, Cpu, Hardware, IrqsOff};
//! fn quiet<H: Hardware>(cpu: Cpu<'_, '_, H>, space: &AddressSpace<H::Set>, irqs: &IrqsOff) {
//!     cpu.bring_up(irqs);
//!     cpu.switch_to(space, irqs);
//!     cpu.answer(irqs);
//! }
//! ```
//! ```compile_fail
//! # use tlbkit::{AddressSpace, Cpu, Hardware, IrqsOff};
//! fn bring_up<H: Hardware>(cpu: Cpu<'_, '_, H>, space: &AddressSpace<H::Set>, irqs: &IrqsOff) {
//!     cpu.bring_up();
//! }
//! ```
//! ```compile_fail
//! # use tlbkit::{AddressSpace, Cpu, Hardware, IrqsOff};
//! fn switch<H: Hardware>(cpu: Cpu<'_, '_, H>, space: &AddressSpace<H::Set>, irqs: &IrqsOff) {
//!     cpu.switch_to(space);
//! }
//! ```
//! ```compile_fail
//! # use tlbkit::{AddressSpace, Cpu, Hardware, IrqsOff};
//! fn answer<H: Hardware>(cpu: Cpu<'_, '_, H>, space: &AddressSpace<H::Set>, irqs: &IrqsOff) {
//!     cpu.answer();
//! }
//! ```
//!
//! The witness does not leave its CPU:
//!
//! ```
//! fn send<T: Send>(_: T) {}
//! send(0);
//! ```
//! ```compile_fail
//! fn send<T: Send>(_: T) {}
//! send(tlbkit::IrqsOff::assume());
//! ```
//!
//! A frame is freed before the flush, or before the wait for one that was issued:
//!
//! ```
//! # use tlbkit::{Cpu, Hardware, TlbGather};
//! # fn free(_: Vec<u32>) {}
//! fn after<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u32>>) {
//!     free(gather.flush(&cpu).into_frames());
//! }
//! fn after_the_wait<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u32>>) {
//!     free(gather.issue(&cpu).wait(&cpu).into_frames());
//! }
//! ```
//! ```compile_fail
//! # use tlbkit::{Cpu, Hardware, TlbGather};
//! # fn free(_: Vec<u32>) {}
//! fn before<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u32>>) {
//!     free(gather.into_frames());
//! }
//! ```
//! ```compile_fail
//! # use tlbkit::{Cpu, Hardware, TlbGather};
//! # fn free(_: Vec<u32>) {}
//! fn before_the_wait<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u32>>) {
//!     free(gather.issue(&cpu).into_frames());
//! }
//! ```
//!
//! What a flush gave back, or one that was issued, is dropped: a warning, and here an error.
//!
//! ```
//! #![deny(unused_must_use)]
//! # use tlbkit::{Cpu, Hardware, TlbGather};
//! fn taken<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u32>>) -> Vec<u32> {
//!     gather.issue(&cpu).wait(&cpu).into_frames()
//! }
//! ```
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # use tlbkit::{Cpu, Hardware, TlbGather};
//! fn flushed<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u32>>) {
//!     gather.flush(&cpu);
//! }
//! ```
//! ```compile_fail
//! #![deny(unused_must_use)]
//! # use tlbkit::{Cpu, Hardware, TlbGather};
//! fn issued<H: Hardware>(cpu: Cpu<'_, '_, H>, gather: TlbGather<'_, H::Set, Vec<u32>>) {
//!     gather.issue(&cpu);
//! }
//! ```
//!
//! A kernel's door saves interrupts without restoring them: there is one function for both.
//!
//! ```
//! use tlbkit::{Hardware, IrqsOff};
//! fn both<H: Hardware>(hardware: &H) {
//!     hardware.with_irqs_off(|_: &IrqsOff| ());
//! }
//! ```
//! ```compile_fail
//! use tlbkit::{Hardware, IrqsOff};
//! fn one<H: Hardware>(hardware: &H) {
//!     hardware.irqs_save();
//! }
//! ```

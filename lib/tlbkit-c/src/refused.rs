//! The misuse in docs/kernel/reference.md that the compiler refuses, each next to the correct code, which compiles.
//!
//! Switching spaces, answering or coming online with interrupts on:
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
//! Sending `IrqsOff` to another CPU:
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
//! Freeing a frame before the flush, or before an issued flush has been waited for:
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
//! Dropping the frames of a flush, or an issued flush, which is a warning, and here an error:
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
//! Disabling interrupts without restoring them, which the hardware interface does in one function:
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

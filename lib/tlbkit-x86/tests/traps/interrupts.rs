//! The interrupt flag, and what the registers of the interrupt controllers get, access by access.

use tlbkit::Hardware;
use tlbkit_x86::interrupts::{self, Interrupts};
use tlbkit_x86::{Apic, Destination};

use super::machine::{Did, trace, with_device};
use super::{VECTOR, WITH_TAGS, cpu};

const COMMAND_LOW: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
const PENDING: u32 = 1 << 12;
/// Edge, asserted, fixed delivery, physical destination.
const FIXED: u32 = 0x4000 | VECTOR as u32;

#[test]
fn an_xapic_gets_its_destination_and_then_its_command_with_interrupts_off() {
    let done = with_device([0; 4], |registers| {
        // SAFETY: every access traps.
        unsafe { Apic::Memory(registers).send(Destination::One(0xfe), VECTOR) }
    });
    let (high, low) = (Did::Store(COMMAND_HIGH, 0xfe << 24), Did::Store(COMMAND_LOW, FIXED));
    assert_eq!(done, [Did::Cli, Did::Load(COMMAND_LOW), high, low, Did::Sti]);
}

/// Only bit 12 says that the command before is still on its way; the others are what was written.
#[test]
fn an_xapic_command_that_is_pending_is_waited_for() {
    let done = with_device([PENDING | FIXED, PENDING, !PENDING, 0], |registers| {
        cpu(WITH_TAGS, Apic::Memory(registers)).send_ipi_to_others();
    });
    let look = Did::Load(COMMAND_LOW);
    let (high, low) = (Did::Store(COMMAND_HIGH, 0), Did::Store(COMMAND_LOW, 0b11 << 18 | FIXED));
    assert_eq!(done, [Did::Cli, look, look, look, high, low, Did::Sti]);
}

#[test]
fn an_x2apic_names_ids_of_32_bits() {
    // SAFETY: the write traps.
    let done = trace(0, 0, || unsafe { Apic::Registers.send(Destination::One(0x1234_5678), VECTOR) });
    assert_eq!(done, [Did::Msr(0x830, 0x1234_5678 << 32 | u64::from(FIXED))]);
}

#[test]
fn interrupts_go_back_to_what_they_were() {
    // SAFETY: both instructions trap.
    let restored = |before| trace(0, 0, || unsafe { interrupts::restore(before) });
    assert_eq!(restored(Interrupts::Enabled), [Did::Sti]);
    assert_eq!(restored(Interrupts::Disabled), []);
    // A program of the host runs with interrupts enabled.
    let mut before = Interrupts::Disabled;
    // SAFETY: it traps.
    let done = trace(0, 0, || before = unsafe { interrupts::save_and_disable() });
    assert_eq!((done.as_slice(), before), (&[Did::Cli][..], Interrupts::Enabled));
}

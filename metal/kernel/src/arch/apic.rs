//! The local APIC: enabling it, end of interrupt, and starting the other CPUs.

use core::sync::atomic::{AtomicU32, Ordering};

use spin::Once;
use tlbkit_x86::{Apic, Destination, read_msr, write_msr};

use super::cpu;
use crate::layout::{APIC_WINDOW, MAX_CPUS};

/// The flush IPI, whose handler calls [`tlbkit::Cpu::answer`].
pub(crate) const FLUSH_VECTOR: u8 = 0xf0;
/// The IPI that wakes an idle CPU: there is a task to run.
pub(crate) const KICK_VECTOR: u8 = 0xf1;
/// The APIC's own.
pub(crate) const SPURIOUS_VECTOR: u8 = 0xff;

const MSR_BASE: u32 = 0x1b;
const BASE_ENABLED: u64 = 1 << 11;
const BASE_X2: u64 = 1 << 10;
const MSR_REGISTERS: u32 = 0x800;

const ID: usize = 0x20;
const END_OF_INTERRUPT: usize = 0xb0;
const SPURIOUS: usize = 0xf0;
const SPURIOUS_ENABLE: u32 = 1 << 8;
const COMMAND_LOW: usize = 0x300;
const COMMAND_HIGH: usize = 0x310;
const COMMAND_PENDING: u32 = 1 << 12;
const INIT_OTHERS: u32 = 0xc_4500;
const STARTUP: u32 = 0x4600;
const NMI: u32 = 0x4400;

static MODE: Once<ApicMode> = Once::new();
/// APIC ids by CPU.
static IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];

#[derive(Clone, Copy, PartialEq, Eq)]
enum ApicMode {
    Memory,
    Registers,
}

/// Masks the interrupt controllers that a PC starts with: their vectors are those of exceptions.
fn silence_old_controllers() {
    for mask_port in [0x21, 0xa1] {
        // SAFETY: the controllers' mask registers.
        unsafe { x86_64::instructions::port::Port::<u8>::new(mask_port).write(0xff) };
    }
}

/// Enables this CPU's APIC, in x2APIC mode where the CPU has that.
pub(crate) fn enable() {
    silence_old_controllers();
    let has_x2 = tlbkit_x86::Identity::of_this_cpu().has_x2apic;
    let mode = *MODE.call_once(|| if has_x2 { ApicMode::Registers } else { ApicMode::Memory });
    let x2 = if mode == ApicMode::Registers { BASE_X2 } else { 0 };
    // SAFETY: the APIC's base register; its window is mapped.
    unsafe { write_msr(MSR_BASE, read_msr(MSR_BASE) | BASE_ENABLED | x2) };
    write(SPURIOUS, SPURIOUS_ENABLE | u32::from(SPURIOUS_VECTOR));
    let id = if mode == ApicMode::Registers { read(ID) } else { read(ID) >> 24 };
    // Relaxed: published with the CPU itself, by `boot::UP`.
    IDS[cpu::index() as usize].store(id, Ordering::Relaxed);
}

/// How `tlbkit-x86` sends IPIs through it.
pub(crate) fn sender() -> Apic {
    match MODE.wait() {
        ApicMode::Memory => Apic::Memory(APIC_WINDOW as *mut u32),
        ApicMode::Registers => Apic::Registers,
    }
}

/// The APIC id of a CPU that is up.
pub(crate) fn id_of(cpu: u32) -> u32 {
    // Relaxed: written once, before the CPU counted as up.
    IDS[cpu as usize].load(Ordering::Relaxed)
}

/// An interrupt has been dealt with.
pub(crate) fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// Sends a CPU the IPI that says that there is a task to run.
pub(crate) fn kick(cpu: u32) {
    // SAFETY: ring 0, enabled, and the vector has a handler.
    unsafe { sender().send(Destination::One(id_of(cpu)), KICK_VECTOR) }
}

/// Puts all other CPUs into the state in which they can be started.
pub(crate) fn init_others() {
    command(0, INIT_OTHERS);
    wait_10_ms();
}

/// Starts a CPU at `page`, in real mode. Its APIC id is assumed to equal its number, since the CPU has not reported it
/// yet.
pub(crate) fn start(cpu: u32, page: u8) {
    command(cpu, STARTUP | u32::from(page));
}

/// Sends a CPU that is up an NMI. In xAPIC mode no other interrupt may be half sent on this CPU.
pub(crate) fn send_nmi(cpu: u32) {
    command(id_of(cpu), NMI);
}

fn command(id: u32, low: u32) {
    if *MODE.wait() == ApicMode::Registers {
        // SAFETY: the command register of an APIC in this mode.
        return unsafe { write_msr(MSR_REGISTERS + (COMMAND_LOW as u32 >> 4), u64::from(id) << 32 | u64::from(low)) };
    }
    write(COMMAND_HIGH, id << 24);
    write(COMMAND_LOW, low);
    while read(COMMAND_LOW) & COMMAND_PENDING != 0 {
        core::hint::spin_loop();
    }
}

fn read(register: usize) -> u32 {
    // SAFETY: a register of this CPU's APIC, in the mode that it is in.
    unsafe {
        match MODE.wait() {
            ApicMode::Memory => ((APIC_WINDOW as usize + register) as *const u32).read_volatile(),
            ApicMode::Registers => read_msr(MSR_REGISTERS + (register as u32 >> 4)) as u32,
        }
    }
}

fn write(register: usize, value: u32) {
    // SAFETY: as above.
    unsafe {
        match MODE.wait() {
            ApicMode::Memory => ((APIC_WINDOW as usize + register) as *mut u32).write_volatile(value),
            ApicMode::Registers => write_msr(MSR_REGISTERS + (register as u32 >> 4), u64::from(value)),
        }
    }
}

/// Waits by the interval timer's second channel, whose clock every PC has.
fn wait_10_ms() {
    use x86_64::instructions::port::Port;
    const COUNT: u16 = 11_932;
    // SAFETY: the timer's and the speaker gate's ports.
    unsafe {
        let mut gate = Port::<u8>::new(0x61);
        let before = gate.read();
        gate.write(before & !2 & !1);
        Port::<u8>::new(0x43).write(0xb0u8);
        Port::<u8>::new(0x42).write(COUNT as u8);
        Port::<u8>::new(0x42).write((COUNT >> 8) as u8);
        gate.write(before & !2 | 1);
        while gate.read() & 0x20 == 0 {
            core::hint::spin_loop();
        }
    }
}

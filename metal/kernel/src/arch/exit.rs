//! The end of the machine, with a code that the program which started the emulator can read.

use x86_64::instructions::port::Port;

use super::serial;

/// QEMU's isa-debug-exit: the host sees `code << 1 | 1`.
const QEMU_EXIT: u16 = 0xf4;
/// Bochs stops when this word has been written to this port. Its exit code says nothing, so hosts read the last line
/// instead.
const BOCHS_EXIT: u16 = 0x8900;

/// How the machine ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Ending {
    /// Everything held: the host sees 33.
    Fine = 0x10,
    /// A check failed: 35.
    Failed = 0x11,
    /// The kernel itself went wrong: 37.
    Panicked = 0x12,
    /// The command line was wrong: 39.
    WrongUsage = 0x13,
}

/// Ends the machine.
pub(crate) fn exit(ending: Ending) -> ! {
    serial::drain();
    // SAFETY: ports that stop the machine, or that no device uses.
    unsafe {
        Port::<u32>::new(QEMU_EXIT).write(ending as u32);
        b"Shutdown".iter().for_each(|&byte| Port::<u8>::new(BOCHS_EXIT).write(byte));
    }
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}

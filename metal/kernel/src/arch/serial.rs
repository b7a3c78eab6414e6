//! The first serial port, which is written to and never read. There is no lock, because a panic must get through.

use core::fmt;

use x86_64::instructions::port::Port;

const DATA: u16 = 0x3f8;
const LINE_CONTROL: u16 = DATA + 3;
const STATUS: u16 = DATA + 5;
const CAN_SEND: u8 = 1 << 5;
const ALL_SENT: u8 = 1 << 6;

/// The port. Lines are written with the lock of `report` held.
pub(crate) struct Serial;

/// 8 bits, no interrupts: what emulators start with, and Bochs does not.
pub(crate) fn start() {
    // SAFETY: the port's own registers.
    unsafe {
        Port::<u8>::new(DATA + 1).write(0);
        Port::<u8>::new(LINE_CONTROL).write(3);
    }
}

fn wait_for(bit: u8) {
    // SAFETY: as above.
    while unsafe { Port::<u8>::new(STATUS).read() } & bit == 0 {
        core::hint::spin_loop();
    }
}

/// Waits until the last byte has been sent, because an emulator that stops drops the rest.
pub(crate) fn drain() {
    wait_for(ALL_SENT);
}

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            wait_for(CAN_SEND);
            // SAFETY: as above.
            unsafe { Port::<u8>::new(DATA).write(byte) };
        }
        Ok(())
    }
}

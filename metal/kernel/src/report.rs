//! One JSON object a line over the serial port, and the end of the machine with the last of them.

use core::fmt::{self, Display, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch::exit::{Ending, exit};
use crate::arch::{cpu, serial};

/// Set by the CPU that writes the last line: no other CPU writes one.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Text inside a JSON string.
struct Escaped(serial::Serial);

impl Write for Escaped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c {
            '"' | '\\' => write!(self.0, "\\{c}"),
            '\n' => self.0.write_str("\\n"),
            c if c.is_control() => self.0.write_char(' '),
            c => self.0.write_char(c),
        })
    }
}

/// Writes one line, while no other CPU has anything to say.
pub(crate) fn line(write: impl FnOnce(&mut serial::Serial) -> fmt::Result) {
    let mut port = serial::Serial;
    // Nothing can be done about a port that does not take it.
    let _ = write(&mut port).and_then(|()| writeln!(port));
}

/// Writes the last line, and ends the machine. Only the first CPU that comes here does so; the others stop where they
/// are.
pub(crate) fn last_line(ending: Ending, write: impl FnOnce(&mut serial::Serial) -> fmt::Result) -> ! {
    // SeqCst: one of all; partner is itself.
    if IS_ENDING.swap(true, Ordering::SeqCst) {
        x86_64::instructions::interrupts::disable();
        loop {
            x86_64::instructions::hlt();
        }
    }
    line(write);
    exit(ending)
}

fn end_with(kind: &str, what: &dyn Display, ending: Ending) -> ! {
    last_line(ending, |port| {
        write!(port, "{{\"kind\":\"{kind}\",\"what\":\"")?;
        write!(Escaped(serial::Serial), "{what}")?;
        write!(port, "\"}}")
    })
}

/// A check of the kernel failed.
pub(crate) fn failure(what: &dyn Display) -> ! {
    end_with("failure", &format_args!("cpu{}: {what}", cpu::index()), Ending::Failed)
}

/// A page held something else than it must.
pub(crate) fn wrong_value(va: u64, found: u64, expected: u64) -> ! {
    failure(&format_args!("the page at {va:#x} holds {found:#x} and not {expected:#x}: a flush was lost"))
}

/// The kernel has failed.
pub(crate) fn panicked(info: &core::panic::PanicInfo<'_>) -> ! {
    end_with("panic", info, Ending::Panicked)
}

/// The command line is wrong.
pub(crate) fn wrong_usage(error: &dyn Display) -> ! {
    end_with("usage", error, Ending::WrongUsage)
}

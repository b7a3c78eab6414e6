//! Where a panic ends: in the kernel's hook, never in its callers.
//!
//! What reaches it is a broken rule that no check at the border can see, such as a flush inside an interrupt handler
//! that came while its CPU was waiting for another flush.

use core::ffi::c_char;

use crate::mark::HookPlace;

/// What went wrong, and where in the library. The texts end in a zero byte, which their lengths do not count; what is
/// longer than a line is cut off.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Misuse {
    /// The rule that was broken, or the CPUs that have not answered.
    pub message: *const c_char,
    /// Bytes of the message.
    pub message_bytes: usize,
    /// The source file that found it.
    pub file: *const c_char,
    /// Bytes of the file's name.
    pub file_bytes: usize,
    /// The line that found it.
    pub line: u32,
}

/// Prints and stops the machine. If it returns, the CPU spins for ever.
pub type PanicHook = Option<unsafe extern "C" fn(misuse: *const Misuse)>;

static HOOK: HookPlace = HookPlace::new();

/// cbindgen:prefix=
/// Calls `hook` on misuse that no status can tell; NULL for none. One for all machines.
#[unsafe(no_mangle)]
pub extern "C" fn tlbkit_set_panic_hook(hook: PanicHook) {
    HOOK.put(hook.map_or(core::ptr::null_mut(), |hook| hook as *mut ()));
}

/// Bytes of a text, with the zero byte at its end.
const TEXT_BYTES: usize = 96;

/// A text that ends in a zero byte; what does not fit is left out.
pub(crate) struct Text {
    bytes: [u8; TEXT_BYTES],
    length: usize,
}

impl Text {
    pub(crate) fn new(text: &str) -> Self {
        let mut new = Self { bytes: [0; TEXT_BYTES], length: 0 };
        new.push(text);
        new
    }

    pub(crate) fn push(&mut self, text: &str) {
        text.bytes().for_each(|byte| self.push_byte(byte));
    }

    /// In decimal.
    pub(crate) fn push_number(&mut self, number: u32) {
        if number >= 10 {
            self.push_number(number / 10);
        }
        self.push_byte(b'0' + (number % 10) as u8);
    }

    fn push_byte(&mut self, byte: u8) {
        // The last byte stays zero.
        if let Some(place) = self.bytes[..TEXT_BYTES - 1].get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }
}

/// Tells the kernel, and goes no further.
pub(crate) fn stop(message: &Text, file: &str, line: u32) -> ! {
    let file = Text::new(file);
    call_hook(&Misuse {
        message: message.bytes.as_ptr().cast(),
        message_bytes: message.length,
        file: file.bytes.as_ptr().cast(),
        file_bytes: file.length,
        line,
    });
    loop {
        core::hint::spin_loop();
    }
}

fn call_hook(misuse: &Misuse) {
    let pointer = HOOK.get();
    // SAFETY: only `tlbkit_set_panic_hook` writes it: null, or a function of this type.
    let hook: PanicHook = unsafe { core::mem::transmute(pointer) };
    if let Some(hook) = hook {
        // SAFETY: a function of the kernel's, called with a struct that lives during the call.
        unsafe { hook(misuse) };
    }
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    // What takes formatting to say is no rule of the protocol's: an index, an arithmetic overflow.
    let message = info.message().as_str().unwrap_or("the library has a fault");
    let (file, line) = info.location().map_or(("", 0), |at| (at.file(), at.line()));
    stop(&Text::new(message), file, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &Text) -> &str {
        core::ffi::CStr::from_bytes_until_nul(&text.bytes).unwrap().to_str().unwrap()
    }

    #[test]
    fn a_text_ends_in_a_zero_byte_however_long_it_is() {
        let mut text = Text::new("CPU ");
        text.push_number(4_070);
        assert_eq!((shown(&text), text.length), ("CPU 4070", 8));
        (0..30).for_each(|_| text.push(", CPU 0"));
        assert_eq!((shown(&text).len(), text.length), (TEXT_BYTES - 1, TEXT_BYTES - 1));
    }
}

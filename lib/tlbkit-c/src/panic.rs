//! Panics end in the kernel's hook and never unwind into C.
//!
//! A panic means that the kernel has broken a rule which no check of the arguments can detect, such as a flush in an
//! interrupt handler that interrupted another flush of the same CPU.

use core::ffi::c_char;

use crate::mark::HookPlace;

/// What went wrong, and where in the library. The strings end in a zero byte, which their lengths do not count, and are
/// truncated to one line.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Misuse {
    /// The rule that was broken, or the CPUs that have not answered.
    pub message: *const c_char,
    /// The length of `message`.
    pub message_bytes: usize,
    /// The source file of the check that failed.
    pub file: *const c_char,
    /// The length of `file`.
    pub file_bytes: usize,
    /// The line of the check.
    pub line: u32,
}

/// Prints the message and stops the machine. If it returns, the CPU spins for ever.
pub type PanicHook = Option<unsafe extern "C" fn(misuse: *const Misuse)>;

static HOOK: HookPlace = HookPlace::new();

/// cbindgen:prefix=
/// Sets the function that is called on misuse that no status can report. NULL for none. There is one hook for all
/// machines.
#[unsafe(no_mangle)]
pub extern "C" fn tlbkit_set_panic_hook(hook: PanicHook) {
    HOOK.put(hook.map_or(core::ptr::null_mut(), |hook| hook as *mut ()));
}

/// The size of a text, including its final zero byte.
const TEXT_BYTES: usize = 96;

/// A text that ends in a zero byte. What does not fit is dropped.
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
        // The last byte always stays zero.
        if let Some(place) = self.bytes[..TEXT_BYTES - 1].get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }
}

/// Calls the kernel's hook, and never returns.
pub(crate) fn report_and_stop(message: &Text, file: &str, line: u32) -> ! {
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
        // SAFETY: a function of the kernel, called with a struct that outlives the call.
        unsafe { hook(misuse) };
    }
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    // A message that needs formatting is not a rule of the protocol but a bug of the library, such as an index out of
    // bounds.
    let message = info.message().as_str().unwrap_or("the library has a fault");
    let (file, line) = info.location().map_or(("", 0), |at| (at.file(), at.line()));
    report_and_stop(&Text::new(message), file, line)
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
        let mut ten = Text::new("");
        [9, 10, 100].into_iter().for_each(|number| ten.push_number(number));
        assert_eq!(shown(&ten), "910100");
        (0..30).for_each(|_| text.push(", CPU 0"));
        assert_eq!((shown(&text).len(), text.length), (TEXT_BYTES - 1, TEXT_BYTES - 1));
    }
}

//! Where a panic ends: in the kernel's hook, never in its callers.
//!
//! What reaches it is a broken rule that no check at the border can see, such as a flush inside an interrupt handler
//! that came while its CPU was waiting for another flush.

use core::ffi::c_char;
use core::sync::atomic::{AtomicPtr, Ordering};

/// What went wrong, and where in the library. The texts do not end in a zero byte.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Misuse {
    /// The rule that was broken, or null if it takes formatting to say it.
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

static HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// cbindgen:prefix=
/// Calls `hook` on misuse that no status can tell; NULL for none. One for all machines.
#[unsafe(no_mangle)]
pub extern "C" fn tlbkit_set_panic_hook(hook: PanicHook) {
    let pointer = hook.map_or(core::ptr::null_mut(), |hook| hook as *mut ());
    // Release: what the hook needs was made before; partner is the Acquire in `call_hook`.
    HOOK.store(pointer, Ordering::Release);
}

#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "a host has its own panic handler"))]
fn call_hook(misuse: &Misuse) {
    // Acquire: partner is the Release in `tlbkit_set_panic_hook`.
    let pointer = HOOK.load(Ordering::Acquire);
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
    let message = info.message().as_str();
    let (file, line) = info.location().map_or(("", 0), |at| (at.file(), at.line()));
    call_hook(&Misuse {
        message: message.map_or(core::ptr::null(), |text| text.as_ptr().cast()),
        message_bytes: message.map_or(0, str::len),
        file: file.as_ptr().cast(),
        file_bytes: file.len(),
        line,
    });
    loop {
        core::hint::spin_loop();
    }
}

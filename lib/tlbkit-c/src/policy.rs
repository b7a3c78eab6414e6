//! The policy in C: a text, as everywhere else, such as "tlbkit:lazy=off+set=kept".

use core::ffi::{CStr, c_char};

use tlbkit::{Policy, TextError};

use crate::status::{Status, report};
use crate::storage::check;

/// How the user half is flushed under isolation.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserFlush {
    /// INVPCID page by page, now.
    Invpcid = 0,
    /// One flushing CR3 write on the way back to user mode.
    DeferredCr3 = 1,
}

pub(crate) fn user_flush_of(how: u32) -> Result<tlbkit::UserFlush, Status> {
    match how {
        how if how == UserFlush::Invpcid as u32 => Ok(tlbkit::UserFlush::Invpcid),
        how if how == UserFlush::DeferredCr3 as u32 => Ok(tlbkit::UserFlush::DeferredCr3),
        _ => Err(Status::BadValue),
    }
}

/// The policy that C's text names; the library's own for null.
///
/// # Safety
/// `text` is null, or ends in a zero byte.
pub(crate) unsafe fn policy_of(text: *const c_char) -> Result<Policy, Status> {
    if text.is_null() {
        return Ok(Policy::default());
    }
    // SAFETY: the contract.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    if !bytes.is_ascii() {
        return Err(Status::NoSuchPreset);
    }
    // SAFETY: ASCII is UTF-8.
    let text = unsafe { core::str::from_utf8_unchecked(bytes) };
    Policy::parse(text).map_err(|error| match error {
        TextError::NoPreset(_) => Status::NoSuchPreset,
        TextError::NoPair(_) | TextError::NoKey(_) => Status::NoSuchKey,
        TextError::BadValue(..) | TextError::NoCeiling => Status::BadValue,
        TextError::NeedsHistory(_) => Status::NeedsHistory,
    })
}

/// Whether a text `PRESET[:KEY=VALUE[+KEY=VALUE...]]` names a policy: `TLBKIT_STATUS_OK`, or what is wrong with it. The
/// presets and keys are those of `tlbkit list policies` and `tlbkit list settings`; an archive that was built without
/// `--features history` knows the preset "tlbkit" and what it can be changed to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_policy_check(text: *const c_char) -> Status {
    report(|| {
        check(text)?;
        // SAFETY: the crate's contract, and a text ends in a zero byte.
        unsafe { policy_of(text) }.map(drop)
    })
}

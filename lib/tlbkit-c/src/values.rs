//! The values that C passes, checked: range, stride, scope and reason of a flush, and the policy as a text such as
//! "tlbkit:lazy=off+set=kept".

use core::ffi::{CStr, c_char};

use tlbkit::{Policy, Reason, Scope, Stride, TextError, VirtAddr};

use crate::status::{Status, status_of};
use crate::storage::check_pointer;

/// The size of the translations in a range, as the base-2 logarithm of its bytes, like Linux' `stride_shift`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StrideKind {
    /// 4 KiB.
    Page4k = 12,
    /// 2 MiB.
    Page2m = 21,
    /// 1 GiB.
    Page1g = 30,
    /// 512 GiB. No entry maps a page of that size: it is what a page-table page two levels below a five-level root
    /// covers, for ranges of page-table pages that were unhooked.
    Span512g = 39,
}

/// Whether the changed entry has the global bit.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScopeKind {
    /// It has not.
    NonGlobal = 0,
    /// It has.
    Global = 1,
}

/// A range of translations whose numbers have been checked.
#[derive(Clone, Copy)]
pub(crate) struct Pages {
    pub(crate) va: VirtAddr,
    pub(crate) count: u64,
    pub(crate) stride: Stride,
}

impl Pages {
    /// Refuses a range that is empty, wraps around, or has an unknown stride. An archive without checks accepts any
    /// range, as the protocol does.
    #[inline(always)]
    pub(crate) fn new(va: u64, count: u64, stride: u32) -> Result<Self, Status> {
        let is_span = stride == StrideKind::Span512g as u32;
        let count = if is_span { count.saturating_mul(512) } else { count };
        let stride = if is_span { Stride::Page1G } else { stride_of(stride)? };
        if cfg!(feature = "checked") {
            Self::check_range(va, count, stride)
        } else {
            Ok(Self { va: VirtAddr(va), count, stride })
        }
    }

    /// The number of translations for calls that take `u32::MAX` for everything.
    #[inline(always)]
    pub(crate) fn clamped(&self) -> u32 {
        self.count.min(u64::from(u32::MAX)) as u32
    }

    fn check_range(va: u64, count: u64, stride: Stride) -> Result<Self, Status> {
        let bytes = count.checked_mul(stride.bytes()).filter(|bytes| *bytes != 0).ok_or(Status::BadValue)?;
        let first = va & !(stride.bytes() - 1);
        first.checked_add(bytes - 1).ok_or(Status::BadValue)?;
        Ok(Self { va: VirtAddr(first), count, stride })
    }
}

#[inline(always)]
fn stride_of(stride: u32) -> Result<Stride, Status> {
    match stride {
        shift if shift == StrideKind::Page4k as u32 => Ok(Stride::Page4K),
        shift if shift == StrideKind::Page2m as u32 => Ok(Stride::Page2M),
        shift if shift == StrideKind::Page1g as u32 => Ok(Stride::Page1G),
        _ if !cfg!(feature = "checked") => Ok(Stride::Page4K),
        _ => Err(Status::BadValue),
    }
}

pub(crate) fn scope_of(scope: u32) -> Result<Scope, Status> {
    match scope {
        kind if kind == ScopeKind::NonGlobal as u32 => Ok(Scope::NonGlobal),
        kind if kind == ScopeKind::Global as u32 => Ok(Scope::Global),
        _ => Err(Status::BadValue),
    }
}

/// Without checks and counters a reason has no effect, so it is not looked at.
#[inline(always)]
pub(crate) fn reason_of(reason: u32) -> Result<Reason, Status> {
    if !cfg!(any(feature = "checked", feature = "history")) {
        return Ok(Reason::RemovePte);
    }
    Reason::ALL.get(reason as usize).copied().ok_or(Status::BadValue)
}

/// How the user half is flushed under isolation.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserFlush {
    /// At once, page by page with INVPCID.
    Invpcid = 0,
    /// Deferred: one flushing CR3 write on exit to user mode.
    DeferredCr3 = 1,
}

pub(crate) fn user_flush_of(how: u32) -> Result<tlbkit::UserFlush, Status> {
    match how {
        how if how == UserFlush::Invpcid as u32 => Ok(tlbkit::UserFlush::Invpcid),
        how if how == UserFlush::DeferredCr3 as u32 => Ok(tlbkit::UserFlush::DeferredCr3),
        _ => Err(Status::BadValue),
    }
}

/// The policy of a text, or the default policy if `text` is null.
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

/// Checks a policy text, `PRESET[:KEY=VALUE[+KEY=VALUE...]]`: returns `TLBKIT_STATUS_OK`, or what is wrong with it. The
/// presets and keys are those of `tlbkit list policies` and `tlbkit list settings`. An archive that was built without
/// `--features history` knows only the preset "tlbkit" and the settings that apply to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_policy_check(text: *const c_char) -> Status {
    status_of(|| {
        check_pointer(text)?;
        // SAFETY: the crate's contract, and a text ends in a zero byte.
        unsafe { policy_of(text) }.map(drop)
    })
}

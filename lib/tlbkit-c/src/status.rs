//! The status that a call returns.

use core::ffi::{CStr, c_char};

/// What a call returns. A call that does not return `TLBKIT_STATUS_OK` has changed nothing, with two exceptions. If a
/// call that flushes returns `TLBKIT_STATUS_WRONG_CPU`, the task may have migrated while it waited: the flush may be
/// incomplete, and nothing has been freed. If `tlbkit_flush_range` or `tlbkit_flush_range_alone` returns
/// `TLBKIT_STATUS_IRQS_OFF`, the CPU that made the call has flushed, and others may not have.
#[repr(C)]
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// A pointer is null that must not be.
    NullPointer,
    /// A pointer is not aligned for its type.
    Misaligned,
    /// A struct was not initialized, or has ended.
    NotMade,
    /// There is no CPU of this number.
    NoSuchCpu,
    /// The CPU is not online.
    CpuOffline,
    /// An array is too small for the number of CPUs.
    TooSmall,
    /// Interrupts are on and must be off.
    IrqsOn,
    /// Interrupts are off, but other CPUs must be interrupted and waited for, which requires them on.
    /// `tlbkit_flush_range_alone` returns this whether interrupts are on or off.
    IrqsOff,
    /// A value is out of range.
    BadValue,
    /// There is no policy preset of this name.
    NoSuchPreset,
    /// A part of the policy text is not `KEY=VALUE`, or there is no such key.
    NoSuchKey,
    /// The policy is one of older kernels, for which the archive needs `--features history`.
    NeedsHistory,
    /// A required function is missing in the table of functions.
    NoFunction,
    /// The space is running on this CPU.
    SpaceRunsHere,
    /// The gather or batch has no room for the frame: finish it and begin another one.
    GatherFull,
    /// The policy does not count flushes, or there are no counters.
    NotCounted,
    /// The call was made on another CPU than the one it names, according to `this_cpu` of the table: the task has
    /// migrated, or the number is wrong.
    WrongCpu,
    /// Under the policy `lazy_refs=shot-down` a space must be destroyed by `tlbkit_space_destroy`.
    ShotDown,
}

impl Status {
    const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"ok",
            Self::NullPointer => c"a pointer is null that must not be",
            Self::Misaligned => c"a pointer is not aligned for its type",
            Self::NotMade => c"a struct was not initialized, or has ended",
            Self::NoSuchCpu => c"there is no CPU of this number",
            Self::CpuOffline => c"the CPU is not online",
            Self::TooSmall => c"an array is too small for the number of CPUs",
            Self::IrqsOn => c"interrupts are on and must be off",
            Self::IrqsOff => c"other CPUs must be interrupted, which requires interrupts on",
            Self::BadValue => c"a value is out of range",
            Self::NoSuchPreset => c"there is no policy preset of this name",
            Self::NoSuchKey => c"a part of the policy is not KEY=VALUE, or there is no such key",
            Self::NeedsHistory => c"the policy is one of older kernels: build the archive with --features history",
            Self::NoFunction => c"a required function is missing in the table of functions",
            Self::SpaceRunsHere => c"the space is running on this CPU",
            Self::GatherFull => c"the gather has no room for the frame",
            Self::NotCounted => c"the policy does not count flushes, or there are no counters",
            Self::WrongCpu => c"the call was made on another CPU than the one it names",
            Self::ShotDown => c"under lazy_refs=shot-down a space cannot be destroyed later",
        }
    }
}

/// Turns the result of `call` into the status that C gets.
#[inline(always)]
pub(crate) fn status_of(call: impl FnOnce() -> Result<(), Status>) -> Status {
    call().err().unwrap_or(Status::Ok)
}

/// A description of a status, for a log.
#[unsafe(no_mangle)]
pub extern "C" fn tlbkit_status_text(status: u32) -> *const c_char {
    const ALL: [Status; 19] = [
        Status::Ok,
        Status::NullPointer,
        Status::Misaligned,
        Status::NotMade,
        Status::NoSuchCpu,
        Status::CpuOffline,
        Status::TooSmall,
        Status::IrqsOn,
        Status::IrqsOff,
        Status::BadValue,
        Status::NoSuchPreset,
        Status::NoSuchKey,
        Status::NeedsHistory,
        Status::NoFunction,
        Status::SpaceRunsHere,
        Status::GatherFull,
        Status::NotCounted,
        Status::WrongCpu,
        Status::ShotDown,
    ];
    let found = ALL.iter().find(|known| **known as u32 == status);
    found.map_or(c"no status of tlbkit", |known| known.text()).as_ptr()
}

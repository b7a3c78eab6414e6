//! What a call returns: fine, or which rule of the border was broken.

use core::ffi::{CStr, c_char};

/// What a call returns. Whatever is not `TLBKIT_STATUS_OK` has changed nothing, with two exceptions.
/// `TLBKIT_STATUS_WRONG_CPU` of a call that flushes: the task may have migrated while it waited; what was to be flushed
/// may be in a TLB still, and nothing is freed. `TLBKIT_STATUS_IRQS_OFF` of `tlbkit_flush_range` and
/// `tlbkit_flush_range_alone`: the CPU that made the call has flushed, and others have not.
#[repr(C)]
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// A pointer that must not be null is.
    NullPointer,
    /// A pointer lacks the alignment of its type.
    Misaligned,
    /// A struct was never made, or has ended.
    NotMade,
    /// There is no such CPU.
    NoSuchCpu,
    /// The CPU was not brought up, or is offline.
    CpuOffline,
    /// Storage is too small for the number of CPUs.
    TooSmall,
    /// Interrupts are on and must be off.
    IrqsOn,
    /// Other CPUs must be told and waited for, which needs interrupts on; `tlbkit_flush_range_alone` says it whether
    /// they are on or off.
    IrqsOff,
    /// A value is out of its range.
    BadValue,
    /// No preset has this name.
    NoSuchPreset,
    /// A word of the policy is no `KEY=VALUE`, or has a key that there is not.
    NoSuchKey,
    /// The policy does what only older kernels did, and the archive was built without `--features history`.
    NeedsHistory,
    /// The table of functions lacks one that must be there.
    NoFunction,
    /// The space runs here.
    SpaceRunsHere,
    /// The gather has no room for the frame: finish it and begin another.
    GatherFull,
    /// The policy does not count, or no counters were given.
    NotCounted,
    /// The call names another CPU than `this_cpu` of the table says: the task has migrated, or the number is wrong.
    WrongCpu,
    /// The policy interrupts the CPUs that hold a dying space: it ends no space later.
    ShotDown,
}

impl Status {
    const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"ok",
            Self::NullPointer => c"a pointer that must not be null is",
            Self::Misaligned => c"a pointer lacks the alignment of its type",
            Self::NotMade => c"a struct was never made, or has ended",
            Self::NoSuchCpu => c"there is no such CPU",
            Self::CpuOffline => c"the CPU was not brought up, or is offline",
            Self::TooSmall => c"storage is too small for the number of CPUs",
            Self::IrqsOn => c"interrupts are on and must be off",
            Self::IrqsOff => c"other CPUs must be told, which needs interrupts on",
            Self::BadValue => c"a value is out of its range",
            Self::NoSuchPreset => c"no preset has this name",
            Self::NoSuchKey => c"a word of the policy is no KEY=VALUE, or has a key that there is not",
            Self::NeedsHistory => {
                c"the archive was built without what older kernels did; build with --features history"
            }
            Self::NoFunction => c"the table of functions lacks one that must be there",
            Self::SpaceRunsHere => c"the space runs here",
            Self::GatherFull => c"the gather has no room for the frame",
            Self::NotCounted => c"the policy does not count, or no counters were given",
            Self::WrongCpu => c"the call names another CPU than the one on which it runs",
            Self::ShotDown => c"the policy interrupts the CPUs that hold a dying space",
        }
    }
}

/// Tells C what Rust found.
#[inline(always)]
pub(crate) fn report(call: impl FnOnce() -> Result<(), Status>) -> Status {
    call().err().unwrap_or(Status::Ok)
}

/// A status in words, for a log.
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

//! The policy as C sees it: integers, which `convert` checks when they come in.

mod convert;

use core::ffi::c_char;

use tlbkit::PRESETS;

use crate::status::{Status, report};
use crate::storage::{check, put};

/// How many tags a CPU uses, and which it recycles.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tags {
    /// One context, no PCID.
    Off = 0,
    /// `slots` slots, recycled in turn.
    RoundRobin = 1,
    /// `slots` slots, the one used longest ago is recycled.
    LeastRecent = 2,
}

/// What a CPU does with the user space when it goes idle or runs a kernel thread.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lazy {
    /// Loads the kernel's tables.
    Off = 0,
    /// Keeps the space loaded until the first request interrupts it.
    InterruptOnce = 1,
    /// Keeps the space loaded; is interrupted only when page tables are freed.
    SkipUnlessTablesFreed = 2,
}

/// When a CPU leaves the set of a space that it no longer runs.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuSet {
    /// At each switch away.
    Exact = 0,
    /// Every `trim_every`-th generation of the space; never if that is 0.
    Trimmed = 1,
    /// The same, and whenever page tables are freed.
    TrimmedWithTables = 2,
}

/// Whether the CPUs that run the kernel's own tables are recorded.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelSet {
    /// They are not.
    Unwritten = 0,
    /// They are, for what it costs.
    Written = 1,
}

/// When a range is flushed page by page and when everything is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// More than `range_pages` pages flush everything.
    Above = 0,
    /// `range_pages` pages or more flush everything.
    AtLeast = 1,
    /// More than `min(active pages, range_entries) >> range_shift` pages flush everything.
    FamilyShift = 2,
    /// The same, after a search of the page tables for large pages.
    FamilyShiftWalk = 3,
}

/// When invalidations go out.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchingKind {
    /// Each at the time of its request.
    None = 0,
    /// Up to `packet_pages` single pages, then one full flush.
    Packet = 1,
    /// One range that covers them all.
    Range = 2,
}

/// When a page-table page of a space that is being emptied is freed: a choice for the kernel to read and follow.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableFree {
    /// As soon as it is empty.
    AtOnce = 0,
    /// When the space ends, unless memory is low.
    AtDestroyUnlessLow = 1,
}

/// How the page tables of a space that is not loaded are reached: a choice for the kernel to read and follow.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// Through an alternate recursive window.
    Window = 0,
    /// By loading the space for as long as it takes.
    TemporarySwitch = 1,
    /// Through a direct map of all memory.
    DirectMap = 2,
}

/// Page-table isolation.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// One half, kernel pages global.
    Off = 0,
    /// Two halves, kernel pages not global.
    On = 1,
}

/// How the user half is flushed under isolation.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserFlush {
    /// INVPCID page by page, now.
    Invpcid = 0,
    /// One flushing CR3 write on the way back to user mode.
    DeferredCr3 = 1,
}

/// When the initiator flushes its own TLB.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalFlush {
    /// Before it interrupts the others.
    BeforeRemote = 0,
    /// While they work.
    WhileRemote = 1,
}

/// How a lazily loaded space is kept from being freed.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LazyReferences {
    /// By a count; `last_lazy_reference` of the table tells the end.
    Counted = 0,
    /// By nothing: destroy interrupts the CPUs that hold it.
    ShotDown = 1,
}

/// Whether flushes are counted.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accounting {
    /// They are not.
    Off = 0,
    /// They are, into the counters given to `tlbkit_machine_init`.
    On = 1,
}

/// Every choice on which kernels differ. Start from `tlbkit_policy_preset` and change fields.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// An `enum tlbkit_tags`.
    pub tags: u32,
    /// 1 to 15 unless tags are off.
    pub slots: u32,
    /// An `enum tlbkit_lazy`.
    pub lazy: u32,
    /// An `enum tlbkit_cpu_set`.
    pub cpu_set: u32,
    /// A power of two, or 0.
    pub trim_every: u32,
    /// An `enum tlbkit_kernel_set`.
    pub kernel_set: u32,
    /// An `enum tlbkit_range`.
    pub range: u32,
    /// The limit of the first two rules.
    pub range_pages: u32,
    /// The shift of the last two, up to 63; -1 for always everything.
    pub range_shift: i32,
    /// Their entries, up to 65535.
    pub range_entries: u32,
    /// An `enum tlbkit_batching`.
    pub batching: u32,
    /// 1 to 16 if batching is by packet.
    pub packet_pages: u32,
    /// An `enum tlbkit_table_free`.
    pub table_free: u32,
    /// An `enum tlbkit_foreign`.
    pub foreign: u32,
    /// An `enum tlbkit_isolation`.
    pub isolation: u32,
    /// An `enum tlbkit_user_flush`.
    pub user_flush: u32,
    /// An `enum tlbkit_local_flush`.
    pub local_flush: u32,
    /// An `enum tlbkit_lazy_references`.
    pub lazy_references: u32,
    /// An `enum tlbkit_accounting`.
    pub accounting: u32,
}

/// Writes the preset called `name`, such as "tlbkit", "linux-6.18" or "netbsd-10", into `policy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_policy_preset(name: *const c_char, policy: *mut Policy) -> Status {
    report(|| {
        check(name)?;
        // SAFETY: the contract, and a name ends in a zero byte.
        let preset = PRESETS.iter().find(|preset| unsafe { is_text(name, preset.name) }).ok_or(Status::NoSuchPreset)?;
        // SAFETY: the contract.
        unsafe { put(policy, Policy::encode(&preset.policy)) }
    })
}

/// True if C's `text` is `wanted` and then a zero byte; reads no further than the first difference.
///
/// # Safety
/// `text` ends in a zero byte.
unsafe fn is_text(text: *const c_char, wanted: &str) -> bool {
    let bytes = wanted.bytes().chain([0]);
    // SAFETY: no byte before this one was zero, or it would have differed.
    bytes.enumerate().all(|(index, byte)| unsafe { text.add(index).read() } as u8 == byte)
}

/// Whether a policy's fields are all in range: `TLBKIT_STATUS_OK`, or `TLBKIT_STATUS_BAD_VALUE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_policy_check(policy: *const Policy) -> Status {
    report(|| {
        check(policy)?;
        // SAFETY: not null, aligned, and by the contract a whole struct of integers.
        unsafe { &*policy }.decode().map(|_| ()).ok_or(Status::BadValue)
    })
}

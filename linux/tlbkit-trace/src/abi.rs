//! Linux's numbers for flags, advices and errors on x86-64, as far as traces show them. They are those of the kernel's
//! `uapi` headers.

/// Flag of `mmap`: other processes see the memory too.
pub const MAP_SHARED: u64 = 1;
/// Flag of `mmap`: the memory is mapped at exactly this address, and what was mapped there goes.
pub const MAP_FIXED: u64 = 0x10;
/// Flag of `mmap`: the memory has no file behind it.
pub const MAP_ANONYMOUS: u64 = 0x20;
/// Flag of `mmap`: no swap space is reserved for the memory.
pub const MAP_NORESERVE: u64 = 0x4000;
/// Flag of `mmap`: the memory is meant for a stack.
pub const MAP_STACK: u64 = 0x2_0000;

/// Protection of `mmap` and `mprotect`: the memory may be written.
pub const PROT_WRITE: u64 = 2;
/// Protection of `mmap` and `mprotect`: the memory may be executed.
pub const PROT_EXEC: u64 = 4;

/// Flag of `clone`: the child uses its parent's address space.
pub const CLONE_VM: u64 = 0x100;

/// Bit of a page fault's error code: the page was present, and its entry did not allow this access.
pub const FAULT_PRESENT: u32 = 1;
/// Bit of a page fault's error code: the access was a write.
pub const FAULT_WRITE: u32 = 2;

const MADV_DONTNEED: u32 = 4;
const MADV_FREE: u32 = 8;
const MADV_REMOVE: u32 = 9;
/// Advice of `madvise`: the kernel may merge the pages with others of the same content.
pub const MADV_MERGEABLE: u32 = 12;
const MADV_DONTNEED_LOCKED: u32 = 24;
const MADV_GUARD_INSTALL: u32 = 102;

/// Whether `result`, which a system call returned, is the negative number of an error.
#[must_use]
pub const fn is_error(result: i64) -> bool {
    matches!(result, -4095..0)
}

/// What a program gives back by an advice of `madvise`. Code that reads traces matches all of these, so that no advice
/// is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// The pages are given back at once: `MADV_DONTNEED`, or `MADV_DONTNEED_LOCKED`, which also takes locked pages.
    DontNeed,
    /// The pages may be taken when memory is short: `MADV_FREE`.
    Free,
    /// The pages are given back, and their content is removed from the file or shared memory behind them:
    /// `MADV_REMOVE`.
    Remove,
    /// The pages are given back, and every later access is an error: `MADV_GUARD_INSTALL`.
    Guard,
    /// Nothing is given back, or the call does not say what is: with `MADV_PAGEOUT` the state of memory decides.
    Other,
}

/// Linux's name of the advice with this number, without `MADV_`.
#[must_use]
pub const fn advice_label(number: u64) -> &'static str {
    match number as u32 {
        MADV_DONTNEED => "DONTNEED",
        MADV_FREE => "FREE",
        MADV_REMOVE => "REMOVE",
        MADV_MERGEABLE => "MERGEABLE",
        13 => "UNMERGEABLE",
        14 => "HUGEPAGE",
        15 => "NOHUGEPAGE",
        20 => "COLD",
        21 => "PAGEOUT",
        MADV_DONTNEED_LOCKED => "DONTNEED_LOCKED",
        25 => "COLLAPSE",
        MADV_GUARD_INSTALL => "GUARD_INSTALL",
        103 => "GUARD_REMOVE",
        _ => "of another kind",
    }
}

impl Advice {
    /// The advice with Linux's `number`. The kernel reads it as an `int`, so the upper 32 bits are ignored.
    #[must_use]
    pub const fn of(number: u64) -> Self {
        match number as u32 {
            MADV_DONTNEED | MADV_DONTNEED_LOCKED => Self::DontNeed,
            MADV_FREE => Self::Free,
            MADV_REMOVE => Self::Remove,
            MADV_GUARD_INSTALL => Self::Guard,
            _ => Self::Other,
        }
    }
}

//! Numbers by which programs and Linux talk on x86-64, as far as traces show them; from the kernel's `uapi` headers.

/// `mmap`: other processes see the memory too.
pub const MAP_SHARED: u64 = 1;
/// `mmap`: at this address, whatever was there.
pub const MAP_FIXED: u64 = 0x10;
/// `mmap`: memory of no file.
pub const MAP_ANONYMOUS: u64 = 0x20;
/// `mmap`: no swap is set aside for the memory.
pub const MAP_NORESERVE: u64 = 0x4000;
/// `mmap`: a stack.
pub const MAP_STACK: u64 = 0x2_0000;

/// `mmap`, `mprotect`: it may be written.
pub const PROT_WRITE: u64 = 2;
/// `mmap`, `mprotect`: it may be executed.
pub const PROT_EXEC: u64 = 4;

/// `clone`: the child uses its parent's memory.
pub const CLONE_VM: u64 = 0x100;

/// Error code of a page fault: the page was there, but not for this access.
pub const FAULT_PRESENT: u32 = 1;
/// Error code of a page fault: it was a store.
pub const FAULT_WRITE: u32 = 2;

const MADV_DONTNEED: u32 = 4;
const MADV_FREE: u32 = 8;
const MADV_REMOVE: u32 = 9;
const MADV_DONTNEED_LOCKED: u32 = 24;
const MADV_GUARD_INSTALL: u32 = 102;

/// Whether what a system call returned is an error.
#[must_use]
pub const fn is_error(result: i64) -> bool {
    matches!(result, -4095..0)
}

/// What an advice to `madvise` gives back. Every reader of traces decides about each of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// The pages, at once; a locked range too, if the advice says so.
    DontNeed,
    /// The pages, once memory is short.
    Free,
    /// The pages, and their content in the file or the shared memory behind them.
    Remove,
    /// The pages, and every later access is an error.
    Guard,
    /// Nothing; or what the state of memory decides, of which the call says nothing, as for `MADV_PAGEOUT`.
    Other,
}

impl Advice {
    /// The advice of this number. The kernel takes it as an `int`, so that upper bits of the register do not count.
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

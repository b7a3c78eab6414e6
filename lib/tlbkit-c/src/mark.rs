//! The words by which one CPU finds what another has made: the mark of a struct, and the place of the hook for misuse.
//!
//! These are all the orderings of this crate. The handshakes of `tests/loom` compile this file alone, since loom's
//! atomics have another size than C's structs allow; `cargo xtask fences tlbkit-c` shows that each is necessary.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The first word of a struct in C's memory: says what was made there, if anything was.
#[repr(transparent)]
pub(crate) struct Mark(AtomicU64);

impl Mark {
    /// Of what is not whole yet.
    #[inline(always)]
    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// True if it was set to `mark`; then what it vouches for can be read.
    #[inline(always)]
    pub(crate) fn is(&self, mark: u64) -> bool {
        // Acquire: what the mark vouches for was written before; partner is the Release in `set`.
        self.0.load(Ordering::Acquire) == mark
    }

    /// The struct is whole.
    #[inline(always)]
    pub(crate) fn set(&self, mark: u64) {
        // Release: partner is the Acquire in `is`.
        self.0.store(mark, Ordering::Release);
    }

    /// The struct has ended. Relaxed: who finds no mark reads nothing else.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Where the hook is found.
pub(crate) struct HookPlace(AtomicPtr<()>);

impl HookPlace {
    /// There is none.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// There is none.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// From now on it is this one, or none if it is null.
    pub(crate) fn put(&self, hook: *mut ()) {
        // Release: what the hook needs was made before; partner is the Acquire in `get`.
        self.0.store(hook, Ordering::Release);
    }

    /// The hook, or null.
    pub(crate) fn get(&self) -> *mut () {
        // Acquire: partner is the Release in `put`.
        self.0.load(Ordering::Acquire)
    }
}

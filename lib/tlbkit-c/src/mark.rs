//! The words through which one CPU finds what another one has initialized: the mark of a struct, and the panic hook.
//!
//! All memory orderings of this crate are in this file. The loom tests compile it alone, because loom's atomics are
//! larger than the structs of C allow. `cargo xtask fences tlbkit-c` shows that every ordering is necessary.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The first word of a struct in C's memory, which says what was initialized there, if anything.
#[repr(transparent)]
pub(crate) struct Mark(AtomicU64);

impl Mark {
    /// The mark of a struct that is not complete yet.
    #[inline(always)]
    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// True if the mark was set to `mark`; then the struct can be read.
    #[inline(always)]
    pub(crate) fn is(&self, mark: u64) -> bool {
        // Acquire: the struct was written before its mark; partner is the Release in `set`.
        self.0.load(Ordering::Acquire) == mark
    }

    /// The struct is complete.
    #[inline(always)]
    pub(crate) fn set(&self, mark: u64) {
        // Release: partner is the Acquire in `is`.
        self.0.store(mark, Ordering::Release);
    }

    /// The struct has ended. Relaxed: a CPU that finds no mark reads nothing else.
    #[inline(always)]
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The panic hook, or null.
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

    /// Replaces the hook.
    pub(crate) fn put(&self, hook: *mut ()) {
        // Release: what the hook needs was initialized before; partner is the Acquire in `get`.
        self.0.store(hook, Ordering::Release);
    }

    /// The hook, or null.
    pub(crate) fn get(&self) -> *mut () {
        // Acquire: partner is the Release in `put`.
        self.0.load(Ordering::Acquire)
    }
}

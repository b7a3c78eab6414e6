//! Two locks that a CPU may wait for while it still answers interrupts: they spin with interrupts on.
//!
//! A holder may flush, and so wait for other CPUs (INV-7): whoever spins here answers it. For the same reason no
//! interrupt handler may take them, and a holder is not preempted by a thread of the same CPU that wants them.

use tlbkit::Hardware;
use tlbkit::sync::{AtomicU32, Ordering};

/// One holder.
pub(crate) struct SpinLock(AtomicU32);

/// Held until dropped.
#[must_use]
pub(crate) struct SpinGuard<'l>(&'l SpinLock);

impl SpinLock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn lock(&self, hw: &impl Hardware) -> SpinGuard<'_> {
        // Acquire: partner is the Release of the guard's drop.
        while self.0.swap(1, Ordering::Acquire) != 0 {
            // Relaxed: only waits; the swap above orders.
            while self.0.load(Ordering::Relaxed) != 0 {
                debug_assert!(hw.irqs_enabled(), "waiting for a lock with interrupts off");
                hw.relax();
            }
        }
        SpinGuard(self)
    }
}

impl Drop for SpinGuard<'_> {
    fn drop(&mut self) {
        // Release: partner is the Acquire in `lock`.
        self.0.0.store(0, Ordering::Release);
    }
}

/// Many readers or one writer; a waiting writer keeps new readers out. Not recursive.
pub(crate) struct RwLock(AtomicU32);

const WRITER: u32 = 1 << 31;
const WAITING: u32 = 1 << 30;

/// Held for reading until dropped.
#[must_use]
pub(crate) struct ReadGuard<'l>(&'l RwLock);

/// Held for writing until dropped.
#[must_use]
pub(crate) struct WriteGuard<'l>(&'l RwLock);

impl RwLock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn exchange(&self, current: u32, new: u32) -> bool {
        // Acquire: partners are the Release in both guards' drops. Relaxed on failure: the caller only retries.
        self.0.compare_exchange(current, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn read(&self, hw: &impl Hardware) -> ReadGuard<'_> {
        loop {
            // Relaxed: a guess, confirmed by `exchange`.
            let state = self.0.load(Ordering::Relaxed);
            if state & (WRITER | WAITING) == 0 {
                if self.exchange(state, state + 1) {
                    return ReadGuard(self);
                }
            } else {
                debug_assert!(hw.irqs_enabled(), "waiting for a lock with interrupts off");
                hw.relax();
            }
        }
    }

    pub(crate) fn write(&self, hw: &impl Hardware) -> WriteGuard<'_> {
        loop {
            // Relaxed: a guess, confirmed by `exchange`.
            let state = self.0.load(Ordering::Relaxed);
            if state & !WAITING == 0 {
                // Other waiting writers set their wish again when they see it gone.
                if self.exchange(state, WRITER) {
                    return WriteGuard(self);
                }
            } else {
                if state & WAITING == 0 {
                    // Relaxed: a wish; it publishes nothing.
                    self.0.fetch_or(WAITING, Ordering::Relaxed);
                }
                debug_assert!(hw.irqs_enabled(), "waiting for a lock with interrupts off");
                hw.relax();
            }
        }
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        // Release: partner is the Acquire in `exchange`.
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        // Release: partner is the Acquire in `exchange`.
        self.0.0.fetch_and(!WRITER, Ordering::Release);
    }
}

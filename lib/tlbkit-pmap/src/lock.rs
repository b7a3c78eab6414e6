//! Locks that a CPU may wait for while it still answers interrupts: they spin with interrupts on.
//!
//! A holder may flush, and so wait for other CPUs (INV-7): whoever spins here answers it. For the same reason no
//! interrupt handler may take them, and a holder is not preempted by a thread of the same CPU that wants them. Each has
//! a cache line to itself.

use tlbkit::Hardware;
use tlbkit::sync::{AtomicU32, Ordering};

/// One holder.
#[repr(align(64))]
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

/// Locks of a space's last-level tables.
const SPANS: usize = 32;

/// The locks of one space's page tables, as Linux has them since 2.6.15: one for each last-level table, and one above.
///
/// A table's lock is one of [`SPANS`], found by the 2 MiB that the table maps, so it outlives the table.
pub(crate) struct TableLocks {
    upper: SpinLock,
    spans: [SpinLock; SPANS],
}

impl TableLocks {
    pub(crate) const fn new() -> Self {
        Self { upper: SpinLock::new(), spans: [const { SpinLock::new() }; SPANS] }
    }

    /// The lock of the last-level table of `va` and of the entry that leads to it, be that a large page. Nobody holds
    /// two.
    pub(crate) fn span(&self, hw: &impl Hardware, va: u64) -> SpinGuard<'_> {
        let span = va >> 21;
        // Neither neighbours nor the arenas of two threads, which begin 64 MiB apart, share one.
        self.spans[(span ^ span >> 5) as usize % SPANS].lock(hw)
    }

    /// The lock of all levels above; taken last.
    pub(crate) fn upper(&self, hw: &impl Hardware) -> SpinGuard<'_> {
        self.upper.lock(hw)
    }
}

/// Many readers or one writer; a waiting writer keeps new readers out. Not recursive.
#[repr(align(64))]
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

    pub(crate) fn read(&self, hw: &impl Hardware) -> ReadGuard<'_> {
        // Acquire: partner is the Release in the writer's drop.
        while self.0.fetch_add(1, Ordering::Acquire) & (WRITER | WAITING) != 0 {
            // Relaxed: takes back what has published nothing.
            self.0.fetch_sub(1, Ordering::Relaxed);
            // Relaxed: only waits; the addition above orders.
            while self.0.load(Ordering::Relaxed) & (WRITER | WAITING) != 0 {
                debug_assert!(hw.irqs_enabled(), "waiting for a lock with interrupts off");
                hw.relax();
            }
        }
        ReadGuard(self)
    }

    pub(crate) fn write(&self, hw: &impl Hardware) -> WriteGuard<'_> {
        loop {
            // Relaxed: a guess, confirmed by the exchange.
            let state = self.0.load(Ordering::Relaxed);
            if state & !WAITING == 0 {
                // Other waiting writers set their wish again when they see it gone.
                // Acquire: partners are the Release in both guards' drops. Relaxed on failure: it only retries.
                if self.0.compare_exchange(state, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok() {
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
        // Release: partner is the Acquire in `write`.
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        // Release: partners are the Acquire in `read` and `write`.
        self.0.0.fetch_and(!WRITER, Ordering::Release);
    }
}

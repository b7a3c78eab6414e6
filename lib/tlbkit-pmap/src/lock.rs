//! Locks that a CPU may wait for while it still answers interrupts: they spin with interrupts on.
//!
//! A holder may flush, and so wait for other CPUs (INV-7): whoever spins here answers it. For the same reason no
//! interrupt handler may take them, and a holder is not preempted by a thread of the same CPU that wants them. Each has
//! a cache line to itself.

use tlbkit::Hardware;
use tlbkit::sync::{AtomicU32, Ordering};

/// Nothing, but under loom a cell without synchronisation of its own.
pub(crate) struct Guarded {
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<()>,
}

impl Guarded {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(loom)]
            cell: loom::cell::UnsafeCell::new(()),
        }
    }

    /// A holder beside others reads.
    pub(crate) fn look(&self) {
        #[cfg(loom)]
        self.cell.with(|_| ());
    }

    /// A holder that is alone writes.
    pub(crate) fn change(&self) {
        #[cfg(loom)]
        self.cell.with_mut(|_| ());
    }
}

/// One holder.
#[repr(align(64))]
pub(crate) struct SpinLock {
    is_held: AtomicU32,
    guarded: Guarded,
}

/// Held until dropped.
#[must_use]
pub(crate) struct SpinGuard<'l>(&'l SpinLock);

impl SpinLock {
    pub(crate) fn new() -> Self {
        Self { is_held: AtomicU32::new(0), guarded: Guarded::new() }
    }

    pub(crate) fn lock(&self, hw: &impl Hardware) -> SpinGuard<'_> {
        // Acquire: partner is the Release of the guard's drop. Relaxed on failure: it only waits.
        while self.is_held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // Relaxed: only waits; the exchange above orders.
            while self.is_held.load(Ordering::Relaxed) != 0 {
                debug_assert!(hw.irqs_enabled(), "waiting for a lock with interrupts off");
                hw.relax();
            }
        }
        self.guarded.change();
        SpinGuard(self)
    }
}

impl Drop for SpinGuard<'_> {
    fn drop(&mut self) {
        self.0.guarded.change();
        // Release: partner is the Acquire in `lock`.
        self.0.is_held.store(0, Ordering::Release);
    }
}

/// Locks of last-level tables that a space has of its own.
pub const TABLE_LOCKS: usize = 32;

/// The lock of last-level tables, on a cache line of its own. A space may be lent more than [`TABLE_LOCKS`] of them by
/// [`Vm::with_table_locks`](crate::Vm::with_table_locks).
pub struct TableLock(SpinLock);

impl TableLock {
    /// A lock that nobody holds.
    #[must_use]
    pub fn new() -> Self {
        Self(SpinLock::new())
    }
}

impl Default for TableLock {
    fn default() -> Self {
        Self::new()
    }
}

/// The locks of one space's page tables, as Linux has them since 2.6.15: one for each last-level table, and one above.
///
/// A table's lock is one of a few, found by the 2 MiB that the table maps, so it outlives the table.
pub(crate) struct TableLocks {
    upper: SpinLock,
    own: [TableLock; TABLE_LOCKS],
    /// In place of its own, if there are any: a power of two.
    pub(crate) lent: &'static [TableLock],
}

impl TableLocks {
    pub(crate) fn new() -> Self {
        Self { upper: SpinLock::new(), own: core::array::from_fn(|_| TableLock::new()), lent: &[] }
    }

    /// The lock of the last-level table of `va` and of the entry that leads to it, be that a large page. Nobody holds
    /// two.
    pub(crate) fn span(&self, hw: &impl Hardware, va: u64) -> SpinGuard<'_> {
        let locks = if self.lent.is_empty() { &self.own } else { self.lent };
        locks[index_of(va, locks.len())].0.lock(hw)
    }

    /// The lock of all levels above; taken last.
    pub(crate) fn upper(&self, hw: &impl Hardware) -> SpinGuard<'_> {
        self.upper.lock(hw)
    }
}

/// Which lock is that of `va`. Neighbours share none; nor do the arenas or files of 32 threads, 64 or 128 MiB apart, if
/// the first begins at a multiple of 2 GiB; if it begins elsewhere, two may.
const fn index_of(va: u64, locks: usize) -> usize {
    let span = va >> 21;
    (span ^ span >> 5 ^ span >> 6) as usize % locks
}

/// Many readers or one writer; a waiting writer keeps new readers out. Not recursive.
#[repr(align(64))]
pub(crate) struct RwLock {
    state: AtomicU32,
    guarded: Guarded,
}

const WRITER: u32 = 1 << 31;
const WAITING: u32 = 1 << 30;

/// Held for reading until dropped.
#[must_use]
pub(crate) struct ReadGuard<'l>(&'l RwLock);

/// Held for writing until dropped.
#[must_use]
pub(crate) struct WriteGuard<'l>(&'l RwLock);

impl RwLock {
    pub(crate) fn new() -> Self {
        Self { state: AtomicU32::new(0), guarded: Guarded::new() }
    }

    pub(crate) fn read(&self, hw: &impl Hardware) -> ReadGuard<'_> {
        // Acquire: partner is the Release in the writer's drop.
        while self.state.fetch_add(1, Ordering::Acquire) & (WRITER | WAITING) != 0 {
            // Relaxed: takes back what has published nothing.
            self.state.fetch_sub(1, Ordering::Relaxed);
            // Relaxed: only waits; the addition above orders.
            while self.state.load(Ordering::Relaxed) & (WRITER | WAITING) != 0 {
                debug_assert!(hw.irqs_enabled(), "waiting for a lock with interrupts off");
                hw.relax();
            }
        }
        self.guarded.look();
        ReadGuard(self)
    }

    pub(crate) fn write(&self, hw: &impl Hardware) -> WriteGuard<'_> {
        loop {
            // Relaxed: a guess, confirmed by the exchange.
            let state = self.state.load(Ordering::Relaxed);
            if state & !WAITING == 0 {
                // Other waiting writers set their wish again when they see it gone.
                // Acquire: partners are the Release in both guards' drops. Relaxed on failure: it only retries.
                if self.state.compare_exchange(state, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    self.guarded.change();
                    return WriteGuard(self);
                }
            } else {
                if state & WAITING == 0 {
                    // Relaxed: a wish; it publishes nothing.
                    self.state.fetch_or(WAITING, Ordering::Relaxed);
                }
                debug_assert!(hw.irqs_enabled(), "waiting for a lock with interrupts off");
                hw.relax();
            }
        }
    }
}

impl<'l> WriteGuard<'l> {
    /// Lets readers in, and still keeps writers out: one reader takes the writer's place. Who waits to write stays in
    /// front of new readers.
    pub(crate) fn downgrade(self) -> ReadGuard<'l> {
        let lock = self.0;
        lock.guarded.change();
        // Release: partner is the Acquire in `read`. Readers that are about to take back their addition stay counted.
        lock.state.fetch_sub(WRITER - 1, Ordering::Release);
        core::mem::forget(self);
        ReadGuard(lock)
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.guarded.look();
        // Release: partner is the Acquire in `write`.
        self.0.state.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.0.guarded.change();
        // Release: partners are the Acquire in `read` and `write`.
        self.0.state.fetch_and(!WRITER, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// How many of `locks` locks as many arenas use.
    fn used(locks: usize, first: u64, step: u64) -> usize {
        let mut is_used = [false; 256];
        (0..locks as u64).for_each(|n| is_used[index_of(first + n * step, locks)] = true);
        is_used.iter().filter(|used| **used).count()
    }

    #[test]
    fn neighbours_share_no_lock() {
        let mut spans = (0..1 << 13).map(|span| span * 2 * MIB);
        let lock = |va| index_of(va, TABLE_LOCKS);
        assert!(spans.all(|va| lock(va) != lock(va + 2 * MIB) && lock(va) == lock(va + 2 * MIB - 1)));
    }

    #[test]
    fn arenas_of_32_threads_share_none_from_a_multiple_of_2_gib_on() {
        for first in (0..64).map(|n| n * 2048 * MIB) {
            assert_eq!([used(32, first, 64 * MIB), used(32, first, 128 * MIB)], [32; 2], "{first:#x}");
        }
        assert_eq!(used(32, 64 * MIB, 64 * MIB), 31, "elsewhere two may");
    }

    #[test]
    fn as_many_threads_as_locks_are_lent_share_none() {
        for locks in [64, 128, 256] {
            let bytes = locks as u64 * 128 * MIB;
            assert!((0..8).all(|n| used(locks, n * bytes, 128 * MIB) == locks), "{locks}");
        }
    }
}

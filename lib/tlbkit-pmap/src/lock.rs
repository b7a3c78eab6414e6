//! Spin locks that are waited for with interrupts on, so that the waiting CPU still answers flush requests.
//!
//! A holder may flush, and then waits for other CPUs (INV-7), among them those that spin here. Hence these locks must
//! never be taken in an interrupt handler, and a holder must not be preempted by a thread that wants the same lock.
//! Each lock has its own cache line.

use crate::directories::Directories;
use tlbkit::Hardware;
use tlbkit::sync::{AtomicU32, Ordering};

/// What a lock guards, as far as loom is concerned: a cell without synchronization that every holder accesses, so that
/// loom reports a race if the lock fails to order its holders. Outside of loom it is empty.
pub(crate) struct LoomCell {
    #[cfg(loom)]
    cell: loom::cell::UnsafeCell<()>,
}

impl LoomCell {
    pub(crate) fn new() -> Self {
        Self {
            #[cfg(loom)]
            cell: loom::cell::UnsafeCell::new(()),
        }
    }

    /// A holder that shares the lock with other readers reads.
    pub(crate) fn read(&self) {
        #[cfg(loom)]
        self.cell.with(|_| ());
    }

    /// An exclusive holder writes.
    pub(crate) fn write(&self) {
        #[cfg(loom)]
        self.cell.with_mut(|_| ());
    }
}

/// A lock with one holder at a time.
#[repr(align(64))]
pub(crate) struct SpinLock {
    is_held: AtomicU32,
    guarded: LoomCell,
}

/// Held until dropped.
#[must_use]
pub(crate) struct SpinGuard<'l>(&'l SpinLock);

impl SpinLock {
    pub(crate) fn new() -> Self {
        Self { is_held: AtomicU32::new(0), guarded: LoomCell::new() }
    }

    pub(crate) fn lock(&self, hw: &impl Hardware) -> SpinGuard<'_> {
        // Acquire: partner is the Release in the guard's drop. Relaxed on failure: the loop only waits.
        while self.is_held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // Relaxed: the loop only waits; the exchange above orders.
            while self.is_held.load(Ordering::Relaxed) != 0 {
                debug_assert!(hw.irqs_enabled(), "waiting for a lock with interrupts off");
                hw.relax();
            }
        }
        self.guarded.write();
        SpinGuard(self)
    }
}

impl Drop for SpinGuard<'_> {
    fn drop(&mut self) {
        self.0.guarded.write();
        // Release: partner is the Acquire in `lock`.
        self.0.is_held.store(0, Ordering::Release);
    }
}

/// Last-level table locks that every space has.
pub const TABLE_LOCKS: usize = 32;

/// A lock of last-level page tables, on its own cache line. [`Vm::with_table_locks`](crate::Vm::with_table_locks) lends
/// a space more of them than the [`TABLE_LOCKS`] that it has.
pub struct TableLock(SpinLock);

impl TableLock {
    /// An unlocked lock.
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

/// The page-table locks of one space: split locks for the last level, as Linux has had since 2.6.15, and one lock for
/// the levels above.
///
/// The lock of a last-level table is chosen by hashing the 2 MiB that the table maps, so it outlives the table.
pub(crate) struct TableLocks {
    upper: SpinLock,
    own: [TableLock; TABLE_LOCKS],
    /// Used instead of `own` unless empty. Their number is a power of two.
    pub(crate) lent: &'static [TableLock],
    /// The upper tables of each CPU. They stand here since there is room in the cache line.
    pub(crate) directories: Directories,
}

impl TableLocks {
    pub(crate) fn new() -> Self {
        Self {
            upper: SpinLock::new(),
            own: core::array::from_fn(|_| TableLock::new()),
            lent: &[],
            directories: Directories::none(),
        }
    }

    /// Locks the last-level table of `va` and the entry that points to it, which may be a large page. A CPU holds at
    /// most one of these locks at a time.
    pub(crate) fn lock_table(&self, hw: &impl Hardware, va: u64) -> SpinGuard<'_> {
        let locks = if self.lent.is_empty() { &self.own } else { self.lent };
        locks[index_of(va, locks.len())].0.lock(hw)
    }

    /// Locks all levels above the last one. Taken last.
    pub(crate) fn lock_upper(&self, hw: &impl Hardware) -> SpinGuard<'_> {
        self.upper.lock(hw)
    }
}

/// The index of the lock of `va`. Neighbouring tables never share a lock. Neither do the arenas or files of 32 threads
/// that lie 64 or 128 MiB apart, provided that the first one begins at a multiple of 2 GiB; otherwise two of them may.
const fn index_of(va: u64, locks: usize) -> usize {
    let span = va >> 21;
    (span ^ span >> 5 ^ span >> 6) as usize % locks
}

/// A reader-writer lock. A waiting writer keeps new readers out. Not recursive.
#[repr(align(64))]
pub(crate) struct RwLock {
    state: AtomicU32,
    guarded: LoomCell,
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
        Self { state: AtomicU32::new(0), guarded: LoomCell::new() }
    }

    pub(crate) fn read(&self, hw: &impl Hardware) -> ReadGuard<'_> {
        // Acquire: partner is the Release in the writer's drop.
        while self.state.fetch_add(1, Ordering::Acquire) & (WRITER | WAITING) != 0 {
            // Relaxed: undoes the addition, which has published nothing.
            self.state.fetch_sub(1, Ordering::Relaxed);
            // Relaxed: the loop only waits; the addition above orders.
            while self.state.load(Ordering::Relaxed) & (WRITER | WAITING) != 0 {
                debug_assert!(hw.irqs_enabled(), "waiting for a lock with interrupts off");
                hw.relax();
            }
        }
        self.guarded.read();
        ReadGuard(self)
    }

    pub(crate) fn write(&self, hw: &impl Hardware) -> WriteGuard<'_> {
        loop {
            // Relaxed: a guess, which the exchange confirms.
            let state = self.state.load(Ordering::Relaxed);
            if state & !WAITING == 0 {
                // This clears WAITING for all writers; those that still wait set it again.
                // Acquire: partners are the Release in the drops of both guards. Relaxed on failure: the loop retries.
                if self.state.compare_exchange(state, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    self.guarded.write();
                    return WriteGuard(self);
                }
            } else {
                if state & WAITING == 0 {
                    // Relaxed: a request to readers to stay out; it publishes nothing.
                    self.state.fetch_or(WAITING, Ordering::Relaxed);
                }
                debug_assert!(hw.irqs_enabled(), "waiting for a lock with interrupts off");
                hw.relax();
            }
        }
    }
}

impl<'l> WriteGuard<'l> {
    /// Turns the write lock into a read lock, without letting another writer in between. Waiting writers still take
    /// precedence over new readers.
    pub(crate) fn downgrade(self) -> ReadGuard<'l> {
        let lock = self.0;
        lock.guarded.write();
        // Release: partner is the Acquire in `read`. The subtraction keeps the counts of readers that are about to undo
        // their addition.
        lock.state.fetch_sub(WRITER - 1, Ordering::Release);
        core::mem::forget(self);
        ReadGuard(lock)
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.0.guarded.read();
        // Release: partner is the Acquire in `write`.
        self.0.state.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.0.guarded.write();
        // Release: partners are the Acquire in `read` and `write`.
        self.0.state.fetch_and(!WRITER, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// How many of `locks` locks are used by the same number of arenas.
    fn used(locks: usize, first: u64, step: u64) -> usize {
        let mut is_used = [false; 256];
        (0..locks as u64).for_each(|n| is_used[index_of(first + n * step, locks)] = true);
        is_used.iter().filter(|used| **used).count()
    }

    /// Otherwise readers that follow one another would keep it out for ever.
    #[cfg(not(loom))]
    #[test]
    fn a_writer_that_waits_says_so_to_those_who_would_read() {
        extern crate std;
        use tlbkit_testkit::lone_cpu;
        let lock = RwLock::new();
        let reading = lock.read(lone_cpu());
        std::thread::scope(|scope| {
            scope.spawn(|| drop(lock.write(lone_cpu())));
            while lock.state.load(Ordering::Relaxed) & WAITING == 0 {
                std::thread::yield_now();
            }
            drop(reading);
        });
        assert_eq!(lock.state.load(Ordering::Relaxed), 0);
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

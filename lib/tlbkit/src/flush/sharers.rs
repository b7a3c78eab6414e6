//! Page tables that not every CPU walks: a kernel that gives each CPU upper page tables of its own (RadixVM, numaPTE)
//! knows which CPUs can hold a translation, and interrupts no other.
//!
//! **The rule.** The CPUs share the last-level tables. A directory of one CPU names such a table only after that CPU has
//! faulted below it; before the entry is written, the CPU is recorded among the [`Sharers`] of the table. A CPU that is
//! not among them has walked to no page below the table, so it caches none, and has nothing to flush.
//!
//! What is recorded is nobody, one CPU, or several: a directory with one pointer and broadcast, as cache coherence has
//! it (Dir1B: Agarwal, Simoni, Hennessy and Horowitz, ISCA 1988). If a flush is of pages below tables that this CPU
//! alone can walk, it interrupts nobody, and advances no generation: no other CPU owes anything, not even one that holds
//! the space in lazy TLB mode while a table is freed. Every other flush goes to the CPUs of the space as ever.
//!
//! ```text
//!   CPU that faults (Sharers::hook)                CPU that takes translations away (Reach::add)
//!   record itself among the sharers                change the PTE
//!   fence(SeqCst)                                  fence(SeqCst)
//!   store the entry of its own directory           read the sharers
//!   walk: read the PTE
//! ```
//! Either the flush sees that another CPU shares the table, or that CPU walks to the new PTE.
//!
//! A CPU is excluded when the flush is sent, not when the sharers are read: the thread may migrate in between, and then
//! the CPU that it came from is another one.
//!
//! Nothing is taken back while a table lives. When it is freed, its entry is cleared first in the directory of every CPU
//! that shares it, under a lock that keeps CPUs from hooking it meanwhile; after the flush the frame is an ordinary one.

use super::gather::{Flushed, TlbGather};
use super::request::{Extent, Needs, Request};
use crate::addr::CpuId;
use crate::cpu::Cpu;
use crate::cpu::state::Presence;
use crate::hardware::{Event, Hardware};
use crate::space::Translations;
use crate::sync::{AtomicU32, Ordering, const_unless_loom, fence};

const NOBODY: u32 = 0;
/// One CPU is its number and 1.
const SEVERAL: u32 = u32::MAX;

/// Which CPUs can walk to one last-level page table: 4 bytes beside what a kernel keeps about the frame.
#[derive(Debug)]
pub struct Sharers(AtomicU32);

impl Sharers {
    const_unless_loom! {
        /// Of a table that no directory names.
        #[must_use]
        pub fn new() -> Self {
            Self(AtomicU32::new(NOBODY))
        }
    }

    /// `cpu`, this CPU, is about to store an entry for the table in a directory of its own, and no entry of it has
    /// named the table so far.
    pub fn hook(&self, cpu: CpuId) {
        let own = cpu.0 + 1;
        // Relaxed, all of them: ordered by the fence.
        let found = self.0.compare_exchange(NOBODY, own, Ordering::Relaxed, Ordering::Relaxed);
        if found.is_err_and(|found| found != own) {
            self.0.store(SEVERAL, Ordering::Relaxed); // Relaxed: as above
        }
        // SeqCst: the walks come after it; partner is the fence in `Reach::add`.
        fence(Ordering::SeqCst);
    }

    /// No directory names the table any more, and what was cached of it is flushed; or its frame is a new table.
    pub fn clear(&self) {
        // Relaxed: the kernel's lock orders it, under which CPUs hook tables.
        self.0.store(NOBODY, Ordering::Relaxed);
    }

    /// True if `cpu` has hooked the table. Under the lock under which CPUs do that.
    #[must_use]
    pub fn may_include(&self, cpu: CpuId) -> bool {
        let found = self.0.load(Ordering::Relaxed); // Relaxed: as in `clear`
        found == SEVERAL || found == cpu.0 + 1
    }
}

impl Default for Sharers {
    fn default() -> Self {
        Self::new()
    }
}

/// Which CPUs can hold what a gather has recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach(u32);

impl Reach {
    /// Nothing is recorded yet.
    pub const NOBODY: Self = Self(NOBODY);
    /// Any CPU that runs the space: for what is not below a table whose sharers are known.
    pub const SEVERAL: Self = Self(SEVERAL);

    /// Adds the sharers of a table. Its entries, or the entries of the sharers' directories that named it, have been
    /// changed before.
    pub fn add(&mut self, sharers: &Sharers) {
        // SeqCst: partner is the fence in `Sharers::hook`.
        fence(Ordering::SeqCst);
        let found = sharers.0.load(Ordering::Relaxed); // Relaxed: ordered by the fence
        self.0 = match self.0 {
            NOBODY => found,
            _ if found == NOBODY || found == self.0 => self.0,
            _ => SEVERAL,
        };
    }
}

impl<S, F> TlbGather<'_, S, F> {
    /// Flushes as [`flush`](Self::flush) does, and interrupts nobody if `reach` says that no other CPU can hold what was
    /// recorded. The sharers of each table below which something was recorded have been added to `reach`, after its last
    /// entry was changed; of a table that was recorded itself, too.
    ///
    /// # Panics
    /// As [`flush`](Self::flush).
    pub fn flush_within<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>, reach: Reach) -> Flushed<F> {
        if self.has_work(cpu) {
            let request = self.request(cpu);
            if !cpu.flush_alone_within(self.translations, &request, reach) {
                cpu.shootdown(self.translations, request, self.reason());
            }
        }
        self.into_flushed()
    }
}

impl<H: Hardware> Cpu<'_, '_, H> {
    /// Flushes what only this CPU can hold; false if others may, and then nothing was done.
    fn flush_alone_within(&self, whose: Translations<'_, H::Set>, request: &Request<'_>, reach: Reach) -> bool {
        let Translations::OfSpace(space) = whose else { return false };
        // A batch, or an issued flush, may owe a flush of what the caller has found cleared.
        if reach == Reach::SEVERAL || request.needs(Needs::GLOBAL) || self.tlb.owed.is_owed(space.id) {
            return false;
        }
        if reach == Reach::NOBODY {
            return true;
        }
        self.with_irqs_off_here(|_| {
            // Where the space does not run, its generation has to say that the ASID is stale. A PCID that all CPUs share
            // has entries of its own here, and is no ASID.
            let is_here = reach.0 == self.id.0 + 1 && self.presence() == Presence::running(space.id);
            if !is_here || self.has_broadcast() && self.asid().is_shared() {
                return false;
            }
            self.hardware.event(Event::FlushBegin(request.pages().unwrap_or(u32::MAX)));
            match request.extent {
                Extent::Everything | Extent::Loaded(_) => self.flush_loaded_on_this_cpu(),
                Extent::Range { .. } | Extent::List(_) => self.flush_pages(*request),
            }
            self.hardware.event(Event::FlushLocalDone);
            self.hardware.event(Event::FlushEnd);
            true
        })
    }
}

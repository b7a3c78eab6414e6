//! What one CPU keeps: its ASIDs and what it has loaded, for itself; its presence and its mailboxes, for others to
//! read.

use super::asid::AsidTable;
use crate::addr::CpuId;
use crate::flush::request::{FirstMailbox, MAILBOXES};
use crate::space::SpaceId;
use crate::space::cpu_set::Attendance;
use crate::sync::{AtomicU32, AtomicU64, Ordering, Owned, OwnedByte, array_of, const_unless_loom};

/// What a CPU publishes about itself (Linux: `loaded_mm` and `is_lazy`), in one word, so that an initiator cannot
/// combine halves of two moments (C-04).
///
/// A space's id alone says that the space runs here; with the highest bit set it is held in lazy TLB mode. Zero says
/// that the CPU is between two spaces (Linux: `LOADED_MM_SWITCHING`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Presence(pub(crate) u64);

impl Presence {
    /// Runs on the kernel's own page tables: lazy in space 0, so that entering lazy mode sets one bit whatever is
    /// loaded.
    pub(crate) const KERNEL: Self = Self(Self::LAZY);
    /// Between two CR3 values: a responder of every flush whose CPU set it is in (INV-2).
    pub(crate) const SWITCHING: Self = Self(0);
    /// Offline or stopped: no request is sent to it. It uses no space either, so the lazy bit is among its bits.
    pub(crate) const ABSENT: Self = Self(u64::MAX);
    /// Never brought up, and absent as well. No store writes it: it is the initial value.
    pub(crate) const NEW: Self = Self(u64::MAX - 1);
    /// Coming online, and absent as well; but requests that were sent to it are not withdrawn any more. The diagram is
    /// in `flush/wait.rs`.
    pub(crate) const RETURNING: Self = Self(u64::MAX - 2);
    const LAZY: u64 = 1 << 63;

    pub(crate) const fn running(id: SpaceId) -> Self {
        Self(id.0)
    }

    pub(crate) const fn lazy(id: SpaceId) -> Self {
        Self(id.0 | Self::LAZY)
    }

    pub(crate) const fn as_lazy(self) -> Self {
        Self(self.0 | Self::LAZY)
    }

    /// The space that is loaded, running or lazily; that of the kernel if there is none.
    pub(crate) const fn space(self) -> SpaceId {
        SpaceId(self.0 & !Self::LAZY)
    }

    /// True if a CPU that shows it must flush before a shootdown of `space` returns: INV-2, the initiator's side. A CPU
    /// in the middle of a switch must, since it may have read the old generation. One that runs something else, or
    /// holds the space lazily, need not: it finds the new generation before it uses the space. Lazy CPUs are sorted out
    /// first, since there are often many.
    pub(crate) fn may_run(self, space: SpaceId) -> bool {
        !self.is_lazy() && (self == Self::SWITCHING || self == Self::running(space))
    }

    /// [`may_run`](Self::may_run) where page-table pages are freed: a CPU that holds the space in lazy TLB mode walks
    /// them too.
    pub(crate) fn may_hold(self, space: SpaceId) -> bool {
        self == Self::SWITCHING || self.space() == space
    }

    /// True if no program can run here before the CPU has looked at a generation again.
    pub(crate) const fn is_lazy(self) -> bool {
        self.0 & Self::LAZY != 0
    }

    /// True if no request is sent to it: it is offline, is still coming online, or never was.
    pub(crate) const fn is_absent(self) -> bool {
        self.0 >= Self::RETURNING.0
    }

    /// True if it answers nobody: it is offline and has not begun to come online.
    pub(crate) const fn is_offline(self) -> bool {
        self.0 >= Self::NEW.0
    }
}

/// Says that a space which this CPU may hold lazily is dying, so that the CPU looks when it leaves it; see
/// `space/end.rs`. It is only a hint: one that comes too late, or from two destroyers at once, does no harm.
///
/// The CPU reads and clears it while its presence says that it is switching; destroyers set it.
pub(crate) struct Notice(AtomicU64);

impl Notice {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// True if there is one. A CPU reads it after the fence that follows `presence := switching`.
    #[inline(always)]
    pub(crate) fn is_posted(&self) -> bool {
        // Relaxed: ordered by that fence; what the notice is about is read from the space, which orders it.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Asks the CPU to look. Partner is the fence that follows in `notify_holders`.
    pub(crate) fn post(&self) {
        // Relaxed: ordered by that fence.
        self.0.store(1, Ordering::Relaxed);
    }

    /// The CPU looks now. It clears the notice before it is seen in another space, and a destroyer of that space posts
    /// only after it has seen the CPU there: so no notice is lost.
    pub(crate) fn clear(&self) {
        // Relaxed: published by the Release that ends the switch; partner is the Acquire in `holds_lazily`.
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Whether flushes of kernel addresses wait until this CPU enters the kernel, and whether one does:
/// `flush/spared.rs`.
///
/// The CPU writes it; initiators change `USER` to `USER | WORK`, and nothing else.
pub(crate) struct Deferral(AtomicU64);

impl Deferral {
    /// The CPU is in the kernel, or does not defer.
    const NOTHING: u64 = 0;
    /// It touches no kernel address but those that stay mapped, until it enters the kernel.
    const USER: u64 = 1;
    /// It has to flush everything first. Without [`USER`](Self::USER): it is entering, and an NMI has to, too.
    const WORK: u64 = 1 << 1;

    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(Self::NOTHING))
        }
    }

    /// Flushes may wait from here on.
    pub(crate) fn begin(&self) {
        // Release: what the kernel did comes before it; partner is the Acquire in `defer`.
        self.0.store(Self::USER, Ordering::Release);
    }

    /// Flushes wait no more. Returns whether they could, and whether one has.
    pub(crate) fn enter(&self) -> (bool, bool) {
        // Acquire: what was changed before a flush was deferred is read by walks from here on; partner is the fence
        // that an initiator executes before `defer`.
        let before = self.0.swap(Self::WORK, Ordering::Acquire);
        (before & Self::USER != 0, before & Self::WORK != 0)
    }

    /// What had to be flushed was flushed.
    pub(crate) fn finish(&self) {
        // Relaxed: no partner but an NMI on this CPU; nobody else writes the word without USER.
        self.0.store(Self::NOTHING, Ordering::Relaxed);
    }

    /// True if the CPU will flush everything when it enters the kernel. The page tables were changed before, and a
    /// fence was executed.
    pub(crate) fn defer(&self) -> bool {
        const BOTH: u64 = Deferral::USER | Deferral::WORK;
        // Acquire: partner is the Release in `begin`: the CPU uses nothing any more that is to be freed. The fence
        // before orders the change. Relaxed if it fails: then the CPU is sent a request.
        let mark = |before| self.0.compare_exchange(before, BOTH, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // A mark that is there is written again: it was made for another change.
        mark(Self::USER) || mark(BOTH)
    }

    /// True if the CPU has not entered since it began to defer.
    pub(crate) fn is_deferring(&self) -> bool {
        // Relaxed: no partner, asked by this CPU alone.
        self.0.load(Ordering::Relaxed) & Self::USER != 0
    }
}

/// One CPU's part of the protocol (Linux: `cpu_tlbstate`), 448 bytes (512 with the feature `history`). The kernel
/// allocates as many as there are possible CPUs.
///
/// The first six cache lines belong to this CPU; others read only `turns` in them, when they wait for a request that a
/// task issued here before it migrated. The seventh is read by other CPUs: a switch writes it twice, and so does each
/// request (C-80). With `history` the mailbox takes an eighth. The mailboxes but the first, which most kernels rarely
/// use, are in the request matrix.
#[repr(C, align(64))]
pub struct CpuState {
    // Written and read by this CPU alone.
    pub(crate) asids: AsidTable,
    /// The kernel's name of the space whose tables are loaded, or were loaded before the kernel's own.
    pub(crate) token: Owned,
    /// The top-level table that CR3 names.
    pub(crate) root: Owned,
    /// The bits of CR3 that this CPU may write: all, or without PCID and no-flush bit.
    pub(crate) cr3_mask: Owned,
    /// What a load that keeps ASID 0 adds to the root: its PCID and the no-flush bit; nothing without PCIDs.
    pub(crate) keep_first: Owned,
    /// One bit for each ASID: its user half is flushed at the next return to user mode (Linux: `user_pcid_flush_mask`).
    pub(crate) pending_user: Owned,
    pub(crate) asid: Owned,
    /// 1 if entries under PCID 0, the kernel's own, may be stale.
    pub(crate) kernel_pcid_stale: OwnedByte,
    /// 1 while this CPU sends requests or waits for the answers: a flush in an interrupt handler would use the same
    /// mailbox.
    pub(crate) is_in_a_flush: OwnedByte,
    /// One bit for each mailbox: a request was issued in it, and this CPU has not seen its outbox empty since;
    /// `flush/mailboxes.rs`.
    pub(crate) issued: OwnedByte,
    /// 1 while this CPU owes a flush that it has acknowledged; `flush/answer.rs`.
    pub(crate) owes_a_flush: OwnedByte,
    /// How often each mailbox was found empty after a request was issued in it; `flush/mailboxes.rs`. Read by other
    /// CPUs.
    pub(crate) turns: [AtomicU32; MAILBOXES],
    // Written by this CPU, read by initiators.
    pub(crate) presence: AtomicU64,
    // Set by destroyers, read and cleared by this CPU.
    pub(crate) notice: Notice,
    // Written by this CPU, and by initiators while it runs a program.
    pub(crate) deferral: Deferral,
    // Written by this CPU, read by its responders.
    pub(crate) first: FirstMailbox,
}

impl CpuState {
    const_unless_loom! {
        /// The state of a CPU that has not been brought up.
        #[must_use]
        pub fn new() -> Self {
            Self {
                asids: AsidTable::new(),
                asid: Owned::new(0),
                token: Owned::new(0),
                root: Owned::new(0),
                cr3_mask: Owned::new(0),
                keep_first: Owned::new(0),
                pending_user: Owned::new(0),
                kernel_pcid_stale: OwnedByte::new(1),
                is_in_a_flush: OwnedByte::new(0),
                issued: OwnedByte::new(0),
                owes_a_flush: OwnedByte::new(0),
                turns: array_of!(AtomicU32::new(0); MAILBOXES),
                presence: AtomicU64::new(Presence::NEW.0),
                notice: Notice::new(),
                deferral: Deferral::new(),
                first: FirstMailbox::new(),
            }
        }
    }
}

impl Attendance for &[CpuState] {
    fn is_absent(&self, cpu: CpuId) -> bool {
        // Relaxed: no partner, it is for a report; a CPU may go offline meanwhile.
        Presence(self[cpu.0 as usize].presence.load(Ordering::Relaxed)).is_absent()
    }
}

impl Default for CpuState {
    fn default() -> Self {
        Self::new()
    }
}

// As kernels build it: loom and `narrow_sets` have fewer mailboxes.
#[cfg(all(test, not(any(loom, narrow_sets))))]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_costs_whole_lines_and_what_others_read_begins_one() {
        assert_eq!(size_of::<CpuState>(), if cfg!(feature = "history") { 512 } else { 448 });
        assert_eq!(core::mem::offset_of!(CpuState, presence), 384);
    }
}

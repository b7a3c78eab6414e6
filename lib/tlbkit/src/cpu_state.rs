//! What one CPU keeps: its slots and what it has loaded, for itself; its presence and its mailboxes, for others to
//! read.

use crate::addr::CpuId;
use crate::address_space::SpaceId;
use crate::asid::Slots;
use crate::cpu_set::Attendance;
use crate::references::NoticeBoard;
use crate::request::{First, RING};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Owned, OwnedByte, array_of, const_unless_loom};

/// What a CPU tells others of itself, in one word, so that an initiator cannot read halves of two moments (C-04).
///
/// A space's id alone says that the space runs here; with the highest bit it is held lazily. No bits say that the CPU
/// is between two spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Presence(pub(crate) u64);

impl Presence {
    /// Runs the kernel's own tables: lazy in space 0, so that entering lazy mode sets a bit whatever is loaded.
    pub(crate) const KERNEL: Self = Self(Self::LAZY);
    /// Between two CR3 values: a responder of every flush whose set it is in (INV-2).
    pub(crate) const SWITCHING: Self = Self(0);
    /// Offline, or stopped: nobody asks anything of it. It uses no space either, so the bit of the lazy is among its
    /// bits.
    pub(crate) const ABSENT: Self = Self(u64::MAX);
    /// Never brought up, and absent as well. No store writes it: it is what a state is made with.
    pub(crate) const NEW: Self = Self(u64::MAX - 1);
    /// Coming back, and absent as well; but what was asked of it is not taken back any more. The diagram is in
    /// `wait.rs`.
    pub(crate) const RETURNING: Self = Self(u64::MAX - 2);
    const LAZY: u64 = 1 << 63;

    pub(crate) const fn running(id: SpaceId) -> Self {
        Self(id.0)
    }

    pub(crate) const fn lazy(id: SpaceId) -> Self {
        Self(id.0 | Self::LAZY)
    }

    #[inline(always)]
    pub(crate) const fn as_lazy(self) -> Self {
        Self(self.0 | Self::LAZY)
    }

    /// The space that is loaded, running or lazily: that of the kernel if there is none.
    #[inline(always)]
    pub(crate) const fn space(self) -> SpaceId {
        SpaceId(self.0 & !Self::LAZY)
    }

    /// True if a CPU that shows it must flush before a shootdown of `space` returns. INV-2, the initiator: one in
    /// the middle of a switch must, since it may have read the old generation. One that runs something else, or holds
    /// the space lazily, need not: it finds the new generation before it uses the space. Lazy CPUs come first, since
    /// there are often many.
    #[inline(always)]
    pub(crate) fn may_run(self, space: SpaceId) -> bool {
        !self.is_lazy() && (self == Self::SWITCHING || self == Self::running(space))
    }

    /// True if no program can run here before the CPU has looked at a generation again.
    #[inline(always)]
    pub(crate) const fn is_lazy(self) -> bool {
        self.0 & Self::LAZY != 0
    }

    /// True if nobody asks anything of it: it has left, is not back yet, or never came.
    #[inline(always)]
    pub(crate) const fn is_absent(self) -> bool {
        self.0 >= Self::RETURNING.0
    }

    /// True if it answers nobody: it has left, and does not come back yet.
    #[inline(always)]
    pub(crate) const fn has_left(self) -> bool {
        self.0 >= Self::NEW.0
    }
}

/// One CPU's part of the protocol, 448 bytes (512 with the feature `history`). The kernel allocates as many as
/// there are possible CPUs.
///
/// Six lines that no other CPU touches, but for one that waits for a request of this CPU's after its task came from
/// here; then one or two that others read: a switch writes the first of them twice, a request writes both (C-80). The
/// mailboxes but the first, which most kernels use seldom, are in the matrix.
#[repr(C, align(64))]
pub struct CpuState {
    // Written and read by the owner alone.
    pub(crate) slots: Slots,
    pub(crate) token: Owned,
    pub(crate) root: Owned,
    pub(crate) cr3_mask: Owned,
    /// What a load that keeps slot 0 adds to the root: its tag and the no-flush bit; nothing where there are no tags.
    pub(crate) keep_first: Owned,
    /// One bit a slot: its user half is flushed at the next return to user mode.
    pub(crate) pending_user: Owned,
    pub(crate) asid: Owned,
    /// 1 if entries of the kernel's own tag may be stale.
    pub(crate) kernel_tag_stale: OwnedByte,
    /// 1 while this CPU asks others or waits for their answers: a flush in an interrupt handler would use the same
    /// mailbox.
    pub(crate) is_waiting: OwnedByte,
    /// One bit a mailbox: it was issued, and this CPU has not seen since that its outbox is empty; `ring.rs`.
    pub(crate) issued: OwnedByte,
    /// How often each mailbox was found empty after a request was issued in it; `ring.rs`. Read by waiters elsewhere.
    pub(crate) turns: [AtomicU32; RING],
    // Written by the owner, read by initiators.
    pub(crate) presence: AtomicU64,
    // Written by destroyers, read and cleared by the owner.
    pub(crate) notice: NoticeBoard,
    // Written by the owner, read by those whom it asks.
    pub(crate) first: First,
}

impl CpuState {
    const_unless_loom! {
        /// The state of a CPU that has not been brought up.
        #[must_use]
        pub fn new() -> Self {
            Self {
                slots: Slots::new(),
                asid: Owned::new(0),
                token: Owned::new(0),
                root: Owned::new(0),
                cr3_mask: Owned::new(0),
                keep_first: Owned::new(0),
                pending_user: Owned::new(0),
                kernel_tag_stale: OwnedByte::new(1),
                is_waiting: OwnedByte::new(0),
                issued: OwnedByte::new(0),
                turns: array_of!(AtomicU32::new(0); RING),
                presence: AtomicU64::new(Presence::NEW.0),
                notice: NoticeBoard::new(),
                first: First::new(),
            }
        }
    }
}

impl Attendance for &[CpuState] {
    fn is_away(&self, cpu: CpuId) -> bool {
        // Relaxed: no partner, it is for a report; who is named may leave meanwhile.
        Presence(self[cpu.0 as usize].presence.load(Ordering::Relaxed)).is_absent()
    }
}

impl Default for CpuState {
    fn default() -> Self {
        Self::new()
    }
}

// Of kernels: checkers have fewer mailboxes, under both names.
#[cfg(all(test, not(any(loom, narrow_sets))))]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_costs_whole_lines_and_what_others_read_begins_one() {
        assert_eq!(size_of::<CpuState>(), if cfg!(feature = "history") { 512 } else { 448 });
        assert_eq!(core::mem::offset_of!(CpuState, presence), 384);
    }
}

//! What one CPU has loaded, what it has asked of others, and the machine that they share.

use crate::addr::{CpuId, PhysAddr};
use crate::address_space::{AddressSpace, SpaceId};
use crate::asid::{Asid, Slots};
use crate::cpu_set::AtomicCpuSet;
use crate::hardware::{Cr3, Hardware, IrqsOff, Pcid};
use crate::history::state::Counters;
use crate::matrix::Matrix;
use crate::policy::{CpuSetUpkeep, Isolation, Lazy, Policy, Tags};
use crate::pti::Knobs;
use crate::request::{Mailbox, scope};
use crate::sync::{AtomicU64, Ordering, Owned, OwnedByte, const_unless_loom, fence};

/// What a CPU tells others of itself, in one word so that a sender cannot read two halves of different moments (C-04).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Presence(pub(crate) u64);

impl Presence {
    /// Runs the kernel's own tables: lazy in space 0, so that entering lazy mode sets a bit whatever is loaded.
    pub(crate) const KERNEL: Self = Self(Self::LAZY);
    /// Between two CR3 values: a target of every flush whose set it is in (INV-2).
    pub(crate) const SWITCHING: Self = Self(2);
    /// Not brought up, offline, or stopped: nobody tells it anything.
    pub(crate) const ABSENT: Self = Self(3);
    const LAZY: u64 = 1;

    pub(crate) const fn running(id: SpaceId) -> Self {
        Self(id.0 << 2)
    }

    pub(crate) const fn lazy(id: SpaceId) -> Self {
        Self(id.0 << 2 | Self::LAZY)
    }

    #[inline(always)]
    pub(crate) const fn as_lazy(self) -> Self {
        Self(self.0 | Self::LAZY)
    }

    pub(crate) const fn is_lazy(self) -> bool {
        self.0 & Self::LAZY != 0
    }
}

/// The policy as bits: what a switch has to do besides the common path.
pub(crate) mod flag {
    pub(crate) use crate::history::choices::flag::{COUNTED, COUNTS, KERNEL_SET};

    /// The set is exact: join at each switch, leave after it.
    pub(crate) const EXACT_SET: u32 = 1;
    /// Slots are recycled by last use.
    pub(crate) const LEAST_RECENT: u32 = 1 << 1;
    /// There is no lazy mode.
    pub(crate) const NOT_LAZY: u32 = 1 << 2;
    /// Two halves.
    pub(crate) const ISOLATED: u32 = 1 << 3;
    /// What makes a switch leave its common path.
    pub(crate) const SWITCH: u32 = EXACT_SET | COUNTED | KERNEL_SET;
    /// What makes entering lazy mode leave its common path.
    pub(crate) const ENTER_LAZY: u32 = COUNTED | NOT_LAZY;
}

/// One CPU's part of the protocol, 448 bytes (512 with the feature `history`). The kernel allocates as many as
/// there are possible CPUs.
///
/// Six lines that no other CPU touches, then one or two that others read: a switch writes the first of them once, a
/// request writes both (C-80).
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
    pub(crate) asid: OwnedByte,
    /// 1 if entries of the kernel's own tag may be stale.
    pub(crate) kernel_tag_stale: OwnedByte,
    /// 1 while this CPU waits for answers: its mailbox is in use.
    pub(crate) is_sending: OwnedByte,
    /// Rounds the owner's part up to whole lines.
    _rest: [Owned; 3],
    // Written by the owner, read by senders.
    pub(crate) presence: AtomicU64,
    // Written by the owner, read by those whom it asks.
    pub(crate) mailbox: Mailbox,
}

impl CpuState {
    const_unless_loom! {
        /// The state of a CPU that has not been brought up.
        #[must_use]
        pub fn new() -> Self {
            Self {
                slots: Slots::new(),
                asid: OwnedByte::new(0),
                token: Owned::new(0),
                root: Owned::new(0),
                cr3_mask: Owned::new(0),
                keep_first: Owned::new(0),
                pending_user: Owned::new(0),
                kernel_tag_stale: OwnedByte::new(1),
                is_sending: OwnedByte::new(0),
                _rest: [const { Owned::new(0) }; 3],
                presence: AtomicU64::new(Presence::ABSENT.0),
                mailbox: Mailbox::new(),
            }
        }
    }
}

impl Default for CpuState {
    fn default() -> Self {
        Self::new()
    }
}

/// The TLBs of a machine: its CPUs, who has asked whom, and the policy.
pub struct Tlb<'k> {
    pub(crate) cpus: &'k [CpuState],
    pub(crate) matrix: Matrix<'k>,
    pub(crate) kernel_root: PhysAddr,
    policy: Policy,
    /// The policy as [`flag`]s.
    flags: u32,
    knobs: Knobs,
    #[cfg_attr(not(feature = "history"), allow(dead_code, reason = "it holds nothing then"))]
    pub(crate) counters: Counters<'k>,
    /// A generation with none of these bits interrupts the whole set, so that it is trimmed.
    pub(crate) trim_mask: u64,
    /// A request with this scope does too.
    pub(crate) trims_with: u64,
    next_id: AtomicU64,
}

impl<'k> Tlb<'k> {
    /// Words of zeros that [`Tlb::new`] needs for `cpus` CPUs.
    #[must_use]
    pub const fn matrix_words(cpus: usize) -> usize {
        Matrix::words(cpus)
    }

    /// A machine with one [`CpuState`] a possible CPU; `kernel_root` is the top-level table of the kernel's own space.
    ///
    /// # Panics
    /// If `matrix` has fewer words than [`matrix_words`](Self::matrix_words), the policy's number of slots is not 1 to
    /// 15, or its interval between trims is neither 0 nor a power of two.
    #[must_use]
    pub fn new(cpus: &'k [CpuState], matrix: &'k [AtomicU64], kernel_root: PhysAddr, policy: Policy) -> Self {
        let matrix = Matrix::new(matrix, cpus.len());
        let _checked = policy.slots();
        let knobs = Knobs::new(&policy);
        let trim_mask = match policy.cpu_set {
            CpuSetUpkeep::Trimmed { every } | CpuSetUpkeep::TrimmedWithTables { every } if every != 0 => {
                assert!(every.is_power_of_two(), "a trim every 0 or a power of two generations, not {every}");
                u64::from(every) - 1
            }
            _ => u64::MAX,
        };
        let trims_with =
            if matches!(policy.cpu_set, CpuSetUpkeep::TrimmedWithTables { .. }) { scope::TABLES } else { 0 };
        let (flags, next_id) = (flags_of(&policy), AtomicU64::new(1));
        Self {
            cpus,
            matrix,
            kernel_root,
            policy,
            flags,
            knobs,
            counters: Counters::NONE,
            trim_mask,
            trims_with,
            next_id,
        }
    }

    /// The policy that the machine was made with.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What can be changed while the machine runs.
    #[must_use]
    pub const fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// An id that no space has had (INV-3).
    #[must_use]
    pub fn fresh_id(&self) -> SpaceId {
        // Relaxed: only the uniqueness of the number matters.
        SpaceId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// The handle by which CPU `id` calls the protocol. Cheap; make one wherever it is needed.
    ///
    /// # Panics
    /// If there is no such CPU.
    #[must_use]
    pub fn cpu<'t, H: Hardware>(&'t self, id: CpuId, hardware: &'t H) -> Cpu<'t, 'k, H> {
        Cpu { tlb: self, state: &self.cpus[id.0 as usize], id, flags: self.flags, hardware }
    }

    /// CPUs that take part.
    #[must_use]
    pub fn online(&self) -> AtomicCpuSet<'k> {
        self.matrix.online()
    }
}

/// One CPU's way into the protocol.
pub struct Cpu<'t, 'k, H> {
    pub(crate) tlb: &'t Tlb<'k>,
    pub(crate) state: &'t CpuState,
    pub(crate) id: CpuId,
    /// Of the policy: beside the number, where a test of them takes one instruction.
    flags: u32,
    pub(crate) hardware: &'t H,
}

impl<H> Clone for Cpu<'_, '_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Cpu<'_, '_, H> {}

impl<'t, 'k, H: Hardware> Cpu<'t, 'k, H> {
    /// Which CPU this is.
    #[must_use]
    pub const fn id(&self) -> CpuId {
        self.id
    }

    /// Its machine.
    #[must_use]
    pub const fn hardware(&self) -> &'t H {
        self.hardware
    }

    /// The machine's TLBs.
    #[must_use]
    pub const fn tlb(&self) -> &'t Tlb<'k> {
        self.tlb
    }

    /// True if `space` is loaded here and may be used by the program: what an NMI must ask before it touches user
    /// memory (C-54).
    #[must_use]
    pub fn is_running(&self, space: &AddressSpace<'_>) -> bool {
        self.presence() == Presence::running(space.id)
    }

    /// Starts or restarts this CPU: first use, hot-plug, resume. Whatever its TLB held is unknown, so all of it goes.
    ///
    /// Until the call returns, as while it was away, the CPU must touch only what stays mapped: flushes leave it out.
    /// If it was stopped by force while it asked, the call waits for those that it asked: they must be able to take an
    /// interrupt.
    pub fn bring_up(&self, irqs: &IrqsOff) {
        self.end_request();
        self.state.kernel_tag_stale.set(1);
        if self.presence() != Presence::ABSENT {
            self.load_kernel(irqs); // resume: the space that was loaded is still owed what leaving it owes
        }
        let policy = self.tlb.policy();
        let has_tags = self.hardware.features().pcid && policy.tags != Tags::Off;
        self.state.slots.reset(if has_tags { policy.slots() } else { 1 });
        self.state.cr3_mask.set(if has_tags { u64::MAX } else { !(1 << 63 | 0xfff) });
        self.state.keep_first.set(if has_tags { Cr3::keeping(PhysAddr(0), Asid(0).pcid()).0 } else { 0 });
        self.state.pending_user.set(u64::MAX);
        self.forget_requests();
        // Relaxed, both: ordered before the flush by the fence below.
        self.tlb.online().add(self.id, Ordering::Relaxed);
        self.set_presence(Presence::KERNEL, Ordering::Relaxed);
        // SeqCst: partner is the fence before a kernel flush reads the online CPUs: either the sender finds this CPU
        // there, or the flush below comes after its PTE change.
        fence(Ordering::SeqCst);
        self.state.root.set(self.tlb.kernel_root.0);
        self.load_cr3(Cr3::flushing(self.tlb.kernel_root, Pcid::KERNEL));
        self.flush_all_and_globals(irqs);
        self.state.kernel_tag_stale.set(0);
        // A sender may have found this CPU before its interrupts could arrive; the diagram is in `wait.rs`.
        self.answer(irqs);
    }

    /// Takes this CPU out: from now on nobody waits for it, and [`bring_up`](Self::bring_up) must come before it runs
    /// again. Until then it must touch only what stays mapped.
    pub fn offline(&self, irqs: &IrqsOff) {
        self.load_kernel(irqs);
        self.state.slots.reset(1);
        // Release: the CPU has left every space before it leaves the set; partner is whoever reads the set.
        self.tlb.online().remove(self.id, Ordering::Release);
        self.answer(irqs);
        // Release: no mailbox is read after it; partner is the Acquire in `withdraw`, diagram in `wait.rs`.
        self.set_presence(Presence::ABSENT, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn presence(&self) -> Presence {
        // Relaxed: no partner, this CPU alone writes its presence.
        Presence(self.state.presence.load(Ordering::Relaxed))
    }

    /// `order` is said, and its partner named, by the caller.
    #[inline(always)]
    pub(crate) fn set_presence(&self, presence: Presence, order: Ordering) {
        // The caller's `order`.
        self.state.presence.store(presence.0, order);
    }

    /// The slot whose tag is loaded; meaningful only while a space is.
    #[inline(always)]
    pub(crate) fn asid(&self) -> Asid {
        Asid(u32::from(self.state.asid.get()))
    }

    /// Writes CR3, without tag and no-flush bit where this CPU has no tags: what kernels wrote before PCIDs.
    #[inline(always)]
    pub(crate) fn load_cr3(&self, cr3: Cr3) {
        self.hardware.write_cr3(Cr3(cr3.0 & self.state.cr3_mask.get()));
    }

    /// Loads `root` under the tag of `asid` and keeps what the tag holds: a sum, since every switch pays for it.
    #[inline(always)]
    pub(crate) fn load_keeping(&self, root: PhysAddr, asid: Asid) {
        self.hardware.write_cr3(Cr3(root.0 | (self.state.keep_first.get() + u64::from(asid.0))));
    }

    #[inline(always)]
    pub(crate) const fn has_flag(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }
}

fn flags_of(policy: &Policy) -> u32 {
    let mut flags = policy.history.flags();
    let mut set = |condition: bool, flag: u32| flags |= if condition { flag } else { 0 };
    set(policy.cpu_set == CpuSetUpkeep::Exact, flag::EXACT_SET);
    set(matches!(policy.tags, Tags::LeastRecent(_)), flag::LEAST_RECENT);
    set(policy.lazy == Lazy::Off, flag::NOT_LAZY);
    set(policy.isolation == Isolation::On, flag::ISOLATED);
    flags
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_costs_whole_lines_and_what_others_read_begins_one() {
        assert_eq!(size_of::<CpuState>(), if cfg!(feature = "history") { 512 } else { 448 });
        assert_eq!(core::mem::offset_of!(CpuState, presence), 384);
    }
}

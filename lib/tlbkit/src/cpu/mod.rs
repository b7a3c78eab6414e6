//! The machine that all CPUs share ([`Tlb`]), and one CPU's handle on it ([`Cpu`]).
//!
//! **The rule.** What a CPU keeps is either its own, and then only that CPU touches it, with interrupts off; or it is
//! published in one word that others read (`state.rs`). `asid.rs` is the table of recently used spaces; `hotplug.rs` is
//! how a CPU comes online and goes offline, and what flushes owe it in between. The methods of [`Cpu`] stand with their
//! subjects: `switch/` loads spaces, `flush/` takes translations away, `space/end.rs` ends a space.

pub(crate) mod asid;
mod hotplug;
pub(crate) mod state;

use crate::addr::{CpuId, PhysAddr, SpaceToken};
use crate::flush::matrix::RequestMatrix;
use crate::flush::owed::Owed;
use crate::flush::request::Needs;
use crate::hardware::{Cr3, Hardware, IrqsOff};
use crate::policy::history::choices::LazyReferences;
use crate::policy::history::state::Counters;
use crate::policy::{
    Acknowledgement, Broadcast, CpuSetUpkeep, Directories, Isolation, Knobs, Lazy, LocalFlush, Policy, Tags,
};
use crate::space::cpu_set::AtomicCpuSet;
use crate::space::shared::{SharedPcids, Stamp};
use crate::space::{AddressSpace, Generation, SpaceId};
use crate::sync::{AtomicU64, Ordering, const_unless_loom};
use asid::Asid;
use state::{CpuState, Presence};

/// The policy as bits, so that one test on a path asks for several choices.
pub(crate) mod flag {
    pub(crate) use crate::policy::history::choices::flag::{ACCOUNTING, KERNEL_SET, LAZY_COUNTED};

    /// The CPU set is exact: join at each switch, leave after it.
    pub(crate) const EXACT_SET: u32 = 1;
    /// The ASID that was used longest ago is recycled.
    pub(crate) const LEAST_RECENT: u32 = 1 << 1;
    /// There is no lazy TLB mode.
    pub(crate) const NOT_LAZY: u32 = 1 << 2;
    /// Page-table isolation: two halves.
    pub(crate) const ISOLATED: u32 = 1 << 3;
    /// CPUs in lazy TLB mode look for notices of dying spaces.
    pub(crate) const AWAITED: u32 = 1 << 4;
    /// An initiator flushes its own TLB before it interrupts the other CPUs.
    pub(crate) const LOCAL_FIRST: u32 = 1 << 5;
    /// CPUs in lazy TLB mode are interrupted by every flush of their space.
    pub(crate) const LAZY_INTERRUPTED: u32 = 1 << 6;
    /// Spaces that many CPUs run are flushed by INVLPGB, where the machine has it; so are kernel addresses.
    pub(crate) const BROADCAST: u32 = 1 << 7;
    /// A switch owes something to the space that it leaves, so it takes the general path.
    pub(crate) const LEAVING_WORK: u32 = EXACT_SET | LAZY_COUNTED | KERNEL_SET;
    /// What makes entering lazy TLB mode more than one store.
    pub(crate) const ENTER_LAZY_WORK: u32 = LAZY_COUNTED | NOT_LAZY;
}

/// True if what a type cannot exclude is checked: in a debug build, unless simulators or loom would see the accesses.
pub(crate) const CHECKED: bool = cfg!(all(debug_assertions, not(any(loom, feature = "observe"))));

/// The TLBs of a machine: its CPUs, the requests between them, and the policy.
pub struct Tlb<'k> {
    pub(crate) cpus: &'k [CpuState],
    pub(crate) matrix: RequestMatrix<'k>,
    pub(crate) kernel_root: PhysAddr,
    policy: Policy,
    /// The policy as [`flag`]s.
    flags: u32,
    knobs: Knobs,
    pub(crate) counters: Counters<'k>,
    /// The flush of a generation with none of these bits interrupts the whole CPU set, so that it is trimmed.
    trim_mask: u64,
    /// So does a flush that needs this.
    trims_with: Needs,
    next_id: AtomicU64,
    pub(crate) owed: Owed,
    pub(crate) shared_pcids: SharedPcids<'k>,
}

impl<'k> Tlb<'k> {
    /// Words of zeros that [`Tlb::new`] needs for `cpus` CPUs. Align them to a cache line: then no two CPUs share a
    /// line that others write to.
    #[must_use]
    pub const fn matrix_words(cpus: usize) -> usize {
        RequestMatrix::words(cpus) + SharedPcids::WORDS
    }

    const_unless_loom! {
        /// The TLBs of a machine with one [`CpuState`] for each possible CPU. `matrix` holds
        /// [`matrix_words`](Self::matrix_words) zeros, and `kernel_root` is the top-level table of the kernel's own
        /// page tables.
        ///
        /// # Panics
        /// If `matrix` has fewer words than [`matrix_words`](Self::matrix_words); if the policy's number of ASIDs is
        /// not 1 to 15, or its interval between trims is neither 0 nor a power of two; if it asks for something that
        /// only a build with the feature `history` can do; if `kernel_root` is not the address of a page. In a `static`
        /// each of these is a compile error.
        #[must_use]
        pub fn new(cpus: &'k [CpuState], matrix: &'k [AtomicU64], kernel_root: PhysAddr, policy: Policy) -> Self {
            let _checked = policy.asids();
            policy.assert_is_supported();
            kernel_root.assert_is_page();
            assert!(matrix.len() >= Self::matrix_words(cpus.len()), "the matrix is too small for the CPUs");
            let (requests, pcids) = matrix.split_at(RequestMatrix::words(cpus.len()));
            Self {
                cpus,
                matrix: RequestMatrix::new(requests, cpus.len()),
                kernel_root,
                flags: flags_of(&policy),
                knobs: Knobs::new(&policy),
                counters: Counters::NONE,
                trim_mask: trim_mask_of(policy.cpu_set),
                trims_with: trims_with(policy.cpu_set),
                next_id: AtomicU64::new(1),
                owed: Owed::new(),
                shared_pcids: SharedPcids::new(pcids),
                policy,
            }
        }
    }

    /// The policy that the machine was made with.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How many CPUs it can have.
    #[must_use]
    pub const fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// What can be changed while the machine runs.
    #[must_use]
    pub const fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// An id that no space has had before (INV-3).
    #[must_use]
    pub fn fresh_id(&self) -> SpaceId {
        // Relaxed: only the uniqueness of the number matters.
        SpaceId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// True if, with the flush of this `generation`, CPUs that no longer run the space leave its CPU set.
    #[inline(always)]
    pub(crate) const fn is_trim_due(&self, generation: Generation, needs: Needs) -> bool {
        generation.0 & self.trim_mask == 0 || needs.any_of(self.trims_with)
    }

    /// The handle by which CPU `id` calls the protocol. Cheap; make one wherever it is needed.
    ///
    /// # Panics
    /// If there is no such CPU.
    #[must_use]
    pub fn cpu<'t, H: Hardware>(&'t self, id: CpuId, hardware: &'t H) -> Cpu<'t, 'k, H> {
        Cpu { tlb: self, state: &self.cpus[id.0 as usize], id, flags: self.flags, hardware }
    }

    /// CPUs that are online.
    #[must_use]
    pub fn online(&self) -> AtomicCpuSet<'k> {
        self.matrix.online()
    }
}

/// One CPU's handle on the protocol.
pub struct Cpu<'t, 'k, H> {
    pub(crate) tlb: &'t Tlb<'k>,
    pub(crate) state: &'t CpuState,
    pub(crate) id: CpuId,
    /// Copied from the machine, where a test of them would take one more instruction.
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

    /// True if `space` is loaded here and the program may use it: what an NMI must ask before it touches user memory
    /// (Linux: `nmi_uaccess_okay`; C-54). It may not while this CPU owes a flush that it has acknowledged.
    #[must_use]
    pub fn is_running(&self, space: &AddressSpace<H::Set>) -> bool {
        let owes_a_flush = self.acknowledges_early() && self.state.owes_a_flush.get() != 0;
        self.is_here() && self.presence() == Presence::running(space.id) && !owes_a_flush
    }

    /// The kernel's name of the space that this CPU has loaded last: for traces and watchdogs. That space may be gone
    /// already, if the kernel's own page tables are loaded now.
    #[must_use]
    pub fn loaded_token(&self) -> SpaceToken {
        SpaceToken(self.state.token.get())
    }

    /// Calls `f` with the space that the kernel calls `token`.
    pub(crate) fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<H::Set>) -> R) -> R {
        self.hardware.with_space_of(token.into(), |space| {
            debug_assert!(space.token == token, "asked for space {:#x}, and got {:#x}", token.0, space.token.0);
            f(space)
        })
    }

    /// With debug assertions, panics if interrupts are on, whatever an [`IrqsOff`] says.
    #[inline(always)]
    pub(crate) fn check_irqs_off(&self) {
        if CHECKED {
            assert!(!self.hardware.irqs_enabled(), "interrupts are on, and `IrqsOff::assume` said that they are off");
        }
    }

    /// True if this code runs on the CPU that the handle is for, as far as the kernel can tell.
    pub(crate) fn is_here(&self) -> bool {
        match self.hardware.this_cpu() {
            Some(here) if here != self.id => {
                self.hardware.wrong_cpu(self.id, here);
                false
            }
            _ => true,
        }
    }

    /// Reports to the kernel if this code runs on another CPU than the one that the handle is for.
    pub(crate) fn assert_here(&self) {
        let _reported = self.is_here();
    }

    /// Runs `f` with interrupts off, so that the task stays on this CPU, and checks that it is the right one.
    #[inline(always)]
    pub(crate) fn with_irqs_off_here<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        self.hardware.with_irqs_off(
            #[inline(always)]
            |irqs| {
                self.assert_here();
                f(irqs)
            },
        )
    }

    pub(crate) fn presence(&self) -> Presence {
        // Relaxed: no partner, this CPU alone writes its presence.
        Presence(self.state.presence.load(Ordering::Relaxed))
    }

    /// The caller chooses `order`, and names its partner.
    #[inline(always)]
    pub(crate) fn set_presence(&self, presence: Presence, order: Ordering) {
        // The caller's `order`.
        self.state.presence.store(presence.0, order);
    }

    /// The ASID whose PCID is loaded; meaningful only while a space is.
    pub(crate) fn asid(&self) -> Asid {
        Asid(self.state.asid.get())
    }

    /// Writes CR3; on a CPU without PCIDs, without PCID and no-flush bit, as kernels did before there were PCIDs.
    #[inline(always)]
    pub(crate) fn load_cr3(&self, cr3: Cr3) {
        self.hardware.write_cr3(Cr3(cr3.0 & self.state.cr3_mask.get()));
    }

    /// Loads `root` under the PCID of `asid` and keeps what the TLB holds under it. The value is a sum of two words,
    /// since every switch pays for it.
    #[inline(always)]
    pub(crate) fn load_keeping(&self, root: PhysAddr, asid: Asid) {
        self.hardware.write_cr3(Cr3(root.0 | (self.state.keep_first.get() + asid.0)));
    }

    /// True if this machine has INVLPGB, and the policy uses it. Where [`Hardware::broadcast_pages`] is left as it is,
    /// nothing is left of what asks for it.
    #[inline(always)]
    pub(crate) fn has_broadcast(&self) -> bool {
        self.hardware.broadcast_pages().is_some() && self.has_flag(flag::BROADCAST)
    }

    /// True if CPUs may have upper page tables of their own. Where [`Hardware::directories`] is left as it is, nothing
    /// is left of what asks for it.
    #[inline(always)]
    pub(crate) fn has_directories(&self) -> bool {
        self.hardware.directories() == Directories::OfEachCpu
    }

    /// True if requests may be acknowledged before they are carried out. Where [`Hardware::acknowledgement`] is left as
    /// it is, nothing is left of what asks for it.
    #[inline(always)]
    pub(crate) fn acknowledges_early(&self) -> bool {
        self.hardware.acknowledgement() == Acknowledgement::BeforeFlush
    }

    /// The generation in `stamp`, which is the stamp itself where no space has a shared PCID.
    #[inline(always)]
    pub(crate) fn generation_in(&self, stamp: Stamp) -> Generation {
        if self.has_broadcast() { stamp.generation() } else { Generation(stamp.0) }
    }

    #[inline(always)]
    pub(crate) const fn has_flag(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }
}

const fn flags_of(policy: &Policy) -> u32 {
    let mut flags = policy.history.flags();
    if policy.lazy_references.is_counted() {
        flags |= flag::LAZY_COUNTED;
    }
    if matches!(policy.lazy_references, LazyReferences::Awaited) {
        flags |= flag::AWAITED;
    }
    if matches!(policy.cpu_set, CpuSetUpkeep::Exact) {
        flags |= flag::EXACT_SET;
    }
    if matches!(policy.tags, Tags::LeastRecent(_)) {
        flags |= flag::LEAST_RECENT;
    }
    if matches!(policy.lazy, Lazy::Off) {
        flags |= flag::NOT_LAZY;
    }
    if !matches!(policy.lazy, Lazy::SkipUnlessTablesFreed) {
        flags |= flag::LAZY_INTERRUPTED;
    }
    if matches!(policy.isolation, Isolation::On) {
        flags |= flag::ISOLATED;
    }
    if !matches!(policy.broadcast, Broadcast::Off) {
        flags |= flag::BROADCAST;
    }
    if matches!(policy.local_flush, LocalFlush::BeforeRemote) {
        flags |= flag::LOCAL_FIRST;
    }
    flags
}

const fn trim_mask_of(upkeep: CpuSetUpkeep) -> u64 {
    match upkeep {
        CpuSetUpkeep::Trimmed { every } | CpuSetUpkeep::TrimmedWithTables { every } if every != 0 => {
            assert!(every.is_power_of_two(), "the generations between two trims are neither 0 nor a power of two");
            every as u64 - 1
        }
        _ => u64::MAX,
    }
}

const fn trims_with(upkeep: CpuSetUpkeep) -> Needs {
    if matches!(upkeep, CpuSetUpkeep::TrimmedWithTables { .. }) { Needs::TABLES } else { Needs::NOTHING }
}

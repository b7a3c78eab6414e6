//! The machine that all CPUs share, and one CPU's handle on it.

#[cfg(all(feature = "observe", not(loom)))]
use core::mem::offset_of;

use crate::addr::{CpuId, PhysAddr, SpaceToken};
use crate::address_space::{AddressSpace, Generation, SpaceId};
use crate::asid::Asid;
use crate::cpu_set::AtomicCpuSet;
use crate::cpu_state::{CpuState, Presence};
use crate::hardware::{Cr3, Hardware, IrqsOff};
use crate::history::choices::LazyReferences;
use crate::history::state::Counters;
use crate::knobs::Knobs;
use crate::owed::Owed;
use crate::policy::{CpuSetUpkeep, Isolation, Lazy, LocalFlush, Policy, Tags};
#[cfg(all(feature = "observe", not(loom)))]
use crate::request::First;
use crate::request::Needs;
use crate::request_matrix::RequestMatrix;
#[cfg(all(feature = "observe", not(loom)))]
use crate::request_matrix::part::{Part, offset_in};
use crate::sync::{AtomicU64, Ordering, const_unless_loom};

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
    /// Lazy CPUs look for notices when they leave.
    pub(crate) const AWAITED: u32 = 1 << 4;
    /// An initiator flushes its own TLB before it asks the others.
    pub(crate) const LOCAL_FIRST: u32 = 1 << 5;
    /// CPUs that hold a space lazily are asked whatever goes.
    pub(crate) const LAZY_TOLD: u32 = 1 << 6;
    /// What makes a switch leave its common path.
    pub(crate) const SWITCH: u32 = EXACT_SET | COUNTED | KERNEL_SET;
    /// What a switch to a known slot asks first: of most policies nothing.
    pub(crate) const KNOWN_SLOT: u32 = SWITCH | LEAST_RECENT;
    /// What makes entering lazy mode leave its common path.
    pub(crate) const ENTER_LAZY: u32 = COUNTED | NOT_LAZY;
}

/// The TLBs of a machine: its CPUs, who has asked whom, and the policy.
pub struct Tlb<'k> {
    pub(crate) cpus: &'k [CpuState],
    pub(crate) matrix: RequestMatrix<'k>,
    pub(crate) kernel_root: PhysAddr,
    policy: Policy,
    /// The policy as [`flag`]s.
    flags: u32,
    knobs: Knobs,
    #[cfg_attr(not(feature = "history"), allow(dead_code, reason = "it holds nothing then"))]
    pub(crate) counters: Counters<'k>,
    /// A generation with none of these bits interrupts the whole set, so that it is trimmed.
    trim_mask: u64,
    /// A request that needs this does too.
    trims_with: Needs,
    next_id: AtomicU64,
    pub(crate) owed: Owed,
}

impl<'k> Tlb<'k> {
    /// Words of zeros that [`Tlb::new`] needs for `cpus` CPUs. Let them begin a cache line: then no two CPUs share a
    /// line of what others write.
    #[must_use]
    pub const fn matrix_words(cpus: usize) -> usize {
        RequestMatrix::words(cpus)
    }

    const_unless_loom! {
        /// A machine with one [`CpuState`] a possible CPU; `kernel_root` is the top-level table of the kernel's own
        /// space.
        ///
        /// # Panics
        /// If `matrix` has fewer words than [`matrix_words`](Self::matrix_words), the policy's number of slots is not 1
        /// to 15, or its interval between trims is neither 0 nor a power of two; if `kernel_root` is not the address of
        /// a page. In a static they do not compile.
        #[must_use]
        pub fn new(cpus: &'k [CpuState], matrix: &'k [AtomicU64], kernel_root: PhysAddr, policy: Policy) -> Self {
            let _checked = policy.slots();
            kernel_root.assert_is_page();
            Self {
                cpus,
                matrix: RequestMatrix::new(matrix, cpus.len()),
                kernel_root,
                flags: flags_of(&policy),
                knobs: Knobs::new(&policy),
                counters: Counters::NONE,
                trim_mask: trim_mask_of(policy.cpu_set),
                trims_with: trims_with(policy.cpu_set),
                next_id: AtomicU64::new(1),
                owed: Owed::new(),
                policy,
            }
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

    /// True if the CPUs that no longer run the space leave its set with the request of this generation.
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

    /// CPUs that take part.
    #[must_use]
    pub fn online(&self) -> AtomicCpuSet<'k> {
        self.matrix.online()
    }
}

#[cfg(all(feature = "observe", not(loom)))]
impl Tlb<'_> {
    /// The part in which the byte at `address` lies; none if it is of what no CPU tells another.
    #[must_use]
    pub fn part_at(&self, address: usize) -> Option<Part> {
        let Some(offset) = offset_in(self.cpus.as_ptr_range(), address) else { return self.matrix.part_at(address) };
        let (cpu, offset) = (CpuId((offset / size_of::<CpuState>()) as u32), offset % size_of::<CpuState>());
        let [presence, mailbox] = [offset_of!(CpuState, presence), offset_of!(CpuState, first)];
        match offset {
            _ if (presence..presence + size_of::<AtomicU64>()).contains(&offset) => Some(Part::Presence(cpu)),
            _ if (mailbox..mailbox + size_of::<First>()).contains(&offset) => Some(Part::Mailbox(cpu)),
            _ => None,
        }
    }
}

#[cfg(all(feature = "observe", not(loom)))]
impl<H: Hardware> Cpu<'_, '_, H> {
    /// The space that this CPU has loaded last: for a simulator.
    #[must_use]
    pub fn loaded_token(&self) -> SpaceToken {
        SpaceToken(self.state.token.get())
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
    pub fn is_running(&self, space: &AddressSpace<H::Set>) -> bool {
        self.is_here() && self.presence() == Presence::running(space.id)
    }

    /// Calls `f` with the space that the kernel named by `token`.
    #[inline(always)]
    pub(crate) fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<H::Set>) -> R) -> R {
        self.hardware.with_space_of(token.into(), f)
    }

    /// True if this code runs on the CPU in whose name it was called, as far as the kernel can tell.
    #[inline(always)]
    pub(crate) fn is_here(&self) -> bool {
        match self.hardware.this_cpu() {
            Some(here) if here != self.id => {
                self.hardware.wrong_cpu(self.id, here);
                false
            }
            _ => true,
        }
    }

    /// Tells the kernel if this code does not run on the CPU in whose name it was called.
    #[inline(always)]
    pub(crate) fn assert_here(&self) {
        let _told = self.is_here();
    }

    /// Runs `f` with interrupts off, so that the task stays where it is; tells the kernel if that is another CPU than
    /// the one in whose name it was called.
    #[inline(always)]
    pub(crate) fn with_irqs_off_here<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        self.hardware.with_irqs_off(|irqs| {
            self.assert_here();
            f(irqs)
        })
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
        Asid(self.state.asid.get())
    }

    /// Writes CR3, without tag and no-flush bit where this CPU has no tags: what kernels wrote before PCIDs.
    #[inline(always)]
    pub(crate) fn load_cr3(&self, cr3: Cr3) {
        self.hardware.write_cr3(Cr3(cr3.0 & self.state.cr3_mask.get()));
    }

    /// Loads `root` under the tag of `asid` and keeps what the tag holds: a sum, since every switch pays for it.
    #[inline(always)]
    pub(crate) fn load_keeping(&self, root: PhysAddr, asid: Asid) {
        self.hardware.write_cr3(Cr3(root.0 | (self.state.keep_first.get() + asid.0)));
    }

    #[inline(always)]
    pub(crate) const fn has_flag(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }
}

const fn flags_of(policy: &Policy) -> u32 {
    let mut flags = policy.history.flags();
    if policy.lazy_references.is_counted() {
        flags |= flag::COUNTED;
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
        flags |= flag::LAZY_TOLD;
    }
    if matches!(policy.isolation, Isolation::On) {
        flags |= flag::ISOLATED;
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

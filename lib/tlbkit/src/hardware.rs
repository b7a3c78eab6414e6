//! The hardware interface: all that the protocol needs from a machine and from the kernel on it.
//!
//! [`Hardware`] is implemented for the CPUs of a machine. Whatever a function does must have happened, as the manual
//! defines the instruction, when the call returns; each implementation also keeps the compiler from moving memory
//! accesses across it.

use core::num::NonZeroU32;

use crate::addr::{CpuId, PhysAddr, SpaceToken, Stride, VirtAddr};
use crate::policy::{Acknowledgement, Directories};
use crate::space::AddressSpace;
use crate::space::cpu_set::Missing;
use crate::sync::AtomicU64;

/// A process-context identifier, 0 ..= 4095. PCID 0 is that of the kernel's own page tables, and of code that knows
/// nothing about PCIDs; it never names a space (INV-8). How PCIDs and ASIDs differ is at the head of `cpu/asid.rs`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Pcid(pub u16);

impl Pcid {
    /// The PCID of the kernel's own page tables.
    pub const KERNEL: Self = Self(0);
    /// Set in the PCID of a user half.
    pub const USER_BIT: u16 = 1 << 11;

    /// The PCID of the user half that belongs to this kernel half.
    #[must_use]
    pub const fn user_half(self) -> Self {
        Self(self.0 | Self::USER_BIT)
    }
}

/// A value for CR3: root, PCID and the no-flush bit (63). The protocol leaves the last two out on a CPU without
/// [`Features::pcid`]; the machine may write what it is given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cr3(pub u64);

impl Cr3 {
    const KEEP: u64 = 1 << 63;

    /// Loads `root` under `pcid` and flushes what the TLB holds under that PCID.
    #[must_use]
    pub const fn flushing(root: PhysAddr, pcid: Pcid) -> Self {
        Self(root.0 | pcid.0 as u64)
    }

    /// Loads `root` under `pcid` and keeps what the TLB holds under that PCID: only for an ASID that is known to be
    /// current (INV-12).
    #[must_use]
    pub const fn keeping(root: PhysAddr, pcid: Pcid) -> Self {
        Self(root.0 | pcid.0 as u64 | Self::KEEP)
    }

    /// True if the load keeps the entries of its PCID.
    #[must_use]
    pub const fn keeps(self) -> bool {
        self.0 & Self::KEEP != 0
    }

    /// The PCID.
    #[must_use]
    pub const fn pcid(self) -> Pcid {
        Pcid((self.0 & 0xfff) as u16)
    }

    /// Physical address of the top-level table.
    #[must_use]
    pub const fn root(self) -> PhysAddr {
        PhysAddr(self.0 & 0x000f_ffff_ffff_f000)
    }
}

/// The four types of INVPCID.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Invpcid {
    /// Type 0: one page of one PCID; globals stay.
    Address(Pcid, VirtAddr),
    /// Type 1: all of one PCID; globals stay.
    Single(Pcid),
    /// Type 2: all PCIDs, and globals.
    AllAndGlobals,
    /// Type 3: all PCIDs; globals stay.
    All,
}

impl Invpcid {
    /// What the instruction takes: the type in its register, the PCID and the address in its descriptor. An operand
    /// that the type ignores is 0.
    #[inline]
    #[must_use]
    pub const fn operands(self) -> (u64, Pcid, VirtAddr) {
        match self {
            Self::Address(pcid, va) => (0, pcid, va),
            Self::Single(pcid) => (1, pcid, VirtAddr(0)),
            Self::AllAndGlobals => (2, Pcid::KERNEL, VirtAddr(0)),
            Self::All => (3, Pcid::KERNEL, VirtAddr(0)),
        }
    }

    /// What an instruction with these operands does; none for a type that does not exist, for which the CPU faults.
    #[inline]
    #[must_use]
    pub const fn from_operands(kind: u64, pcid: Pcid, va: VirtAddr) -> Option<Self> {
        match kind {
            0 => Some(Self::Address(pcid, va)),
            1 => Some(Self::Single(pcid)),
            2 => Some(Self::AllAndGlobals),
            3 => Some(Self::All),
            _ => None,
        }
    }
}

/// What one INVLPGB invalidates on every CPU of the machine, once a TLBSYNC has ended on the CPU that executed it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Invlpgb {
    /// `pages` translations of one PCID, `stride` apart, from `first` on; globals stay. [`Stride::Page1G`] comes with
    /// one page alone: any address inside a translation of 1 GiB names it. With [`Tables::Kept`] the cached paths to
    /// them may stay.
    Pages {
        /// The PCID.
        pcid: Pcid,
        /// The first address.
        first: VirtAddr,
        /// How many there are, at most [`Hardware::broadcast_pages`].
        pages: u32,
        /// The distance between them.
        stride: Stride,
        /// Whether the cached paths to them go as well.
        tables: Tables,
    },
    /// The same of every PCID, and globals.
    PagesOfAll {
        /// The first address.
        first: VirtAddr,
        /// How many there are, at most [`Hardware::broadcast_pages`].
        pages: u32,
        /// The distance between them.
        stride: Stride,
    },
    /// All of one PCID; globals stay.
    Single(Pcid),
    /// All PCIDs; globals stay.
    All,
    /// All PCIDs, and globals.
    AllAndGlobals,
}

/// Whether page-table pages are freed with the translations of a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tables {
    /// They stay.
    Kept,
    /// Some were taken out, and are freed after the flush (Linux: `freed_tables`). CPUs that hold the space in lazy TLB
    /// mode have to flush as well (C-20), and when the flush returns no CPU walks such a page. Code that reads page
    /// tables without a lock may: see [`TlbGather::interrupt_walkers`](crate::TlbGather::interrupt_walkers) (C-23).
    Freed,
}

/// What this CPU can do. Per CPU, because the cores of one machine differ (C-84).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// CR4.PCIDE is set on this CPU.
    pub pcid: bool,
    /// INVPCID exists.
    pub invpcid: bool,
}

/// What the host of a guest flushes of the guest's CPUs without an IPI: see [`Hardware::flush_by_host`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostFlush {
    /// Nothing: this is no guest, or its host has nothing of the kind.
    None,
    /// Translations. Paths to page tables that a CPU has cached may stay, so CPUs still get an IPI when page-table
    /// pages are freed.
    Translations,
    /// Translations, and all cached paths: from then on no walk uses a page-table page that was taken out before.
    TranslationsAndPaths,
}

/// What a host is to flush, under every PCID and among global translations. More is never wrong. Only kernel addresses
/// come as a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostExtent {
    /// All translations and, if the host [can](HostFlush::TranslationsAndPaths), all cached paths.
    Everything,
    /// `pages` translations from an address on, each `bytes` beyond the one before.
    Range {
        /// The first address.
        start: VirtAddr,
        /// How many.
        pages: u32,
        /// The distance from one to the next.
        bytes: u64,
    },
}

/// When flushes of kernel addresses reach a CPU that runs a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelFlushes {
    /// At once: it is interrupted.
    AtOnce,
    /// When it enters the kernel, if it has called [`Cpu::defer_kernel_flushes`](crate::Cpu::defer_kernel_flushes):
    /// for CPUs that are not to be disturbed.
    AtEntry,
}

/// Witness that interrupts are off on this CPU: the precondition of every call that changes its ASIDs (C-53).
///
/// It cannot leave the CPU: it is neither `Send` nor `Sync`.
#[derive(Debug)]
pub struct IrqsOff(core::marker::PhantomData<*const ()>);

impl IrqsOff {
    /// The caller states that interrupts are off and stay off while the value lives: in an interrupt handler, or
    /// between `cli` and `sti`. A wrong statement breaks the protocol's invariants, not memory safety. With debug
    /// assertions a switch and an answer look at the interrupt flag.
    #[must_use]
    pub const fn assume() -> Self {
        Self(core::marker::PhantomData)
    }
}

/// What happened in the protocol: for counters and traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A switch found a current ASID and kept its entries.
    SwitchKept,
    /// A switch had to flush the ASID that it loaded.
    SwitchFlushed,
    /// A flush began on its initiator: pages (`u32::MAX` for everything).
    FlushBegin(u32),
    /// The local half of a flush ended.
    FlushLocalDone,
    /// A flush has looked at the other CPUs that may hold what is flushed: `asked` of them are responders, the others
    /// are left alone.
    Chosen {
        /// CPUs to which the request is sent.
        asked: u32,
        /// CPUs that are left alone: they cannot use what they hold, or not before they look at the generation.
        skipped: u32,
    },
    /// Of the CPUs that a flush had chosen, these get no IPI, and nobody waits for them: how many interrupts were
    /// spared. Only where the kernel uses [`Hardware::flush_by_host`] or [`KernelFlushes::AtEntry`]; they are not among
    /// those that [`Chosen`](Self::Chosen) counts.
    Spared {
        /// CPUs that flush when they enter the kernel.
        until_entry: u32,
        /// CPUs that the host flushes.
        by_host: u32,
    },
    /// This CPU entered the kernel and has done the flushes that were deferred until then.
    CaughtUp,
    /// A flush was issued, and the call returns before all CPUs have answered.
    FlushIssued,
    /// A flush ends: every CPU that it waited for has answered.
    FlushEnd,
    /// A request is being carried out for another CPU.
    AnswerBegin(CpuId),
    /// It has been carried out.
    AnswerEnd(CpuId),
    /// A waiting CPU has found another CPU that has not answered yet.
    Waiting(CpuId),
    /// A request found nothing left to do: another flush has done it.
    AlreadyCurrent,
    /// A request was for a space that is not loaded here.
    WrongSpace,
    /// A request has made this CPU leave the space that it held in lazy TLB mode, in the IPI handler or in a wait: the
    /// kernel's own page tables are loaded now. A kernel that records what is loaded corrects that here.
    LazyLeft(SpaceToken),
    /// The last CPU that held a dying space in lazy TLB mode has left it: the kernel may free its page tables, but not
    /// right now, as this comes in a switch, in the IPI handler or in the wait of another flush.
    LastLazyReference(SpaceToken),
}

/// What to do about a CPU that has not answered in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// Wait on. For a kernel in which no CPU is stopped by force, and in which no interrupt handler that comes between
    /// a hint and its IPI waits for a lock that other CPUs hold while they [poll](crate::Pending::poll) or flush. Those
    /// would find the hint, count on that IPI, and send none, so that each would wait for the other.
    Wait,
    /// Send it another IPI, which is the default: one may have been lost. A request that arrives twice is carried out
    /// once.
    AskAgain,
}

/// One CPU of a machine. `tlbkit-x86` implements it with instructions.
///
/// The protocol calls these functions in the middle of its own work. So none of them may call the protocol, sleep, or
/// take a lock that is held anywhere while the protocol is called; [`unanswered`](Self::unanswered) may declare CPUs
/// stopped. Nor may any of them take a lock whose spin loop calls [`Cpu::answer`](crate::Cpu::answer): that would
/// answer within an answer or a switch.
pub trait Hardware {
    /// Where the CPU set of a space is stored: an array inside it, a box, a borrowed slice.
    type Set: AsRef<[AtomicU64]>;

    /// How the kernel names its spaces: [`SpaceToken`] itself, or another type that is made from one.
    type Token: From<SpaceToken>;

    /// What this CPU can do.
    fn features(&self) -> Features;

    /// MOV to CR3.
    fn write_cr3(&self, cr3: Cr3);

    /// INVLPG: flushes the page under the current PCID, global entries for it, and all paging-structure entries of the
    /// current PCID. On AMD's processors the last only while EFER.TCE is 0, as after a reset: with TCE the cached paths
    /// to other addresses stay.
    fn invlpg(&self, va: VirtAddr);

    /// INVPCID. Called only if [`Features::invpcid`].
    fn invpcid(&self, what: Invpcid);

    /// Clears and sets CR4.PGE: flushes everything, all PCIDs and globals. Called with interrupts off.
    fn toggle_pge(&self);

    /// The most pages that one INVLPGB takes, on a machine on which every CPU has it and has its PCIDs enabled; nothing
    /// on any other machine. Every CPU says the same, whenever it is asked. The default has none, and costs nothing.
    #[inline(always)]
    fn broadcast_pages(&self) -> Option<NonZeroU32> {
        None
    }

    /// INVLPGB. Called only if [`broadcast_pages`](Self::broadcast_pages) says how many pages it takes. It need not
    /// have happened when the call returns.
    ///
    /// # Panics
    /// The default does: it is for a machine without the instruction.
    #[cold]
    fn invlpgb(&self, what: Invlpgb) {
        panic!("{what:?} on a machine without INVLPGB");
    }

    /// TLBSYNC: each INVLPGB that this CPU has executed has happened, on every CPU, when the call returns. Called after
    /// every few of those, on the same CPU, with preemption off.
    ///
    /// # Panics
    /// As [`invlpgb`](Self::invlpgb).
    #[cold]
    fn tlbsync(&self) {
        panic!("TLBSYNC on a machine without INVLPGB");
    }

    /// Sends the shootdown IPI to `to`, whose handler calls [`Cpu::answer`](crate::Cpu::answer). It may be late and may
    /// merge with others; one that is lost is sent again, unless [`late`](Self::late) says otherwise.
    fn send_ipi(&self, to: CpuId);

    /// Sends it to every online CPU but this one.
    fn send_ipi_to_others(&self);

    /// What this guest's host flushes without an IPI. It says the same whenever it is asked. With the default the
    /// flushes of a kernel have no instruction for it.
    #[inline(always)]
    fn host_flush(&self) -> HostFlush {
        HostFlush::None
    }

    /// Has the host flush `what` on some of `cpus`, without an IPI; bit 0 of `cpus` is `first`. Returns those that it
    /// does not flush, which get an IPI as usual. Called for CPUs that a flush has chosen, after the page tables were
    /// changed; interrupts may be on or off. Only if [`host_flush`](Self::host_flush) is not [`HostFlush::None`].
    ///
    /// **The promise**: a CPU that is not among those returned executes nothing, from the return of this call on,
    /// with what it had cached before the call, and its earlier accesses are over. Either it has been flushed, as by a
    /// hypercall; or it does not run now, and is flushed when it is run again, before its first instruction. For the
    /// second the mark "flush at entry" must be made by one locked operation that fails if the host is running the CPU,
    /// on a word that the host takes by a locked operation before it flushes; KVM's steal-time word is one. It is made
    /// even if it is there already: an earlier mark says nothing about this change. A CPU that may resume unflushed,
    /// because the host was only likely to notice, must be returned (C-74).
    ///
    /// A walker that counts on interrupts that are off must be known to the flush:
    /// [`TlbGather::interrupt_walkers`](crate::TlbGather::interrupt_walkers).
    #[inline(always)]
    fn flush_by_host(&self, first: CpuId, cpus: u64, what: HostExtent) -> u64 {
        let _ = (first, what);
        cpus
    }

    /// When flushes of kernel addresses reach a CPU that runs a program. It says the same whenever it is asked. With
    /// the default the flushes of a kernel have no instruction for it.
    #[inline(always)]
    fn kernel_flushes(&self) -> KernelFlushes {
        KernelFlushes::AtOnce
    }

    /// PAUSE in a loop that waits for another CPU: with interrupts on in a flush and in the wait for one that was
    /// issued, with interrupts off in [`Cpu::destroy_later`](crate::Cpu::destroy_later) and
    /// [`Cpu::bring_up`](crate::Cpu::bring_up), and as the caller has them in [`Pending::poll`](crate::Pending::poll).
    fn relax(&self);

    /// How many times a wait just looks again whether it is over, with a [`relax`](Self::relax) before each look,
    /// before it also answers other CPUs at each turn. Interrupts are on meanwhile, so a few of these looks delay
    /// nobody, and a wait that is over soon takes a fraction of the instructions. The default is none.
    fn glances(&self) -> u32 {
        0
    }

    /// Turns of a waiting loop after which [`late`](Self::late) is called, again and again. The default is about a
    /// millisecond of PAUSE.
    #[inline]
    fn patience_turns(&self) -> u32 {
        1 << 14
    }

    /// `cpu` has not answered in time: a kernel may print its number, and may have another IPI sent, as the default
    /// does. Called for each late CPU in turn. A kernel that uses [`declare_stopped`](crate::Tlb::declare_stopped) must
    /// not return [`Late::Wait`].
    fn late(&self, cpu: CpuId) -> Late {
        let _ = cpu;
        Late::AskAgain
    }

    /// How often [`late`](Self::late) is called in one wait before the missing CPUs are given up, and
    /// [`unanswered`](Self::unanswered) is called. The default makes about a second of the default turns. A guest whose
    /// host may take a CPU away for longer needs more.
    #[inline]
    fn patience_rounds(&self) -> u32 {
        1 << 10
    }

    /// These CPUs have not answered, however many IPIs they were sent; or one does not end its switch, for which
    /// [`Cpu::destroy_later`](crate::Cpu::destroy_later) waits with interrupts off. A kernel stops the machine, or
    /// declares them [stopped](crate::Tlb::declare_stopped); a CPU that was declared stopped is not named again. If the
    /// call returns, the wait goes on and counts anew: what was to be flushed may not be freed before they have
    /// answered.
    ///
    /// # Panics
    /// The default does, and names them.
    #[cold]
    fn unanswered(&self, missing: Missing<'_>) {
        panic!("{}{missing}", missing.complaint());
    }

    /// The CPU that executes this code, where the kernel can tell: by per-CPU data, RDTSCP or RDPID. It is compared
    /// with the CPU that the handle is for: when a call begins, where it flushes this CPU's TLB, before a waiting CPU
    /// answers other CPUs, and when a call that waited, or issued or sent a flush, ends. So a task that migrated in
    /// between, or a number that was wrong from the beginning, is noticed. Interrupts may be on or off, and an NMI may
    /// call it. The default does not tell, and costs nothing.
    fn this_cpu(&self) -> Option<CpuId> {
        None
    }

    /// The protocol was called for CPU `named` and runs on `here`: see [`this_cpu`](Self::this_cpu). If this returns,
    /// the call goes on all the same, but carries out no request of other CPUs.
    ///
    /// # Panics
    /// The default does, and names both.
    #[cold]
    fn wrong_cpu(&self, named: CpuId, here: CpuId) {
        panic!("called as CPU {}, on CPU {}: the task has migrated, or the number is wrong", named.0, here.0);
    }

    /// What CR3 holds, where that is cheap to tell. A debug build compares it, at each switch to another space, with
    /// what the library wrote there: a kernel that also loads CR3 itself would run with another space's tags. The
    /// default does not tell.
    fn cr3(&self) -> Option<Cr3> {
        None
    }

    /// Whether each CPU may have its own upper page tables in some space: the head of `flush/sharers.rs`. The
    /// default says that all share them, and then [`flush_within`](crate::TlbGather::flush_within) is an ordinary
    /// flush. The answer is always the same.
    #[inline(always)]
    fn directories(&self) -> Directories {
        Directories::Shared
    }

    /// The top-level table that this CPU loads for `space`. The default is the one that the space was made with. A
    /// kernel that gives each CPU its own upper page tables (the head of `flush/sharers.rs`) names this CPU's, with the
    /// user half a page above it under isolation. After another one has been named,
    /// [`reload_roots`](crate::Cpu::reload_roots) or [`reload_root_here`](crate::Cpu::reload_root_here) is called.
    #[inline(always)]
    fn root_here(&self, space: &AddressSpace<Self::Set>) -> PhysAddr {
        space.root()
    }

    /// When this CPU acknowledges a request of another one. [`Acknowledgement::BeforeFlush`] is for a kernel that keeps
    /// to the rules at the head of `flush/answer.rs`: handlers that nothing holds back, and functions of this trait,
    /// ask [`Cpu::is_running`](crate::Cpu::is_running) before they touch user memory. With the default the answers of
    /// a kernel have no instruction for it. Every CPU says the same, whenever it is asked.
    #[inline(always)]
    fn acknowledgement(&self) -> Acknowledgement {
        Acknowledgement::AfterFlush
    }

    /// True if interrupts are on: waiting with interrupts off is an error (INV-7).
    fn irqs_enabled(&self) -> bool;

    /// Runs `f` with interrupts off, and restores the interrupt flag afterwards.
    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R;

    /// Calls `f` with the space that the kernel calls `token`.
    ///
    /// The space is one that is loaded on this CPU; or that another CPU waits for this one to flush; or that this CPU
    /// is just leaving, be it alive or ended and held lazily; or that [`Cpu::with_space`](crate::Cpu::with_space) goes
    /// back to. CR3 may name other page tables already. So a kernel has to find a space by its token until its end is
    /// over: until [`Destroyed::Now`](crate::Destroyed) or [`Event::LastLazyReference`]. Until then no other space may
    /// have the same token.
    ///
    /// It is called with interrupts off, in the IPI handler too, and sometimes inside another such call, for another
    /// space. A kernel may take a lock to find the space, if every holder of that lock has interrupts off and waits for
    /// no other CPU: [`Cpu::destroy_later`](crate::Cpu::destroy_later) does wait for one, so do not call it under that
    /// lock. Drop the lock before calling `f`.
    fn with_space_of<R>(&self, token: Self::Token, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R;

    /// Something happened; for counters and traces. The default does nothing and costs nothing.
    fn event(&self, event: Event) {
        let _ = event;
    }

    /// A monotonic clock, in cycles; read only if flushes are counted.
    fn now_cycles(&self) -> u64;
}

//! The only door from the protocol to a machine.
//!
//! Look-alikes, told apart:
//!
//! | word | what it is |
//! |---|---|
//! | [`Asid`](crate::Asid) | index of a slot in one CPU's table, 0 ..= 14 |
//! | kernel PCID | slot + 1: what CR3 carries while the kernel half is loaded |
//! | user PCID | kernel PCID with bit 11 set: the other half under page-table isolation |
//! | PCID 0 | the kernel's own tables, and code that knows nothing of PCIDs; never a space (INV-8) |
//!
//! A machine implements [`Hardware`] once per CPU. Everything that it does must have happened, as the manual
//! defines the instruction, when the call returns; each implementation also keeps the compiler from moving memory
//! accesses across.

use crate::addr::{CpuId, PhysAddr, SpaceToken, VirtAddr};
use crate::space::AddressSpace;
use crate::space::cpu_set::Missing;
use crate::sync::AtomicU64;

/// A hardware tag, 0 ..= 4095.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Pcid(pub u16);

impl Pcid {
    /// The tag of the kernel's own tables.
    pub const KERNEL: Self = Self(0);
    /// Set in the tag of a user half.
    pub const USER_BIT: u16 = 1 << 11;

    /// The tag of the user half that belongs to this kernel half.
    #[must_use]
    pub const fn user_half(self) -> Self {
        Self(self.0 | Self::USER_BIT)
    }
}

/// A value for CR3: root, tag and the no-flush bit (63). The protocol leaves the last two out on a CPU without
/// [`Features::pcid`]; the machine may write what it is given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cr3(pub u64);

impl Cr3 {
    const KEEP: u64 = 1 << 63;

    /// Loads `root` under `pcid` and drops what the tag held.
    #[must_use]
    pub const fn flushing(root: PhysAddr, pcid: Pcid) -> Self {
        Self(root.0 | pcid.0 as u64)
    }

    /// Loads `root` under `pcid` and keeps what the tag holds: only for a slot known to be current (INV-12).
    #[must_use]
    pub const fn keeping(root: PhysAddr, pcid: Pcid) -> Self {
        Self(root.0 | pcid.0 as u64 | Self::KEEP)
    }

    /// True if the load keeps the entries of its tag.
    #[must_use]
    pub const fn keeps(self) -> bool {
        self.0 & Self::KEEP != 0
    }

    /// The tag.
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
    /// Type 0: one page of one tag; globals stay.
    Address(Pcid, VirtAddr),
    /// Type 1: all of one tag; globals stay.
    Single(Pcid),
    /// Type 2: all tags and globals.
    AllAndGlobals,
    /// Type 3: all tags; globals stay.
    All,
}

impl Invpcid {
    /// What the instruction takes: the type in its register, the tag and the address in its descriptor. An operand that
    /// the type does not look at is 0.
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

/// What this CPU can do. Per CPU, because cores of one machine differ (C-84).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// CR4.PCIDE is set on this CPU.
    pub pcid: bool,
    /// INVPCID exists.
    pub invpcid: bool,
}

/// Witness that interrupts are off on this CPU: the precondition of whatever changes its slots (C-53).
///
/// Cannot leave the CPU: it is neither `Send` nor `Sync`.
#[derive(Debug)]
pub struct IrqsOff(core::marker::PhantomData<*const ()>);

impl IrqsOff {
    /// The caller states that interrupts are off and stay off while the value lives: in an interrupt handler, or
    /// between `cli` and `sti`. A wrong statement breaks the protocol's invariants, not memory safety.
    #[must_use]
    pub const fn assume() -> Self {
        Self(core::marker::PhantomData)
    }
}

/// What happened in the protocol: for counters, for traces, and for what a simulated machine charges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A switch found a current slot and kept its entries.
    SwitchKept,
    /// A switch had to flush the slot that it loaded.
    SwitchFlushed,
    /// A flush began on its initiator: pages (`u32::MAX` for everything).
    FlushBegin(u32),
    /// The local half of a flush ended.
    FlushLocalDone,
    /// A flush has looked at the other CPUs that may hold what goes: `asked` of them are asked, the others are left
    /// alone.
    Chosen {
        /// CPUs that are asked.
        asked: u32,
        /// CPUs that are not, as what they hold cannot be used any more, or not before they look themselves.
        skipped: u32,
    },
    /// A flush was issued, and returns before all CPUs have answered.
    FlushIssued,
    /// All CPUs have answered.
    FlushEnd,
    /// A request is being carried out for another CPU.
    AnswerBegin(CpuId),
    /// It has been carried out.
    AnswerEnd(CpuId),
    /// A waiting CPU has found another CPU that has not answered yet.
    Waiting(CpuId),
    /// An interrupt found nothing left to do: another one did it.
    AlreadyCurrent,
    /// An interrupt was for a space that is not loaded here.
    WrongSpace,
    /// A request has made this CPU leave the space that it held lazily, in the handler or in a wait: the kernel's own
    /// tables are loaded now. A kernel that keeps a note of what is loaded corrects it here.
    LazyLeft(SpaceToken),
    /// The last CPU that held a dying space lazily has left it: the kernel may free its tables, but later, as this
    /// comes in a switch, in the interrupt handler or in another flush's wait.
    LastLazyReference(SpaceToken),
}

/// What to do about a CPU that has not answered in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Late {
    /// Wait on. For a kernel in which no CPU is stopped by force, and no handler that comes between a hint and its
    /// interrupt waits for a lock that others hold while they [poll](crate::Pending::poll) or flush. Those find the
    /// hint, count on that interrupt, and send none, so that each would wait for the other.
    Wait,
    /// Interrupt it again, as is the default: an interrupt may have been lost. A request that arrives twice is carried
    /// out once.
    AskAgain,
}

/// One CPU of a machine. `tlbkit-x86` implements it with instructions, `tlbkit-sim` with a model.
///
/// The protocol calls these functions in the midst of its own work. So none of them calls the protocol, sleeps, or
/// takes a lock that somebody holds while calling the protocol; [`unanswered`](Self::unanswered) may declare CPUs
/// stopped. Nor does any of them take a lock whose loop calls [`Cpu::answer`](crate::Cpu::answer): it would answer
/// within an answer or a switch.
pub trait Hardware {
    /// What keeps the set of CPUs of a space: an array inside it, a box, a slice that is borrowed.
    type Set: AsRef<[AtomicU64]>;

    /// How the kernel names its spaces: [`SpaceToken`] itself, or a type of its own that is made of one.
    type Token: From<SpaceToken>;

    /// What this CPU can do.
    fn features(&self) -> Features;

    /// MOV to CR3.
    fn write_cr3(&self, cr3: Cr3);

    /// INVLPG: the page in the current tag, globals for it, and all paging-structure entries of the current tag. On
    /// AMD's processors so only while EFER.TCE is 0, as after a reset: with TCE the paths to other addresses stay.
    fn invlpg(&self, va: VirtAddr);

    /// INVPCID. Called only if [`Features::invpcid`].
    fn invpcid(&self, what: Invpcid);

    /// Clears and sets CR4.PGE: drops everything, all tags and globals. Called with interrupts off.
    fn toggle_pge(&self);

    /// Interrupts `to`, which then calls [`Cpu::answer`](crate::Cpu::answer). May be late, may merge; one that is
    /// lost is sent again, unless [`late`](Self::late) says otherwise.
    fn send_ipi(&self, to: CpuId);

    /// Interrupts every online CPU but this one.
    fn send_ipi_to_others(&self);

    /// PAUSE in a loop that waits for another CPU: with interrupts on in a flush and in the wait for one that was
    /// issued, with interrupts off in [`Cpu::destroy_later`](crate::Cpu::destroy_later) and
    /// [`Cpu::bring_up`](crate::Cpu::bring_up), and as the caller has them in [`Pending::poll`](crate::Pending::poll).
    fn relax(&self);

    /// How often a wait looks again whether it is over, with a [`relax`](Self::relax) before each look, until it
    /// answers other CPUs by itself at each turn. Their interrupts are taken meanwhile, so few of these looks delay
    /// nobody, and a wait that is over soon costs a fraction of the instructions. The default is none.
    #[inline(always)]
    fn glances(&self) -> u32 {
        0
    }

    /// Turns of such a loop after which [`late`](Self::late) is asked, again and again. The default is about a
    /// millisecond of PAUSE.
    #[inline]
    fn patience_turns(&self) -> u32 {
        1 << 14
    }

    /// `cpu` has not answered in time: a kernel may print its name, and may have it interrupted again, as the default
    /// does. Called for each late CPU in turn. A kernel that uses [`declare_stopped`](crate::Tlb::declare_stopped) must
    /// not return [`Late::Wait`].
    fn late(&self, cpu: CpuId) -> Late {
        let _ = cpu;
        Late::AskAgain
    }

    /// How often [`late`](Self::late) is asked in one wait before the CPUs that are missing are given up, and
    /// [`unanswered`](Self::unanswered) is told. The default makes ten to thirty seconds of the default turns.
    #[inline]
    fn patience_rounds(&self) -> u32 {
        1 << 15
    }

    /// These CPUs have not answered, however often they were asked. A kernel stops the machine, or says that they have
    /// [stopped](crate::Tlb::declare_stopped); one of which that was said is not named again. If it returns, the wait
    /// goes on and is counted anew: what was to be flushed may not be freed before they have answered.
    ///
    /// # Panics
    /// The default does, and names them.
    #[cold]
    fn unanswered(&self, missing: Missing<'_>) {
        panic!("a flush is not answered by {missing}");
    }

    /// The CPU that executes this code, where the kernel can tell: by its own per-CPU data, or RDTSCP or RDPID. It is
    /// compared with the number by which the protocol was called, when a call begins, where it flushes this CPU's TLB,
    /// before a waiting CPU answers others, and when a call that waited, issued a flush or asked for one ends. So a
    /// task that migrated in between, or a number that was wrong from the beginning, is noticed. Interrupts may be on
    /// or off, and an NMI may ask. The default does not tell, and costs nothing.
    #[inline(always)]
    fn this_cpu(&self) -> Option<CpuId> {
        None
    }

    /// The protocol was called as CPU `named` and runs `here`: see [`this_cpu`](Self::this_cpu). If it returns, the
    /// call goes on as if nobody had asked, but carries out nothing for other CPUs.
    ///
    /// # Panics
    /// The default does, and names both.
    #[cold]
    fn wrong_cpu(&self, named: CpuId, here: CpuId) {
        panic!("called as CPU {}, on CPU {}: the task has migrated, or the number is wrong", named.0, here.0);
    }

    /// True if interrupts are on: a wait with interrupts off is an error (INV-7).
    fn irqs_enabled(&self) -> bool;

    /// Runs `f` with interrupts off and restores what was.
    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R;

    /// Calls `f` with the space that the kernel named by `token`.
    ///
    /// The space is one that is loaded on this CPU; or that another CPU waits for this one to flush; or that the switch
    /// which this CPU is in leaves, be it ended and held lazily or alive; or that
    /// [`Cpu::with_space`](crate::Cpu::with_space) goes back to. CR3 may name other tables already. So a kernel finds a
    /// space by its token until its end is over: until [`Destroyed::Now`](crate::Destroyed) or
    /// [`Event::LastLazyReference`]. Until then no other space has the same token.
    ///
    /// It is called with interrupts off, in the handler too, and now and then inside another such call, for another
    /// space. A kernel may lock its table to find the space, if whoever holds the lock has interrupts off and waits for
    /// no other CPU: [`Cpu::destroy_later`](crate::Cpu::destroy_later) does wait for one, so it is not called under
    /// that lock. The kernel lets the lock go before it calls `f`.
    fn with_space_of<R>(&self, token: Self::Token, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R;

    /// Something happened; for counters and traces of the machine. The default does nothing and costs nothing.
    #[inline(always)]
    fn event(&self, event: Event) {
        let _ = event;
    }

    /// A monotonic clock, in cycles; asked only when statistics are on.
    fn now_cycles(&self) -> u64;
}

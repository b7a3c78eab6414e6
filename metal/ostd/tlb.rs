//! OSTD's TLB code made of tlbkit: this file stands in the place of `src/mm/tlb.rs`, and `edit.sh` does the rest.
//!
//! A space is an [`AddressSpace`] inside its `VmSpace`. Each CPU keeps an `Arc` of the one that it has loaded, lazily
//! or not, so a space ends when no CPU has it loaded any more: `Drop` is enough, and the library asks for no other
//! space than that one. A frame stays with its flusher from the clearing of its entry until every CPU has
//! answered.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{cell::Cell, fmt, mem, ops::Range, sync::atomic::AtomicU64};

use smallvec::SmallVec;
use spin::Once;
use tlbkit::{
    AddressSpace, Cpu, CpuId, CpuSetUpkeep, CpuState, Destroyed, IrqsOff, Pending, PhysAddr, Policy, Reason, Scope,
    SpaceToken, Stride, Tlb, TlbGather, Translations, VirtAddr,
};
use tlbkit_x86::{Apic, Identity, Kernel, Overrides, Sent, X86Cpu, enable_pcids};

use super::{
    PAGE_SIZE, Paddr, Vaddr, VmSpace,
    frame::{Frame, meta::AnyFrameMeta},
    kspace::KERNEL_PAGE_TABLE,
};
use crate::{
    arch::mm::{tlb_flush_addr_range, tlb_flush_all_including_global},
    cpu::{AtomicCpuSet, PinCurrentCpu, num_cpus},
    cpu_local, cpu_local_cell, irq,
    smp::IPI_SENDER,
    sync::RcuDrop,
    task::disable_preempt,
};

/// A bit for each CPU: in the space itself on machines of up to 64.
type Set = SmallVec<[AtomicU64; 1]>;
type Here = Cpu<'static, 'static, X86Cpu<'static, Os>>;

static MACHINE: Once<Tlb<'static>> = Once::new();

cpu_local! {
    static HERE: Once<Here> = Once::new();
    /// Keeps what this CPU has loaded. It is taken out and put back with interrupts off.
    static LOADED: Cell<Option<Arc<VmSpace>>> = Cell::new(None);
}

cpu_local_cell! {
    /// The address of what this CPU has loaded, at which most calls of `activate` end.
    static LOADED_AT: *const VmSpace = core::ptr::null();
}

const BROUGHT_UP: &str = "spaces are made and loaded on CPUs that were brought up";

/// The CPU that executes this, where the caller keeps it; none before it was brought up.
fn try_here() -> Option<&'static Here> {
    HERE.get_on_cpu(crate::cpu::CpuId::current_racy()).get()
}

fn here() -> &'static Here {
    try_here().expect(BROUGHT_UP)
}

fn words(count: usize) -> impl Iterator<Item = AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0))
}

/// Makes the machine, and brings up the CPU that boots it.
pub(crate) fn init() {
    let root = KERNEL_PAGE_TABLE.get().expect("the kernel has its page table").root_paddr();
    let states: Vec<CpuState> = (0..num_cpus()).map(|_| CpuState::new()).collect();
    let matrix: Vec<AtomicU64> = words(Tlb::matrix_words(num_cpus())).collect();
    // A CPU that has left a space is not interrupted to be told so, and no space is asked for that is not loaded.
    let policy = Policy { cpu_set: CpuSetUpkeep::Trimmed { every: 0 }, ..Policy::DEFAULT };
    MACHINE.call_once(|| Tlb::new(states.leak(), matrix.leak(), PhysAddr(root as u64), policy));
    bring_up();
}

/// Brings this CPU up: it runs on the kernel's page table, and can be interrupted.
pub(crate) fn bring_up() {
    let irqs = irq::disable_local();
    let machine = MACHINE.get().expect("the machine is made before a CPU is brought up");
    // SAFETY: ring 0, interrupts off, on the kernel's page table; the features are those of this CPU.
    let features =
        unsafe { enable_pcids(Identity::of_this_cpu().with_microcode_read().features(Overrides::default())) };
    // SAFETY: ring 0 of this CPU, which has the features; every page table maps the kernel; `Os` sends all interrupts.
    let hardware = Box::leak(Box::new(unsafe { X86Cpu::new(&Os, features, Apic::Registers, 0) }));
    let id = CpuId(irqs.current_cpu().into());
    HERE.get_on_cpu(irqs.current_cpu()).call_once(|| machine.cpu(id, hardware)).bring_up(&IrqsOff::assume());
}

/// The handler of every interrupt between CPUs begins with this.
pub(crate) fn answer() {
    if let Some(cpu) = try_here() {
        cpu.answer(&IrqsOff::assume());
    }
}

/// Halts, interrupts off before and on after. Flushes of the loaded space leave this CPU alone meanwhile.
pub(crate) fn halt_lazily(halt: fn()) {
    here().enter_lazy(&IrqsOff::assume());
    halt();
    let irqs = irq::disable_local();
    let loaded = LOADED.get_with(&irqs);
    let space = loaded.take();
    loaded.set(space.clone());
    if let Some(space) = space {
        here().switch_to(&space.tlb.0, &IrqsOff::assume());
    }
}

/// Loads `space`. What was loaded may end here.
#[inline]
pub(super) fn activate(space: &Arc<VmSpace>) {
    // A task that moves to another CPU after this look, or this call, is switched to there, and so loads it again.
    if LOADED_AT.load() == Arc::as_ptr(space) {
        return;
    }
    let irqs = irq::disable_local();
    HERE.get_with(&irqs).get().expect(BROUGHT_UP).switch_to(&space.tlb.0, &IrqsOff::assume());
    LOADED_AT.store(Arc::as_ptr(space));
    let left = LOADED.get_with(&irqs).replace(Some(Arc::clone(space)));
    drop(irqs);
    drop(left);
}

#[cfg(ktest)]
pub(super) fn activated() -> *const VmSpace {
    LOADED_AT.load()
}

/// The part of a `VmSpace` that this file is about.
pub(super) struct Space(AddressSpace<Set>);

impl Space {
    pub(super) fn new(root: Paddr) -> Self {
        let id = MACHINE.get().expect("spaces are made after `init`").fresh_id();
        let set = words(AddressSpace::set_words(num_cpus())).collect();
        Self(AddressSpace::new(id, SpaceToken(root as u64), PhysAddr(root as u64), set))
    }

    /// True if the running task may use it now.
    pub(super) fn is_running(&self) -> bool {
        let _pin = disable_preempt();
        here().is_running(&self.0)
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}", self.0.id(), self.0.root())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // No CPU has it loaded, since that one would keep it: there is nothing to do, and a debug build looks.
        if cfg!(debug_assertions) {
            let _pin = disable_preempt();
            assert_eq!(here().destroy_later(&self.0), Destroyed::Now);
        }
    }
}

/// Frames and page tables that nothing maps any more: a gather holds them all at once.
#[derive(Default)]
struct Frames(Vec<Frame<dyn AnyFrameMeta>>);

impl Extend<Self> for Frames {
    fn extend<I: IntoIterator<Item = Self>>(&mut self, held: I) {
        for Self(mut frames) in held {
            frames.append(&mut self.0);
            self.0 = frames;
        }
    }
}

/// Empty, and no page begins where it ends.
const NOTHING: Range<Vaddr> = Vaddr::MAX..1;

/// Collects what was taken away, and flushes it everywhere.
pub struct TlbFlusher<'a, G: PinCurrentCpu> {
    whose: Translations<'a, Set>,
    /// What was recorded: pages, and frames, with page tables among them or not.
    named: Range<Vaddr>,
    has_tables: bool,
    frames: Frames,
    /// Flushes that were begun.
    pending: SmallVec<[Pending<'a, Set, Frames>; 1]>,
    /// None while the kernel boots, on one CPU.
    cpu: Option<&'static Here>,
    _pin_current: G,
}

impl<'a, G: PinCurrentCpu> TlbFlusher<'a, G> {
    /// For kernel addresses, on all CPUs, whichever are named.
    pub fn new(_target_cpus: &'a AtomicCpuSet, pin_current_guard: G) -> Self {
        Self::of(Translations::OfKernel, pin_current_guard)
    }

    pub(super) fn of_space(space: &'a Space, pin_current_guard: G) -> Self {
        Self::of(Translations::OfSpace(&space.0), pin_current_guard)
    }

    fn of(whose: Translations<'a, Set>, _pin_current: G) -> Self {
        let (frames, pending, cpu) = (Frames::default(), SmallVec::new(), try_here());
        Self { whose, named: NOTHING, has_tables: false, frames, pending, cpu, _pin_current }
    }

    /// Records what is to be flushed by the next [`Self::dispatch_tlb_flush`].
    pub fn issue_tlb_flush(&mut self, op: TlbFlushOp) {
        let end = op.start + op.pages * PAGE_SIZE;
        if op.start == self.named.end {
            self.named.end = end; // pages come in order, mostly
        } else {
            self.named = self.named.start.min(op.start)..self.named.end.max(end);
        }
    }

    /// Records `op` as [`issue_tlb_flush`](Self::issue_tlb_flush) does, with a frame that is dropped after the flush
    /// and the RCU grace period.
    pub fn issue_tlb_flush_with(&mut self, op: TlbFlushOp, drop_after_flush: RcuDrop<Frame<dyn AnyFrameMeta>>) {
        self.has_tables |= op.pages > 1; // one frame for many pages is that of a page table
        self.issue_tlb_flush(op);
        // SAFETY: it comes out of its flush in `sync_tlb_flush` alone, which drops it after the grace period.
        let (frame, panic_guard) = unsafe { RcuDrop::into_inner(drop_after_flush) };
        self.frames.0.push(frame);
        panic_guard.forget();
    }

    /// Asks the other CPUs to flush what was recorded, and flushes here. It waits for nobody.
    pub fn dispatch_tlb_flush(&mut self) {
        let Some(cpu) = self.cpu else { return TlbFlushOp::for_all().perform_on_current() };
        let named = mem::replace(&mut self.named, NOTHING);
        let mut gather = TlbGather::new(self.whose, Frames::default());
        if !self.frames.0.is_empty() {
            gather.hold(mem::take(&mut self.frames));
        }
        if mem::take(&mut self.has_tables) {
            gather.tables_freed();
        }
        if !named.is_empty() {
            let (va, pages) = (VirtAddr(named.start as u64), named.len() / PAGE_SIZE);
            let scope = if matches!(self.whose, Translations::OfKernel) { Scope::Global } else { Scope::NonGlobal };
            gather.range(cpu, va, pages as u64, Stride::Page4K, scope, Reason::RemovePte);
        }
        self.pending.push(gather.issue(cpu));
    }

    /// Waits until no CPU can use what was dispatched.
    ///
    /// # Panics
    ///
    /// If another CPU must be waited for and IRQs are disabled.
    pub fn sync_tlb_flush(&mut self) {
        let Some(cpu) = self.cpu else { return };
        for pending in self.pending.drain(..) {
            let frames = pending.wait(cpu).into_frames().0;
            if !frames.is_empty() {
                let _ = RcuDrop::new(frames);
            }
        }
    }
}

impl<G: PinCurrentCpu> Drop for TlbFlusher<'_, G> {
    fn drop(&mut self) {
        for pending in &mut self.pending {
            pending.poll(here());
        }
        self.sync_tlb_flush();
    }
}

/// What to flush: all entries but global ones, or those of some pages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlbFlushOp {
    start: Vaddr,
    pages: usize,
}

impl TlbFlushOp {
    const ALL: usize = usize::MAX / PAGE_SIZE;

    /// Flushes on this CPU alone.
    pub fn perform_on_current(&self) {
        match self.pages {
            Self::ALL => tlb_flush_all_including_global(),
            pages => tlb_flush_addr_range(&(self.start..self.start + pages * PAGE_SIZE)),
        }
    }

    /// All entries but global ones.
    pub const fn for_all() -> Self {
        Self { start: 0, pages: Self::ALL }
    }

    /// The page of `addr`.
    pub const fn for_single(addr: Vaddr) -> Self {
        Self { start: addr, pages: 1 }
    }

    /// The pages of `range`.
    ///
    /// # Panics
    ///
    /// If the range is not page-aligned or empty.
    pub const fn for_range(range: Range<Vaddr>) -> Self {
        assert!(
            range.start.is_multiple_of(PAGE_SIZE) && range.end.is_multiple_of(PAGE_SIZE) && range.start < range.end
        );
        Self { start: range.start, pages: (range.end - range.start) / PAGE_SIZE }
    }
}

/// What `tlbkit-x86` asks of a kernel.
struct Os;

impl Kernel for Os {
    type Set = Set;
    type Token = SpaceToken;

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Set>) -> R) -> R {
        let irqs = irq::disable_local();
        let loaded = LOADED.get_with(&irqs);
        let kept = loaded.take();
        let space = kept.as_ref().map(|space| &space.tlb.0).filter(|space| space.token() == token);
        let result = f(space.expect("the library asks for the loaded space alone"));
        loaded.set(kept);
        result
    }

    fn apic_id(&self, _: CpuId) -> u32 {
        unreachable!("OSTD's own driver sends interrupts")
    }

    fn send_ipi(&self, to: CpuId) -> Sent {
        let sender = IPI_SENDER.get().expect("CPUs are brought up after the sender");
        crate::arch::irq::send_ipi(sender.hw_cpu_ids[to.0 as usize], &disable_preempt());
        Sent::ByKernel
    }

    fn send_ipi_to_others(&self) -> Sent {
        let others = (0..num_cpus() as u32).map(CpuId).filter(|&cpu| cpu != here().id());
        others.for_each(|cpu| _ = self.send_ipi(cpu));
        Sent::ByKernel
    }
}

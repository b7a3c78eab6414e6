//! A CPU that is a thread of its own: real atomics, real spinning, interrupts taken where it looks for them.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tlbkit::{AddressSpace, Cpu, CpuId, CpuState, Cr3, Event, Features, Hardware, Invpcid, IrqsOff, Pcid, Policy};
use tlbkit::{Reason, Scope, sync::AtomicU64};
use tlbkit::{SpaceToken, Stride, Tlb, TlbGather, Translations, VirtAddr};
use tlbkit_arch::store::Store;
use tlbkit_arch::{CurrentTag, Instruction, Translation};

use super::memory::{KERNEL_ROOT, root_of};
use super::{MODERN, USER, leak_words};

/// Pages of each space.
pub(crate) const PAGES: usize = 8;

/// What the threads share.
pub(crate) struct Machine {
    pub(crate) tlb: Tlb<'static>,
    pub(crate) spaces: Vec<AddressSpace>,
    /// The page tables: each entry counts how often it was changed.
    entries: Vec<[AtomicUsize; PAGES]>,
    /// The oldest version of each entry that may still be used.
    floors: Vec<[AtomicUsize; PAGES]>,
    pub(crate) interrupts: Vec<AtomicBool>,
    finished: AtomicUsize,
    /// A thread has panicked: nobody waits for it.
    has_failed: AtomicBool,
}

impl Machine {
    pub(crate) fn new(policy: Policy, cpus: usize, spaces: usize) -> &'static Self {
        let states: &'static [CpuState] = Vec::leak((0..cpus).map(|_| CpuState::new()).collect());
        let tlb = Tlb::new(states, leak_words(Tlb::matrix_words(cpus)), KERNEL_ROOT, policy);
        let zeros = || (0..spaces).map(|_| [const { AtomicUsize::new(0) }; PAGES]).collect();
        let set = || leak_words(AddressSpace::set_words(cpus));
        let make = |n| AddressSpace::new(tlb.fresh_id(), SpaceToken(n as u64), root_of(n), set());
        let spaces_made = (0..spaces).map(make).collect();
        Box::leak(Box::new(Self {
            spaces: spaces_made,
            tlb,
            entries: zeros(),
            floors: zeros(),
            interrupts: (0..cpus).map(|_| AtomicBool::new(false)).collect(),
            finished: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
        }))
    }
}

/// What a test does when a CPU has written CR3.
type AfterCr3 = Box<dyn Fn(Cr3)>;

/// One thread's CPU.
pub(crate) struct Thread {
    pub(crate) id: usize,
    pub(crate) machine: &'static Machine,
    tlb: RefCell<Store<usize>>,
    cr3: Cell<Cr3>,
    irqs: Cell<bool>,
    /// Called with interrupts off after each CR3 write.
    pub(crate) after_cr3: RefCell<Option<AfterCr3>>,
}

impl Thread {
    pub(crate) fn new(machine: &'static Machine, id: usize) -> Self {
        let cr3 = Cell::new(Cr3::flushing(KERNEL_ROOT, Pcid::KERNEL));
        let thread =
            Self { id, machine, tlb: RefCell::default(), cr3, irqs: Cell::new(true), after_cr3: RefCell::default() };
        thread.with_irqs_off(|irqs| thread.cpu().bring_up(irqs));
        thread
    }

    pub(crate) fn cpu(&self) -> Cpu<'_, 'static, Self> {
        self.machine.tlb.cpu(CpuId(self.id as u32), self)
    }

    fn execute(&self, instruction: Instruction) {
        self.tlb.borrow_mut().execute(instruction, CurrentTag::Loaded(self.cr3.get().pcid()));
    }

    /// Takes the interrupt that has arrived, if one has.
    pub(crate) fn poll(&self) {
        // Acquire: what the sender wrote before it interrupted.
        if self.machine.interrupts[self.id].swap(false, Ordering::Acquire) {
            self.with_irqs_off(|irqs| self.cpu().answer(irqs));
        }
    }

    pub(crate) fn switch(&self, space: usize) {
        self.with_irqs_off(|irqs| self.cpu().switch_to(&self.machine.spaces[space], irqs));
    }

    pub(crate) fn lazy(&self) {
        self.with_irqs_off(|irqs| self.cpu().enter_lazy(irqs));
    }

    /// The program, which runs `space`, uses a page: never an older version than was the floor before.
    pub(crate) fn touch(&self, space: usize, page: usize) {
        // SeqCst: the floor first, then the use.
        let floor = self.machine.floors[space][page].load(Ordering::SeqCst);
        let (pcid, va) = (self.cr3.get().pcid(), VirtAddr(USER + page as u64 * 4096));
        let mut tlb = self.tlb.borrow_mut();
        let (_, version) = tlb.hit(pcid, va).copied().unwrap_or_else(|| {
            // Acquire: a walk sees what whoever advanced the generation had written.
            let version = self.machine.entries[space][page].load(Ordering::Acquire);
            let held = Translation { pcid, start: va, stride: Stride::Page4K, is_global: false };
            tlb.translations.push((held, version));
            (held, version)
        });
        assert!(version >= floor, "INV-6: cpu{} used version {version} after {floor}", self.id);
    }

    /// Changes pages of `space`, flushes, and from then on demands what is new.
    pub(crate) fn revoke(&self, space: usize, pages: &[usize]) {
        let mut gather = TlbGather::new(Translations::OfSpace(&self.machine.spaces[space]), Vec::new());
        for &page in pages {
            // SeqCst: one order of all changes.
            let version = self.machine.entries[space][page].fetch_add(1, Ordering::SeqCst) + 1;
            let va = VirtAddr(USER + page as u64 * 4096);
            gather.unmap(&self.cpu(), va, Stride::Page4K, Scope::Local, Reason::Migrate, (page, version));
        }
        for (page, version) in gather.flush(&self.cpu()).into_frames() {
            // SeqCst: partner is the load in `touch`.
            self.machine.floors[space][page].fetch_max(version, Ordering::SeqCst);
        }
    }

    /// Goes on taking interrupts until all CPUs have finished.
    pub(crate) fn finish(&self) {
        // SeqCst: a barrier of all threads.
        self.machine.finished.fetch_add(1, Ordering::SeqCst);
        // SeqCst: as above.
        while self.machine.finished.load(Ordering::SeqCst) < self.machine.interrupts.len() {
            self.poll();
            self.relax();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Relaxed: it only ends the test.
        self.machine.has_failed.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}

impl Hardware for Thread {
    type Set = &'static [AtomicU64];
    type Token = SpaceToken;

    fn features(&self) -> Features {
        MODERN
    }

    fn write_cr3(&self, cr3: Cr3) {
        self.execute(Instruction::WriteCr3(cr3));
        self.cr3.set(cr3);
        if let Some(hook) = self.after_cr3.borrow().as_ref() {
            hook(cr3);
        }
    }

    fn invlpg(&self, va: VirtAddr) {
        self.execute(Instruction::Invlpg(va));
    }

    fn invpcid(&self, what: Invpcid) {
        self.execute(Instruction::Invpcid(what));
    }

    fn toggle_pge(&self) {
        self.execute(Instruction::TogglePge);
    }

    fn send_ipi(&self, to: CpuId) {
        // Release: partner is the Acquire in `poll`.
        self.machine.interrupts[to.0 as usize].store(true, Ordering::Release);
    }

    fn send_ipi_to_others(&self) {
        (0..self.machine.interrupts.len()).filter(|&n| n != self.id).for_each(|n| self.send_ipi(CpuId(n as u32)));
    }

    fn relax(&self) {
        // Relaxed: it only ends the test.
        assert!(!self.machine.has_failed.load(Ordering::Relaxed), "another CPU has failed");
        std::thread::yield_now();
    }

    fn irqs_enabled(&self) -> bool {
        self.irqs.get()
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let before = self.irqs.replace(false);
        let result = f(&IrqsOff::assume());
        self.irqs.set(before);
        result
    }

    fn with_space_of<R>(&self, token: SpaceToken, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(&self.machine.spaces[token.0 as usize])
    }

    fn event(&self, _: Event) {}

    fn now_cycles(&self) -> u64 {
        0
    }
}

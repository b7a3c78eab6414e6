//! CPUs that are threads: real atomics, real spinning, interrupts taken where the thread looks for them.

use std::sync::atomic::{AtomicUsize, Ordering};

use tlbkit::{Cpu, CpuId, Hardware, Policy, Reason, Scope, Stride, TlbGather, Translations, VirtAddr};
use tlbkit_arch::Translation;
use tlbkit_testkit::{MODERN, TestCpu, Threads};

use super::USER;
use super::memory::{KERNEL_ROOT, root_of};

/// Pages of each space.
pub(crate) const PAGES: usize = 8;

/// What the threads share.
pub(crate) struct Machine {
    pub(crate) threads: Threads,
    /// The page tables: each entry counts how often it was changed.
    entries: Vec<[AtomicUsize; PAGES]>,
    /// The oldest version of each entry that may still be used.
    floors: Vec<[AtomicUsize; PAGES]>,
    finished: AtomicUsize,
}

impl Machine {
    pub(crate) fn new(policy: Policy, cpus: usize, spaces: usize) -> &'static Self {
        let zeros = || (0..spaces).map(|_| [const { AtomicUsize::new(0) }; PAGES]).collect();
        let roots: Vec<_> = (0..spaces).map(root_of).collect();
        Box::leak(Box::new(Self {
            threads: Threads::new(policy, cpus, KERNEL_ROOT, &roots),
            entries: zeros(),
            floors: zeros(),
            finished: AtomicUsize::new(0),
        }))
    }
}

/// One thread's CPU.
pub(crate) struct Thread {
    pub(crate) hardware: TestCpu<&'static Threads>,
    machine: &'static Machine,
}

impl Thread {
    pub(crate) fn new(machine: &'static Machine, id: usize) -> Self {
        let thread = Self { hardware: TestCpu::new(&machine.threads, CpuId(id as u32), MODERN), machine };
        thread.hardware.with_irqs_off(|irqs| thread.cpu().bring_up(irqs));
        thread
    }

    pub(crate) fn cpu(&self) -> Cpu<'_, 'static, TestCpu<&'static Threads>> {
        self.machine.threads.tlb.cpu(self.hardware.id, &self.hardware)
    }

    pub(crate) fn switch(&self, space: usize) {
        self.hardware.with_irqs_off(|irqs| self.cpu().switch_to(&self.machine.threads.spaces[space], irqs));
    }

    pub(crate) fn lazy(&self) {
        self.hardware.with_irqs_off(|irqs| self.cpu().enter_lazy(irqs));
    }

    /// The program, which runs `space`, uses a page: never an older version than was the floor before.
    pub(crate) fn touch(&self, space: usize, page: usize) {
        // SeqCst: the floor first, then the use.
        let floor = self.machine.floors[space][page].load(Ordering::SeqCst);
        let (pcid, va) = (self.hardware.cr3.get().pcid(), VirtAddr(USER + page as u64 * 4096));
        let mut tlb = self.hardware.tlb.borrow_mut();
        let (_, version) = tlb.hit(pcid, va).copied().unwrap_or_else(|| {
            // Acquire: a walk sees what whoever advanced the generation had written.
            let version = self.machine.entries[space][page].load(Ordering::Acquire);
            let held = Translation { pcid, start: va, stride: Stride::Page4K, is_global: false };
            tlb.translations.push((held, version));
            (held, version)
        });
        assert!(version >= floor, "INV-6: cpu{} used version {version} after {floor}", self.hardware.id.0);
    }

    /// Changes pages of `space`, flushes, and from then on demands what is new.
    pub(crate) fn revoke(&self, space: usize, pages: &[usize]) {
        let mut gather = TlbGather::new(Translations::OfSpace(&self.machine.threads.spaces[space]), Vec::new());
        for &page in pages {
            // SeqCst: one order of all changes.
            let version = self.machine.entries[space][page].fetch_add(1, Ordering::SeqCst) + 1;
            let va = VirtAddr(USER + page as u64 * 4096);
            gather.unmap(&self.cpu(), va, Stride::Page4K, Scope::NonGlobal, Reason::Migrate, (page, version));
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
        while self.machine.finished.load(Ordering::SeqCst) < self.machine.threads.apics.cpus().count() {
            self.hardware.take_interrupt();
            self.hardware.relax();
        }
    }
}

//! The soft machine: a CPU is a thread with a TLB of its own, which takes its interrupts between two accesses.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use tlbkit::sync::Ordering;
use tlbkit::{AddressSpace, CpuId, Cr3, Features, Hardware, Invpcid, IrqsOff, Pcid, VirtAddr};

use super::kernel::{CPUS, Kernel, Pid, Process, SetOfCpus, va_of};

/// One CPU, and what its scheduler keeps.
pub(crate) struct Door<'m> {
    kernel: &'m Kernel,
    me: CpuId,
    cr3: Cell<Cr3>,
    entries: RefCell<HashMap<(Pcid, u64), u64>>,
    running: RefCell<Option<Arc<Process>>>,
    are_irqs_on: Cell<bool>,
}

impl<'m> Door<'m> {
    pub(crate) fn new(kernel: &'m Kernel, me: CpuId) -> Self {
        Self {
            kernel,
            me,
            cr3: Cell::new(Cr3(0)),
            entries: RefCell::default(),
            running: RefCell::default(),
            are_irqs_on: Cell::new(true),
        }
    }

    /// The scheduler runs a task of this process, or none.
    pub(crate) fn run(&self, process: Option<&Arc<Process>>) {
        *self.running.borrow_mut() = process.cloned();
    }

    /// The program reads from a page: by the TLB, or by a walk that fills it, or it finds none and goes on.
    pub(crate) fn touch(&self, page: usize) {
        let process = self.running.borrow().clone().expect("a program that runs");
        let mut entries = self.entries.borrow_mut();
        let frame = *entries.entry((self.cr3.get().pcid(), va_of(page).0)).or_insert_with(|| {
            // Relaxed: a walk. After an answer it comes behind the change by the protocol's own order.
            process.entries[page].load(Ordering::Relaxed)
        });
        if frame == 0 {
            entries.remove(&(self.cr3.get().pcid(), va_of(page).0));
        } else {
            self.kernel.frames.access(frame);
        }
    }

    pub(crate) fn take_interrupts(&self) {
        // Acquire: partner is the Release in `send_ipi`.
        if self.kernel.interrupts[self.me.0 as usize].swap(false, Ordering::Acquire) {
            self.kernel.tlb.cpu(self.me, self).answer(&IrqsOff::assume());
        }
    }

    fn drop_entries(&self, goes: impl Fn(Pcid, u64) -> bool) {
        self.entries.borrow_mut().retain(|&(pcid, va), _| !goes(pcid, va));
    }
}

impl Drop for Door<'_> {
    fn drop(&mut self) {
        // Relaxed: it only ends the test.
        self.kernel.has_failed.fetch_or(thread::panicking(), Ordering::Relaxed);
    }
}

impl Hardware for Door<'_> {
    type Set = SetOfCpus;
    type Token = Pid;

    fn features(&self) -> Features {
        Features { pcid: true, invpcid: true }
    }

    fn write_cr3(&self, cr3: Cr3) {
        self.cr3.set(cr3);
        if !cr3.keeps() {
            self.drop_entries(|pcid, _| pcid == cr3.pcid());
        }
    }

    fn invlpg(&self, va: VirtAddr) {
        self.drop_entries(|pcid, at| pcid == self.cr3.get().pcid() && at == va.0);
    }

    fn invpcid(&self, what: Invpcid) {
        self.drop_entries(|pcid, at| match what {
            Invpcid::Address(tag, va) => pcid == tag && at == va.0,
            Invpcid::Single(tag) => pcid == tag,
            Invpcid::All | Invpcid::AllAndGlobals => true,
        });
    }

    fn toggle_pge(&self) {
        self.drop_entries(|_, _| true);
    }

    fn send_ipi(&self, to: CpuId) {
        // Relaxed: it only counts.
        let lose = self.kernel.to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if lose.is_ok() {
            return;
        }
        // Release: the request comes before it; partner is the Acquire in `take_interrupts`.
        self.kernel.interrupts[to.0 as usize].store(true, Ordering::Release);
    }

    fn send_ipi_to_others(&self) {
        (0..CPUS as u32).filter(|&to| to != self.me.0).for_each(|to| self.send_ipi(CpuId(to)));
    }

    fn relax(&self) {
        // Relaxed: it only ends the test.
        assert!(!self.kernel.has_failed.load(Ordering::Relaxed), "another CPU has failed");
        thread::yield_now();
    }

    fn irqs_enabled(&self) -> bool {
        self.are_irqs_on.get()
    }

    fn with_irqs_off<R>(&self, f: impl FnOnce(&IrqsOff) -> R) -> R {
        let were_on = self.are_irqs_on.replace(false);
        let result = f(&IrqsOff::assume());
        self.are_irqs_on.set(were_on);
        result
    }

    fn with_space_of<R>(&self, pid: Pid, f: impl FnOnce(&AddressSpace<Self::Set>) -> R) -> R {
        f(&self.kernel.process(pid).space)
    }

    fn now_cycles(&self) -> u64 {
        0
    }
}

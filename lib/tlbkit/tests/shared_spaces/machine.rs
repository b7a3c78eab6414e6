//! The soft machine: a CPU is a thread with its own TLB, which takes its interrupts between two accesses.

use std::cell::RefCell;
use std::sync::Arc;

use tlbkit::sync::Ordering;
use tlbkit::{AddressSpace, Stride, Tlb};
use tlbkit_arch::Translation;
use tlbkit_testkit::{Apics, Machine, TestCpu};

use super::kernel::{Kernel, Pid, Process, SetOfCpus, va_of};

/// One CPU, and the process that its scheduler runs.
pub(crate) type SoftCpu<'m> = TestCpu<&'m Kernel>;

impl Machine for &Kernel {
    type Set = SetOfCpus;
    type Token = Pid;
    type Entry = u64;
    type Table = ();
    type Kept = RefCell<Option<Arc<Process>>>;

    fn tlb(&self) -> &Tlb<'_> {
        self.tlb
    }

    fn apics(&self) -> &Apics {
        &self.apics
    }

    fn with_space_of<R>(self, pid: Pid, f: impl FnOnce(&AddressSpace<SetOfCpus>) -> R) -> R {
        f(&self.process(pid).space)
    }
}

impl Kernel {
    /// The program on `cpu` reads from a page: by the TLB, or by a walk that fills it, or it finds none and goes on.
    pub(crate) fn touch(&self, cpu: &SoftCpu<'_>, page: usize) {
        let process = cpu.kept.borrow().clone().expect("a program that runs");
        let (pcid, start) = (cpu.cr3.get().pcid(), va_of(page));
        let held = cpu.tlb.borrow().hit(pcid, start).map(|(_, frame)| *frame);
        let frame = held.unwrap_or_else(|| {
            // Relaxed: a walk. After an answer it comes behind the change by the protocol's own order.
            process.entries[page].load(Ordering::Relaxed)
        });
        if frame == 0 {
            return;
        }
        if held.is_none() {
            let translation = Translation { pcid, start, stride: Stride::Page4K, is_global: false };
            cpu.tlb.borrow_mut().translations.push((translation, frame));
        }
        self.frames.access(frame);
    }
}

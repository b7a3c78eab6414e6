//! Pages of a kernel window that go one by one, while the window stays: the little kernel takes their entries out by
//! itself, under a separate lock, and names what it finds and nothing else.

use std::ops::Range;

use tlbkit::{Hardware, Isolation, PAGE_BYTES, PhysAddr, Reason, Scope, Stride, TlbGather, Translations, VirtAddr};
use tlbkit_arch::{Pte, entry_at};
use tlbkit_pmap::{Frame, Memory};

use crate::machine::issued::IssuedFlush;
use crate::machine::port::Protocol;
use crate::machine::world::World;

type Gather<'k> = TlbGather<'k, &'k [tlbkit::sync::AtomicU64], Vec<Frame>>;

impl<'k> World<'k> {
    /// Takes pages of the newest window out, and flushes; the lock keeps others away until then, as nobody knows of a
    /// gather that was not issued. Of pages that it finds gone it promises the same.
    pub(super) fn take_from_window(&self, cpu: usize, page: u8, count: u8) {
        let Some(range) = self.use_window(page, count) else { return };
        self.machine.borrow_mut().begin("kernel take", None, range.clone());
        self.with_cpu(cpu, |handle| {
            self.lock_windows(&handle);
            let frames = self.gather_window(&handle, range).flush(&handle).into_frames();
            frames.into_iter().for_each(|frame| self.bus().put(frame));
            self.unlock_windows();
        });
        self.machine.borrow_mut().end();
        self.kernel.unuse_windows();
    }

    /// Takes pages of the newest window out and asks for their flush, under the lock and with interrupts off.
    pub(super) fn withdraw_from_window(&self, cpu: usize, page: u8, count: u8) {
        let Some(range) = self.use_window(page, count) else { return };
        // What it takes out itself is all that it promises.
        self.machine.borrow_mut().begin("kernel withdraw", None, 0..0);
        let pending = self.with_cpu(cpu, |handle| {
            self.lock_windows(&handle);
            let pending = handle.hardware().with_irqs_off(|_| self.gather_window(&handle, range).issue(&handle));
            self.unlock_windows();
            pending
        });
        self.leave_outstanding(cpu, IssuedFlush::OfKernel(Box::new(pending)));
        self.kernel.unuse_windows();
    }

    /// The addresses of `count` pages from `page` on in the newest window, which stays until it is said not to be used.
    fn use_window(&self, page: u8, count: u8) -> Option<Range<u64>> {
        let digest = self.kernel.digest();
        self.machine.borrow_mut().learn(digest);
        let window = self.kernel.use_newest_window()?;
        let page_at = |n: u64| window.start + n.min((window.end - window.start) / PAGE_BYTES) * PAGE_BYTES;
        let first = u64::from(page) % 2;
        Some(page_at(first)..page_at(first + u64::from(count.max(1))))
    }

    /// Takes out what is mapped in `range`, and names it.
    fn gather_window(&self, handle: &Protocol<'_, 'k, '_>, range: Range<u64>) -> Gather<'k> {
        let mut gather = TlbGather::new(Translations::OfKernel, Vec::new());
        let policy = self.tlb.policy();
        let scope = if policy.isolation == Isolation::On { Scope::NonGlobal } else { Scope::Global };
        for va in range.step_by(PAGE_BYTES as usize) {
            let old = Pte(self.bus().swap(self.entry_in_window(va), 0));
            if !old.has(Pte::PRESENT) {
                continue;
            }
            let frame = Frame { at: old.frame(), shift: Stride::Page4K.shift() as u8 };
            if policy.history.sends_at_once() {
                // It would wait here, under a lock, so everything is flushed.
                gather.hold(frame);
                gather.flush_everything();
            } else {
                gather.unmap(handle, VirtAddr(va), Stride::Page4K, scope, Reason::KernelRemove, frame);
            }
        }
        gather
    }

    /// The entry that maps `va` of a window, whose tables stay.
    fn entry_in_window(&self, va: u64) -> PhysAddr {
        let below = |table, level| Pte(self.bus().load(entry_at(table, VirtAddr(va), level))).frame();
        entry_at([4, 3, 2].into_iter().fold(self.kernel_map.root(), below), VirtAddr(va), 1)
    }

    fn lock_windows(&self, handle: &Protocol<'_, 'k, '_>) {
        loop {
            self.point();
            let is_held = self.kernel.lock_windows();
            self.machine.borrow_mut().drain();
            self.machine.borrow_mut().learn(u64::from(is_held));
            if !is_held {
                return;
            }
            handle.hardware().relax();
        }
    }

    /// What was done under the lock is seen by the CPU that takes it next.
    fn unlock_windows(&self) {
        self.point();
        self.machine.borrow_mut().drain();
        self.kernel.unlock_windows();
        self.machine.borrow_mut().record_change();
    }
}

//! Pages that are taken out and asked for at once, and waited for later.
//!
//! Entries are taken out, and the flush is issued, under the lock of their page table and with interrupts off. Who
//! finds them gone afterwards, and the flush not over, flushes for itself, as after an [`Eviction`](crate::Eviction)
//! (C-28).

use crate::gather::Held;
use crate::memory::Memory;
use crate::pmap::user_range;
use crate::pte;
use crate::table;
use crate::vm::Vm;
use core::ops::Range;
use tlbkit::{Cpu, Hardware, PAGE_BYTES, Pending, Reason, Scope, Stride, TlbGather, Translations, VirtAddr};
use tlbkit_arch::Pte;

/// Frames that one withdrawal takes.
const MOST: usize = 64;

type Gather<'a, S> = TlbGather<'a, S, Held<MOST>>;

/// Base pages of one space that were taken out, and whose flush was issued. Their content is lost, as by
/// [`Vm::dontneed`]. One that is dropped leaks its frames.
#[must_use = "frames leak unless it is finished"]
pub struct Withdrawal<'a, S> {
    pending: Pending<'a, S, Held<MOST>>,
}

impl<'a, S> Withdrawal<'a, S> {
    /// Takes out what is mapped as base pages in `pages` pages of `vm` from `va` on: at most 64, and none beyond the
    /// 2 MiB of the page table of `va`. Asks the other CPUs to flush, and does not wait for them. A range that is not
    /// in the user half has nothing.
    ///
    /// It promises nothing about pages that it finds gone. Until [`finish`](Self::finish) returns, programs may go on
    /// using what was taken out.
    pub fn take<H: Hardware<Set = S>, M: Memory>(
        cpu: &Cpu<'_, '_, H>,
        mem: &M,
        vm: &'a Vm<'_, S>,
        va: u64,
        pages: u64,
    ) -> Self {
        let mut gather = TlbGather::new(Translations::OfSpace(vm.space()), Held::new());
        let _regions = vm.lock.read(cpu.hardware());
        let Ok(range) = user_range(va, pages) else { return Self { pending: gather.issue(cpu) } };
        let span = va..table::next(va, 2).min(range.end);
        let _table = vm.pmap.lock(cpu.hardware(), va);
        let pending = cpu.hardware().with_irqs_off(|_| {
            take_leaves(cpu, mem, vm, span, &mut gather);
            gather.issue(cpu)
        });
        Self { pending }
    }

    /// True if [`finish`](Self::finish) need not wait; it waits for nobody itself.
    pub fn is_done<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) -> bool {
        self.pending.is_done(cpu)
    }

    /// Waits until no CPU can use what was taken out, and puts its frames back. Interrupts are on.
    pub fn finish<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory) {
        self.pending.wait(cpu).into_frames().put_all(mem);
    }
}

/// Takes out the base pages in `span`, whose lock is held, and names them together: a policy that sends each page at
/// once would wait here, so under such a one everything is flushed.
fn take_leaves<H: Hardware, M: Memory>(
    cpu: &Cpu<'_, '_, H>,
    mem: &M,
    vm: &Vm<'_, H::Set>,
    mut span: Range<u64>,
    gather: &mut Gather<'_, H::Set>,
) {
    let (mut room, mut first, mut end) = (MOST, u64::MAX, 0);
    while let Some((va, slot)) = table::first_leaf(mem, vm.pmap.root(), span.clone()) {
        span.start = va + slot.bytes();
        if slot.level != 1 || room == 0 {
            continue;
        }
        let old = Pte(mem.swap(slot.at, 0));
        (first, end) = (first.min(va), span.start);
        if let Some(frame) = pte::into_frame(old) {
            gather.hold(frame);
            room -= 1;
        }
    }
    if end == 0 {
        return;
    }
    if cpu.tlb().policy().history.sends_at_once() {
        return gather.flush_everything();
    }
    let pages = (end - first) / PAGE_BYTES;
    gather.range(cpu, VirtAddr(first), pages, Stride::Page4K, Scope::Local, Reason::RemovePte);
}

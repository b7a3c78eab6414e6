//! Pages that are unhooked and whose flush is issued at once, but waited for later.
//!
//! The entries are unhooked, and the flush is issued, under the page-table lock and with interrupts off. An operation
//! that finds the entries gone before the flush is complete flushes by itself, as with an
//! [`Eviction`](crate::Eviction) (C-28). An entry that no CPU has accessed is flushed like any other here, as its frame
//! would have to be put with interrupts off.

use crate::gather::HeldFrames;
use crate::memory::Memory;
use crate::pmap::user_range;
use crate::pte;
use crate::table;
use crate::vm::Vm;
use core::ops::Range;
use tlbkit::{Cpu, Hardware, PAGE_BYTES, Pending, Reason, Scope, Stride, TlbGather, Translations, VirtAddr};
use tlbkit_arch::Pte;

/// Frames that one withdrawal can hold.
const MAX_FRAMES: usize = 64;

type Gather<'a, S> = TlbGather<'a, S, HeldFrames<MAX_FRAMES>>;

/// Base pages of one space that were unhooked, and whose flush was issued. Their content is lost, as with
/// [`Vm::dontneed`]. A withdrawal that is dropped leaks its frames.
#[must_use = "unless it is finished, frames leak"]
pub struct Withdrawal<'a, S> {
    pending: Pending<'a, S, HeldFrames<MAX_FRAMES>>,
}

impl<'a, S> Withdrawal<'a, S> {
    /// Unhooks the base pages of `vm` in the `pages` pages from `va` on, at most 64 and none beyond the 2 MiB of the
    /// page table of `va`. Sends flush requests to the other CPUs, and does not wait for them. A range that is not in
    /// the user half counts as empty.
    ///
    /// Nothing is promised about pages that were already gone: their flush may still be pending elsewhere. Until
    /// [`finish`](Self::finish) returns, programs may go on using what was unhooked.
    pub fn take<H: Hardware<Set = S>, M: Memory>(
        cpu: &Cpu<'_, '_, H>,
        mem: &M,
        vm: &'a Vm<'_, S>,
        va: u64,
        pages: u64,
    ) -> Self {
        let mut gather = TlbGather::new(Translations::OfSpace(vm.space()), HeldFrames::new());
        let _regions = vm.lock.read(cpu.hardware());
        let Ok(range) = user_range(va, pages) else { return Self { pending: gather.issue(cpu) } };
        let span = va..table::next_span(va, 2).min(range.end);
        let _table = vm.pmap.lock(cpu.hardware(), va);
        let pending = cpu.hardware().with_irqs_off(|_| {
            take_leaves(cpu, mem, vm, span, &mut gather);
            gather.issue(cpu)
        });
        Self { pending }
    }

    /// True if [`finish`](Self::finish) would not wait. This function itself never waits.
    pub fn is_done<H: Hardware<Set = S>>(&mut self, cpu: &Cpu<'_, '_, H>) -> bool {
        self.pending.is_done(cpu)
    }

    /// Waits until no CPU can use what was unhooked, and puts the frames. Interrupts are on.
    pub fn finish<H: Hardware<Set = S>>(self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory) {
        self.pending.wait(cpu).into_frames().put_all(mem);
    }
}

/// Unhooks the base pages in `span`, whose lock is held, and records them as one range. A policy that sends each
/// request at once would wait for the responders here, so under such a policy everything is flushed instead.
fn take_leaves<H: Hardware, M: Memory>(
    cpu: &Cpu<'_, '_, H>,
    mem: &M,
    vm: &Vm<'_, H::Set>,
    mut span: Range<u64>,
    gather: &mut Gather<'_, H::Set>,
) {
    let (mut room, mut first, mut end) = (MAX_FRAMES, u64::MAX, 0);
    while let Some((va, entry)) = table::first_leaf(mem, vm.pmap.root(), span.clone()) {
        span.start = va + entry.bytes();
        if entry.level != 1 || room == 0 {
            continue;
        }
        let old = Pte(mem.swap(entry.at, 0));
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
    gather.range(cpu, VirtAddr(first), pages, Stride::Page4K, Scope::NonGlobal, Reason::RemovePte);
}

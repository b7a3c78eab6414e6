//! Pages of many spaces that are unhooked and flushed with one request per CPU, as Linux' reclaim does with
//! `arch_tlbbatch_flush`.
//!
//! A page is unhooked, and its space recorded in the batch, under its page-table lock. That lock is dropped before the
//! flush. An operation that comes in between and finds the page gone flushes what is pending for the space, even if it
//! has nothing else to flush, because every operation of this crate ends in a flush (C-28, C-75; Linux'
//! `flush_tlb_batched_pending`). A page fault does not flush: it may map a new page there while other CPUs still use
//! the old one, until the eviction is finished.

use crate::accessed::is_cached_nowhere;
use crate::gather::HeldFrames;
use crate::memory::{Frame, Memory};
use crate::pmap::user_range;
use crate::pte;
use crate::table;
use crate::vm::Vm;
use tlbkit::{Cpu, Hardware, Reason, TlbBatch};
use tlbkit_arch::Pte;

/// Base pages of any number of spaces that are being evicted, `FRAMES` of them at most. Their content is lost, as with
/// [`Vm::dontneed`].
#[must_use = "unless it is finished, frames leak and stale translations stay"]
pub struct Eviction<const FRAMES: usize = 64> {
    batch: TlbBatch<HeldFrames<FRAMES>>,
    room: usize,
}

impl Eviction {
    /// An empty eviction of 64 frames; [`Eviction::default`] makes one of any number.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<const FRAMES: usize> Eviction<FRAMES> {
    /// Unhooks the base pages of `vm` in the `pages` pages from `va` on, up to the capacity. Nothing is flushed yet. A
    /// range that is not in the user half counts as empty.
    pub fn take<H: Hardware, M: Memory>(
        &mut self,
        cpu: &Cpu<'_, '_, H>,
        mem: &M,
        vm: &Vm<'_, H::Set>,
        va: u64,
        pages: u64,
    ) {
        let Ok(range) = user_range(va, pages) else { return };
        let _guard = vm.lock.read(cpu.hardware());
        // The visit cannot fail.
        let _done = vm.pmap.for_each_table_span(cpu.hardware(), mem, range, |mut span| {
            while let Some((va, entry)) = table::first_leaf(mem, vm.pmap.root(), span.clone()) {
                span.start = va + entry.bytes();
                if entry.level == 1 && self.room != 0 {
                    let old = Pte(mem.swap(entry.at, 0));
                    let frame = pte::into_frame(old);
                    if is_cached_nowhere(cpu, old) {
                        frame.into_iter().for_each(|frame| mem.put(frame));
                    } else {
                        self.add(cpu, vm, frame);
                    }
                }
            }
            Ok(())
        });
    }

    /// Records a page that was unhooked, whose lock is still held, and its frame. The zero page has none.
    fn add<H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, vm: &Vm<'_, H::Set>, frame: Option<Frame>) {
        match frame {
            Some(frame) => {
                self.batch.unmap(cpu, vm.space(), frame);
                self.room -= 1;
            }
            None => self.batch.revoke(cpu, vm.space()),
        }
    }

    /// Flushes all of them with one request per CPU, and puts their frames.
    pub fn finish<H: Hardware>(self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory) {
        self.batch.flush(cpu, Reason::RemovePte).into_frames().put_all(mem);
    }
}

impl<const FRAMES: usize> Default for Eviction<FRAMES> {
    fn default() -> Self {
        Self { batch: TlbBatch::new(HeldFrames::new()), room: FRAMES }
    }
}

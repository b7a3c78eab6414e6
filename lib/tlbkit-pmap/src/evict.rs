//! Frames that are taken from many spaces and flushed once, as reclaim does it.
//!
//! A page is taken out, and its space named to the batch, under the lock of its page table. That lock is dropped before
//! the flush. Who comes in between and finds the page gone flushes what the batch owes, with the flush that ends each
//! operation of this crate, even if it has nothing of its own (C-28, C-75). A fault has none: it may map a new page
//! there while other CPUs still use the old one, until the eviction is finished.

use crate::gather::Held;
use crate::memory::{Frame, Memory};
use crate::pmap::user_range;
use crate::pte;
use crate::table;
use crate::vm::Vm;
use tlbkit::{Cpu, Hardware, Reason, TlbBatch};
use tlbkit_arch::Pte;

/// Frames that one eviction takes.
const MOST: usize = 64;

/// Base pages of any number of spaces that are being evicted. Their content is lost, as by [`Vm::dontneed`].
#[must_use = "frames leak and stale translations live on unless it is finished"]
pub struct Eviction {
    batch: TlbBatch<Held<MOST>>,
    room: usize,
}

impl Eviction {
    /// Of nothing.
    pub fn new() -> Self {
        Self { batch: TlbBatch::new(Held::new()), room: MOST }
    }

    /// Takes out what is mapped as base pages in `pages` pages of `vm` from `va` on, until there is no more room.
    /// Nothing is flushed yet. A range that is not in the user half has nothing.
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
        let _done = vm.pmap.for_spans(cpu.hardware(), mem, range, |mut span| {
            while let Some((va, slot)) = table::first_leaf(mem, vm.pmap.root(), span.clone()) {
                span.start = va + slot.bytes();
                if slot.level == 1 && self.room != 0 {
                    let old = Pte(mem.swap(slot.at, 0));
                    self.keep(cpu, vm, pte::into_frame(old));
                }
            }
            Ok(())
        });
    }

    /// Names a page that was taken out, whose lock is held, and keeps its frame, if it has one of its own.
    fn keep<H: Hardware>(&mut self, cpu: &Cpu<'_, '_, H>, vm: &Vm<'_, H::Set>, frame: Option<Frame>) {
        match frame {
            Some(frame) => {
                self.batch.unmap(cpu, vm.space(), frame);
                self.room -= 1;
            }
            None => self.batch.revoke(cpu, vm.space()),
        }
    }

    /// Flushes all of them on every CPU at once, and puts their frames back.
    pub fn finish<H: Hardware>(self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory) {
        self.batch.flush(cpu, Reason::RemovePte).into_frames().put_all(mem);
    }
}

impl Default for Eviction {
    fn default() -> Self {
        Self::new()
    }
}

//! Pages of 1 GiB, which the page tables of `tlbkit-pmap` do not have: the little kernel enters them by itself, beside
//! what that crate maps, and takes them out by the protocol's own gather.

use tlbkit::{PhysAddr, Reason, Scope, Stride, TlbGather, Translations, VirtAddr};
use tlbkit_arch::{Pte, entry_at};
use tlbkit_pmap::{Frame, Memory};

use super::pages::GIANT_RANGE;
use crate::machine::memory::Use;
use crate::machine::world::World;

/// The level whose entries map pages of 1 GiB.
const LEVEL: u32 = 3;
const SHIFT: u8 = Stride::Page1G.shift() as u8;
const BITS: u64 = Pte::PRESENT | Pte::WRITE | Pte::USER | Pte::ACCESSED | Pte::LARGE;

impl World<'_> {
    /// Maps both, if nobody has, and `space` has a table for them: one page is mapped near them, and stays.
    pub(super) fn map_giants(&self, space: usize) {
        if self.table_of_giants(space).is_none() {
            return;
        }
        let frames = [(); 2].map(|()| self.machine.borrow_mut().alloc(SHIFT, Use::Data));
        // There are two frames: a CPU that does not get them has been forestalled.
        let [Some(first), Some(second)] = frames else { return };
        for (va, frame) in addresses().zip([first, second]) {
            self.bus().store(self.entry_of_giant(space, va), Pte::new(PhysAddr(frame), BITS).0);
        }
        // A CPU that finds `giants` set finds them mapped.
        self.machine.borrow_mut().drain();
        self.kernel.giants.set(Some(space));
    }

    /// Unmaps both, if `space` has them. One gather names the two, and keeps their frames.
    pub(super) fn unmap_giants(&self, cpu: usize, space: usize) {
        if self.kernel.giants.get() != Some(space) {
            return;
        }
        self.kernel.giants.set(None);
        self.change(cpu, space, "unmap 1 GiB", &GIANT_RANGE, |handle, vm| {
            let mut gather = TlbGather::new(Translations::OfSpace(vm.space()), Vec::new());
            for va in addresses() {
                let old = Pte(self.bus().swap(self.entry_of_giant(space, va), 0));
                let frame = Frame { at: old.frame(), shift: SHIFT };
                gather.unmap(&handle, VirtAddr(va), Stride::Page1G, Scope::NonGlobal, Reason::RemovePte, frame);
            }
            gather.flush(&handle).into_frames().into_iter().for_each(|frame| self.bus().free(frame));
        });
    }

    fn table_of_giants(&self, space: usize) -> Option<PhysAddr> {
        if self.kernel.has_directories {
            return None;
        }
        let top = entry_at(self.vm(space).space().root(), VirtAddr(GIANT_RANGE.start), LEVEL + 1);
        let entry = Pte(self.bus().load(top));
        entry.has(Pte::PRESENT).then(|| entry.frame())
    }

    fn entry_of_giant(&self, space: usize, va: u64) -> PhysAddr {
        entry_at(self.table_of_giants(space).expect("a table, since they were mapped"), VirtAddr(va), LEVEL)
    }
}

/// The first address of each.
fn addresses() -> impl Iterator<Item = u64> {
    GIANT_RANGE.step_by(Stride::Page1G.bytes() as usize)
}

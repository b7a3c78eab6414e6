//! Fork: parent and child share every frame; private ones become read-only in both until somebody stores.
//!
//! One gather covers the whole parent. It is flushed before the child can run, and under the writer's lock, so that no
//! thread of the parent still stores to what the child believes its own.

use crate::error::Error;
use crate::fault::{Access, fill};
use crate::foreign::Home;
use crate::memory::Memory;
use crate::pte;
use crate::region::{Backing, Region};
use crate::sweep::{Sweep, change_leaf};
use crate::table::{self, Found, Slot, USER_END};
use crate::vm::Vm;
use tlbkit::{Cpu, Hardware, PAGE_BYTES, Reason};
use tlbkit_arch::Pte;

/// How the child's tables are reached while they are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildFill {
    /// Directly, whatever the policy. For kernels with a window that copy a list of pages here and fill tables by
    /// faults.
    DirectMap,
    /// As the policy says for every foreign table.
    ByPolicy,
}

/// What a fork did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forked {
    /// Leaves that the child got.
    pub entries: u32,
    /// Page tables that the child got.
    pub table_frames: u32,
}

impl<'k, S> Vm<'k, S> {
    /// Makes `child`, new and empty, a copy of this space, which runs on this CPU.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; the child then holds a part, and is to be emptied and destroyed.
    pub fn fork<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        child: &Vm<'k, S>,
        fill: ChildFill,
    ) -> Result<Forked, Error> {
        let _guard = self.lock.write(cpu.hardware());
        let _child = child.lock.write(cpu.hardware());
        let window = &self.kernel.foreign;
        let reach = (fill == ChildFill::ByPolicy).then(|| window.reach(cpu, &child.pmap, Home::Space(self.space())));
        let mut unhook = self.pmap.begin(cpu, mem);
        let mut result = Ok(Forked::default());
        for region in self.regions.iter() {
            result = result.and_then(|done| self.fork_region(cpu, mem, child, &region, done, &mut unhook));
        }
        child.pmap.set_total_pages(self.pmap.total_pages());
        // Back first: the flush then finds the parent loaded here.
        if let Some(reach) = reach {
            reach.leave(cpu, mem);
        }
        self.pmap.end(unhook, &(0..USER_END));
        result
    }

    fn fork_region<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        child: &Vm<'k, S>,
        region: &Region,
        mut done: Forked,
        unhook: &mut Sweep<'a, H, M>,
    ) -> Result<Forked, Error> {
        child.regions.insert(*region)?;
        if region.backing == Backing::AnonShared {
            self.populate(cpu, mem, region)?;
        }
        self.pmap.for_spans(cpu.hardware(), mem, region.range(), |mut span| {
            while let Some((va, slot)) = table::first_leaf(mem, self.pmap.root(), span.clone()) {
                done.table_frames += share_leaf(mem, child, va, slot, unhook)?;
                done.entries += 1;
                span.start = va + slot.bytes();
            }
            Ok(())
        })?;
        Ok(done)
    }

    /// Fills the holes of shared anonymous memory: parent and child must find the same pages later.
    fn populate<H: Hardware<Set = S>>(
        &self,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        region: &Region,
    ) -> Result<(), Error> {
        for va in region.range().step_by(PAGE_BYTES as usize) {
            if let Found::Hole(level) = table::find(mem, self.pmap.root(), va) {
                fill(&self.pmap, cpu.hardware(), mem, region, va, level, Access::Read)?;
            }
        }
        Ok(())
    }
}

/// Gives the child the parent's leaf, and takes the write permission of a private one from the parent.
fn share_leaf<H: Hardware, M: Memory>(
    mem: &M,
    child: &Vm<'_, H::Set>,
    va: u64,
    slot: Slot,
    unhook: &mut Sweep<'_, H, M>,
) -> Result<u32, Error> {
    let (place, made) = table::create(mem, child.pmap.root(), va, slot.level).ok_or(Error::OutOfMemory)?;
    let is_private = !slot.pte.has(pte::SHARED) && !slot.pte.has(pte::ZERO);
    if is_private {
        change_leaf(mem, va, slot, Reason::Fork, unhook, read_only);
    }
    if !slot.pte.has(pte::ZERO) {
        mem.share(slot.pte.frame());
    }
    let pte = if is_private { read_only(slot.pte) } else { slot.pte };
    mem.store(place.at, pte.without(Pte::ACCESSED | Pte::DIRTY).0);
    Ok(made)
}

const fn read_only(pte: Pte) -> Pte {
    pte.without(Pte::WRITE).with(pte::COW)
}

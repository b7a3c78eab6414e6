//! Fork: parent and child share every frame; private pages become read-only in both until the first store.
//!
//! One gather covers the whole parent. It is flushed before the child can run, with the regions still locked for
//! writing, so that no thread of the parent can store through a stale translation to a page that the child relies on.

use crate::error::Error;
use crate::fault::{Access, fill};
use crate::foreign::Home;
use crate::memory::Memory;
use crate::pmap::Place;
use crate::pte;
use crate::region::{Backing, Region};
use crate::sweep::{SweepGather, change_leaf};
use crate::table::{self, Entry, Found, USER_END};
use crate::vm::Vm;
use tlbkit::{Cpu, Hardware, PAGE_BYTES, Reason};
use tlbkit_arch::Pte;

/// How the child's page tables are accessed while they are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildFill {
    /// Through the direct map, whatever the policy. For kernels that have a window but only copy a list of pages here,
    /// and fill the tables by page faults.
    DirectMap,
    /// As the policy says for the tables of any space that is not loaded.
    ByPolicy,
}

/// What a fork copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forked {
    /// Leaf entries of the child.
    pub entries: u32,
    /// Page-table pages of the child.
    pub table_frames: u32,
}

impl<'k, S> Vm<'k, S> {
    /// Makes `child`, which is new and empty, a copy of this space, which runs on this CPU.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]. The child then holds a part of the copy, and the caller empties and destroys it.
    pub fn fork<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        child: &Vm<'k, S>,
        fill: ChildFill,
    ) -> Result<Forked, Error> {
        let _guard = self.lock.write(cpu.hardware());
        let filling = child.lock.write(cpu.hardware());
        let window = &self.kernel.foreign;
        let reach = (fill == ChildFill::ByPolicy).then(|| window.reach(cpu, &child.pmap, Home::Space(self.space())));
        let mut gather = self.pmap.begin_sweep(cpu, mem);
        let mut result = Ok(Forked::default());
        for region in self.regions.iter() {
            result = result.and_then(|done| {
                child.regions.insert(&filling, region)?;
                self.fork_region(cpu, mem, child, &region, done, &mut gather)
            });
        }
        child.pmap.set_total_pages(self.pmap.total_pages());
        // Switch back first, so that the flush finds the parent loaded on this CPU.
        if let Some(reach) = reach {
            reach.leave(cpu, mem);
        }
        self.pmap.end_sweep(gather, &(0..USER_END));
        result
    }

    fn fork_region<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        child: &Vm<'k, S>,
        region: &Region,
        mut done: Forked,
        gather: &mut SweepGather<'a, H, M>,
    ) -> Result<Forked, Error> {
        if region.backing == Backing::AnonShared {
            self.populate(cpu, mem, region)?;
        }
        self.pmap.for_each_table_span(cpu.hardware(), mem, region.range(), |mut span| {
            while let Some((va, entry)) = table::first_leaf(mem, self.pmap.root(), span.clone()) {
                done.table_frames += share_leaf(cpu.hardware(), mem, child, va, entry, gather)?;
                done.entries += 1;
                span.start = va + entry.bytes();
            }
            Ok(())
        })?;
        Ok(done)
    }

    /// Allocates the missing pages of shared anonymous memory: otherwise parent and child would each allocate their
    /// own.
    fn populate<H: Hardware<Set = S>>(
        &self,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        region: &Region,
    ) -> Result<(), Error> {
        for va in region.range().step_by(PAGE_BYTES as usize) {
            if let Found::Hole(level) = table::find(mem, self.pmap.root(), va) {
                fill(&self.pmap, cpu, mem, region, va, Place::Level(level), Access::Read)?;
            }
        }
        Ok(())
    }
}

/// Copies a leaf to the child. If the page is private, it becomes read-only in the parent too.
fn share_leaf<H: Hardware, M: Memory>(
    hw: &H,
    mem: &M,
    child: &Vm<'_, H::Set>,
    va: u64,
    entry: Entry,
    gather: &mut SweepGather<'_, H, M>,
) -> Result<u32, Error> {
    if entry.level == 2 {
        child.pmap.locks.directories.note_large(hw);
    }
    let (place, made) = table::create(mem, child.pmap.root(), va, entry.level).ok_or(Error::OutOfMemory)?;
    let is_private = !entry.pte.has(pte::SHARED) && !entry.pte.has(pte::ZERO);
    if is_private {
        change_leaf(mem, va, entry, Reason::Fork, gather, read_only);
    }
    if !entry.pte.has(pte::ZERO) {
        mem.share(entry.pte.frame());
    }
    let pte = if is_private { read_only(entry.pte) } else { entry.pte };
    mem.store(place.at, pte.without(Pte::ACCESSED | Pte::DIRTY).0);
    Ok(made)
}

const fn read_only(pte: Pte) -> Pte {
    pte.without(Pte::WRITE).with(pte::COW)
}

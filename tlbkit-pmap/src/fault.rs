//! What a page fault maps: zeros, the file's page, or a private copy.

use crate::error::Error;
use crate::memory::{Memory, Purpose};
use crate::pmap::{Pmap, with_protection};
use crate::pte::Pte;
use crate::region::{Backing, Protection, Region};
use crate::table::{self, Found, Slot};
use crate::vm::Vm;
use tlbkit::{Cpu, Hardware, PAGE_BYTES, Reason, Stride};

/// What the program tried to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// What came of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Something was mapped. The counts say what that cost.
    Mapped {
        /// Base pages filled with zeros.
        zeroed: u32,
        /// Base pages copied.
        copied: u32,
        /// New page tables.
        table_frames: u32,
    },
    /// The entry already allows the access: another CPU was faster.
    Spurious,
    /// The program may not do that.
    Bad,
    /// No frame was left.
    OutOfMemory,
}

impl Fault {
    /// Widened or found, at no cost.
    const FREE: Self = Self::Mapped { zeroed: 0, copied: 0, table_frames: 0 };
}

const fn is_allowed(region: &Region, access: Access) -> bool {
    match access {
        Access::Read => !matches!(region.protection, Protection::None),
        Access::Write => matches!(region.protection, Protection::ReadWrite),
    }
}

/// The bits of a leaf of `region` that a fault has just touched, before its protection is applied.
const fn bits_for(region: &Region, access: Access) -> u64 {
    let touched = match access {
        Access::Read => Pte::ACCESSED,
        Access::Write => Pte::ACCESSED | Pte::DIRTY,
    };
    Pte::PRESENT | Pte::USER | Pte::NO_EXECUTE | touched | if region.backing.is_shared() { Pte::SHARED } else { 0 }
}

impl<'k> Vm<'k> {
    /// Handles a fault at `va`.
    pub fn fault<'a, H: Hardware, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, 'k, H>,
        mem: &'a M,
        va: u64,
        access: Access,
    ) -> Fault {
        let _guard = self.lock.read(cpu.hardware());
        let va = va & !(PAGE_BYTES - 1);
        let Some(region) = self.regions.at(va).filter(|region| is_allowed(region, access)) else {
            return Fault::Bad;
        };
        let _tables = self.pmap.lock(cpu.hardware());
        let result = match table::find(mem, self.pmap.root(), va) {
            Found::Leaf(slot) if access == Access::Write && !slot.pte.has(Pte::WRITE) => {
                break_copy(&self.pmap, cpu, mem, va, slot)
            }
            Found::Leaf(_) => Ok(Fault::Spurious),
            Found::Hole(level) => fill(&self.pmap, mem, &region, va, level, access),
        };
        result.unwrap_or(Fault::OutOfMemory)
    }
}

/// Maps something where nothing was: no CPU can have cached it, so nothing is flushed (C-40).
pub(crate) fn fill(
    pmap: &Pmap<'_>,
    mem: &impl Memory,
    region: &Region,
    va: u64,
    hole: u32,
    access: Access,
) -> Result<Fault, Error> {
    if hole >= 2
        && let Some(fault) = fill_large(pmap, mem, region, va, access)?
    {
        return Ok(fault);
    }
    let (slot, table_frames) = table::create(mem, pmap.root(), va, 1).ok_or(Error::OutOfMemory)?;
    let bits = bits_for(region, access);
    let (mut zeroed, mut copied) = (0, 0);
    let pte = match (region.backing, access) {
        (Backing::AnonPrivate, Access::Read) => Pte::new(mem.zero_page(), bits | Pte::ZERO),
        (Backing::AnonPrivate | Backing::AnonShared, _) => {
            zeroed = 1;
            Pte::new(mem.alloc(12, Purpose::Data).ok_or(Error::OutOfMemory)?.at, bits)
        }
        (Backing::FilePrivate, Access::Write) => {
            copied = 1;
            let frame = mem.alloc(12, Purpose::Data).ok_or(Error::OutOfMemory)?;
            mem.copy(mem.file_page(region.file, region.file_page(va)), frame.at, 12);
            Pte::new(frame.at, bits)
        }
        (Backing::FilePrivate | Backing::FileShared, _) => {
            let at = mem.file_page(region.file, region.file_page(va));
            mem.share(at);
            let private = if region.backing == Backing::FilePrivate { Pte::COW } else { 0 };
            Pte::new(at, bits | private)
        }
    };
    mem.store(slot.at, with_protection(pte, region.protection).0);
    Ok(Fault::Mapped { zeroed, copied, table_frames })
}

/// A large page, if the region wants one, it fits, and a frame is left; else small ones do as well.
fn fill_large(
    pmap: &Pmap<'_>,
    mem: &impl Memory,
    region: &Region,
    va: u64,
    access: Access,
) -> Result<Option<Fault>, Error> {
    let bytes = Stride::Page2M.bytes();
    let first = va & !(bytes - 1);
    let fits = region.first <= first && first + bytes <= region.range().end;
    if !fits || region.stride != Stride::Page2M || region.backing != Backing::AnonPrivate {
        return Ok(None);
    }
    let Some(frame) = mem.alloc(21, Purpose::Data) else { return Ok(None) };
    let Some((slot, table_frames)) = table::create(mem, pmap.root(), first, 2) else {
        mem.put(frame);
        return Err(Error::OutOfMemory);
    };
    let pte = Pte::new(frame.at, bits_for(region, access) | Pte::LARGE);
    mem.store(slot.at, with_protection(pte, region.protection).0);
    Ok(Some(Fault::Mapped { zeroed: 512, copied: 0, table_frames }))
}

/// The first store to a read-only page of a writable region. The only holder of a frame just gets it writable; else the
/// store goes to a copy, which no CPU may see while another still reads the old frame.
fn break_copy<'a, 'k, H: Hardware, M: Memory>(
    pmap: &'a Pmap<'k>,
    cpu: &Cpu<'a, 'k, H>,
    mem: &'a M,
    va: u64,
    slot: Slot,
) -> Result<Fault, Error> {
    let old = slot.pte;
    let widened = old.without(Pte::COW | Pte::ZERO).with(Pte::WRITE | Pte::ACCESSED | Pte::DIRTY);
    let is_copied = !old.has(Pte::ZERO);
    if old.has(Pte::SHARED) || is_copied && mem.references(old.frame()) == 1 {
        mem.store(slot.at, widened.0);
        return Ok(Fault::FREE);
    }
    let shift = if slot.level == 2 { 21 } else { 12 };
    let pages = (slot.bytes() / PAGE_BYTES) as u32;
    let frame = mem.alloc(shift, Purpose::Data).ok_or(Error::OutOfMemory)?;
    if is_copied {
        mem.copy(old.frame(), frame.at, shift);
    }
    pmap.replace(cpu, mem, va, slot, Pte::new(frame.at, widened.bits()), Reason::CopyOnWrite);
    let (zeroed, copied) = if is_copied { (0, pages) } else { (pages, 0) };
    Ok(Fault::Mapped { zeroed, copied, table_frames: 0 })
}

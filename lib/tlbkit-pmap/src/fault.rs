//! What a page fault maps: zeros, the file's page, or a private copy.

use crate::error::Error;
use crate::memory::{Frame, Memory, Purpose};
use crate::pmap::{Pmap, with_protection};
use crate::pte;
use crate::region::{Backing, Protection, Region};
use crate::table::{self, Found, Slot};
use crate::vm::Vm;
use tlbkit::{Cpu, Hardware, PAGE_BYTES, PhysAddr, Reason, Stride, VirtAddr};
use tlbkit_arch::addr::TABLE_ENTRIES;
use tlbkit_arch::{Pte, entry_at};

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
    Pte::PRESENT | Pte::USER | Pte::NO_EXECUTE | touched | if region.backing.is_shared() { pte::SHARED } else { 0 }
}

impl<'k, S> Vm<'k, S> {
    /// Handles a fault at `va`.
    ///
    /// # Panics
    /// If [`Memory::fault_around`] is no power of two or above 512, and a page of a file is loaded from.
    pub fn fault<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        access: Access,
    ) -> Fault {
        let _guard = self.lock.read(cpu.hardware());
        let va = va & !(PAGE_BYTES - 1);
        let Some(region) = self.regions.at(va).filter(|region| is_allowed(region, access)) else {
            return Fault::Bad;
        };
        // A look without the table's lock says what to prepare. Under the lock it is made sure of.
        let result = match table::find(mem, self.pmap.root(), va) {
            Found::Leaf(slot) if is_write_of_read_only(slot, access) => break_copy(&self.pmap, cpu, mem, va),
            Found::Leaf(_) => Ok(Fault::Spurious),
            Found::Hole(level) => fill(&self.pmap, cpu.hardware(), mem, &region, va, level, access),
        };
        result.unwrap_or(Fault::OutOfMemory)
    }
}

fn is_write_of_read_only(slot: Slot, access: Access) -> bool {
    access == Access::Write && !slot.pte.has(Pte::WRITE)
}

/// Maps something where nothing is, so nothing is flushed (C-40). What was there before may have been taken out by a
/// sweep or an eviction that has not flushed yet: until that returns, other CPUs may use the old page beside this one.
/// Its frame is nobody else's meanwhile.
pub(crate) fn fill<S>(
    pmap: &Pmap<S>,
    hw: &impl Hardware,
    mem: &impl Memory,
    region: &Region,
    va: u64,
    hole: u32,
    access: Access,
) -> Result<Fault, Error> {
    if hole >= 2
        && let Some(fault) = fill_large(pmap, hw, mem, region, va, access)?
    {
        return Ok(fault);
    }
    let (pte, zeroed, copied) = new_page(mem, region, va, access)?;
    let made = pmap.install(hw, mem, va, 1, with_protection(pte, region.protection))?;
    if access == Access::Read && region.backing.has_file() && mem.fault_around() != 1 {
        map_around(pmap, hw, mem, region, va);
    }
    Ok(made.map_or(Fault::Spurious, |table_frames| Fault::Mapped { zeroed, copied, table_frames }))
}

/// Maps the file's pages around `va` for loads, wherever its window and the region have nothing yet. The window lies in
/// one page table, which is there.
fn map_around<S>(pmap: &Pmap<S>, hw: &impl Hardware, mem: &impl Memory, region: &Region, va: u64) {
    let pages = mem.fault_around();
    // A larger window's entries would be taken for those of other pages.
    let is_in_one_table = pages.is_power_of_two() && pages <= TABLE_ENTRIES;
    assert!(is_in_one_table, "fault_around {pages}: must be a power of two, at most {TABLE_ENTRIES}");
    let bytes = pages * PAGE_BYTES;
    let (window, own) = (va & !(bytes - 1), region.range());
    let _guard = pmap.lock(hw, va);
    let Found::Leaf(Slot { at: slot, level: 1, .. }) = table::find(mem, pmap.root(), va) else { return };
    for page in (window.max(own.start)..(window + bytes).min(own.end)).step_by(PAGE_BYTES as usize) {
        let at = entry_at(PhysAddr(slot.0 & !(PAGE_BYTES - 1)), VirtAddr(page), 1);
        if Pte(mem.load(at)).is_empty() {
            let pte = file_page(mem, region, page, Access::Read);
            mem.store(at, with_protection(pte, region.protection).0);
        }
    }
}

/// The leaf that `region` wants at `va`, before its protection is applied, and how many pages were zeroed and copied
/// for it.
fn new_page(mem: &impl Memory, region: &Region, va: u64, access: Access) -> Result<(Pte, u32, u32), Error> {
    let bits = bits_for(region, access);
    Ok(match (region.backing, access) {
        (Backing::AnonPrivate, Access::Read) => (Pte::new(mem.zero_page(), bits | pte::ZERO), 0, 0),
        (Backing::AnonPrivate | Backing::AnonShared, _) => {
            let frame = mem.alloc(12, Purpose::Data).ok_or(Error::OutOfMemory)?;
            (Pte::new(frame.at, bits), 1, 0)
        }
        (Backing::FilePrivate, Access::Write) => {
            let frame = mem.alloc(12, Purpose::Copy).ok_or(Error::OutOfMemory)?;
            mem.copy(mem.file_page(region.file, region.file_page(va)), frame.at, 12);
            (Pte::new(frame.at, bits), 0, 1)
        }
        (Backing::FilePrivate | Backing::FileShared, _) => (file_page(mem, region, va, access), 0, 0),
    })
}

/// The leaf of the file's own page at `va`, before its protection is applied.
fn file_page(mem: &impl Memory, region: &Region, va: u64, access: Access) -> Pte {
    let at = mem.file_page(region.file, region.file_page(va));
    mem.share(at);
    let private = if region.backing == Backing::FilePrivate { pte::COW } else { 0 };
    Pte::new(at, bits_for(region, access) | private)
}

/// A large page, if the region wants one, it fits, and a frame is left; else small ones do as well.
fn fill_large<S>(
    pmap: &Pmap<S>,
    hw: &impl Hardware,
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
    let pte = Pte::new(frame.at, bits_for(region, access) | Pte::LARGE);
    let made = pmap.install(hw, mem, first, 2, with_protection(pte, region.protection))?;
    Ok(Some(made.map_or(Fault::Spurious, |table_frames| Fault::Mapped { zeroed: 512, copied: 0, table_frames })))
}

/// The first store to a read-only page of a writable region. The only holder of a frame just gets it writable; else the
/// store goes to a copy.
fn break_copy<'a, S, H: Hardware<Set = S>, M: Memory>(
    pmap: &'a Pmap<S>,
    cpu: &Cpu<'a, '_, H>,
    mem: &'a M,
    va: u64,
) -> Result<Fault, Error> {
    let guard = pmap.lock(cpu.hardware(), va);
    let slot = match table::find(mem, pmap.root(), va) {
        Found::Leaf(slot) if is_write_of_read_only(slot, Access::Write) => slot,
        _ => return Ok(Fault::Spurious),
    };
    let old = slot.pte;
    let is_copied = !old.has(pte::ZERO);
    if old.has(pte::SHARED) || is_copied && mem.references(old.frame()) == 1 {
        mem.store(slot.at, widened(old).0);
        return Ok(Fault::FREE);
    }
    if is_copied {
        // A reference of our own: while we copy, nobody else becomes the only holder, who may write to it.
        mem.share(old.frame());
    }
    drop(guard);
    let result = replace_by_copy(pmap, cpu, mem, va, slot);
    if is_copied {
        mem.put(Frame { at: old.frame(), shift: slot.shift() });
    }
    result
}

/// Puts a copy of what `seen` maps in its place, unless the place has changed. No CPU may see the copy while another
/// still reads the old frame.
fn replace_by_copy<'a, S, H: Hardware<Set = S>, M: Memory>(
    pmap: &'a Pmap<S>,
    cpu: &Cpu<'a, '_, H>,
    mem: &'a M,
    va: u64,
    seen: Slot,
) -> Result<Fault, Error> {
    let pages = (seen.bytes() / PAGE_BYTES) as u32;
    let is_copied = !seen.pte.has(pte::ZERO);
    let purpose = if is_copied { Purpose::Copy } else { Purpose::Data };
    let frame = mem.alloc(seen.shift(), purpose).ok_or(Error::OutOfMemory)?;
    if is_copied {
        mem.copy(seen.pte.frame(), frame.at, seen.shift());
    }
    let _guard = pmap.lock(cpu.hardware(), va);
    let is_same = |now: &Slot| now.level == seen.level && now.pte.frame() == seen.pte.frame();
    match table::find(mem, pmap.root(), va) {
        Found::Leaf(now) if is_same(&now) => {
            pmap.replace(cpu, mem, va, now, Pte::new(frame.at, widened(now.pte).bits()), Reason::CopyOnWrite);
            let (zeroed, copied) = if is_copied { (0, pages) } else { (pages, 0) };
            Ok(Fault::Mapped { zeroed, copied, table_frames: 0 })
        }
        _ => {
            mem.put(frame);
            Ok(Fault::Spurious)
        }
    }
}

/// A read-only leaf after a store to what it maps.
const fn widened(pte: Pte) -> Pte {
    pte.without(pte::COW | pte::ZERO).with(Pte::WRITE | Pte::ACCESSED | Pte::DIRTY)
}

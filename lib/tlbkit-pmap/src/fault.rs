//! Page faults: they map the zero page, a new page, a page of a file, or a private copy.

use crate::error::Error;
use crate::memory::{Frame, Memory, Purpose};
use crate::pmap::{Place, Pmap, with_protection};
use crate::pte;
use crate::region::{Backing, Protection, Region};
use crate::table::{self, Entry, Found};
use crate::vm::Vm;
use tlbkit::{Cpu, Hardware, PAGE_BYTES, PhysAddr, Reason, Reclaim, Stride, Unaccessed, VirtAddr};
use tlbkit_arch::addr::TABLE_ENTRIES;
use tlbkit_arch::{Pte, entry_at};

/// The access that faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
}

/// The outcome of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The access can be retried. The counts say what that cost.
    Mapped {
        /// Base pages filled with zeros.
        zeroed: u32,
        /// Base pages copied.
        copied: u32,
        /// Page-table pages allocated.
        table_frames: u32,
    },
    /// The entry already allows the access, because another CPU was faster or the translation was stale.
    Spurious,
    /// The program may not do this.
    Bad,
    /// No frame was left.
    OutOfMemory,
}

impl Fault {
    /// No page was zeroed, copied or allocated.
    const NO_COST: Self = Self::Mapped { zeroed: 0, copied: 0, table_frames: 0 };
}

const fn is_allowed(region: &Region, access: Access) -> bool {
    match access {
        Access::Read => !matches!(region.protection, Protection::None),
        Access::Write => matches!(region.protection, Protection::ReadWrite),
    }
}

/// The bits of the leaf that a fault in `region` maps, before the protection is applied.
const fn bits_for(region: &Region, access: Access) -> u64 {
    let touched = match access {
        Access::Read => Pte::ACCESSED,
        Access::Write => Pte::ACCESSED | Pte::DIRTY,
    };
    Pte::USER | Pte::NO_EXECUTE | touched | if region.backing.is_shared() { pte::SHARED } else { 0 }
}

impl<'k, S> Vm<'k, S> {
    /// Handles a page fault at `va`.
    ///
    /// # Panics
    /// In a read fault of a file mapping, if [`Memory::fault_around`] is not a power of two or is above 512.
    pub fn fault<'a, H: Hardware<Set = S>, M: Memory>(
        &'a self,
        cpu: &Cpu<'a, '_, H>,
        mem: &'a M,
        va: u64,
        access: Access,
    ) -> Fault {
        let _guard = self.lock.read(cpu.hardware());
        let va = va & !(PAGE_BYTES - 1);
        let Some(region) = self.regions.find(va).filter(|region| is_allowed(region, access)) else {
            return Fault::Bad;
        };
        let has_directories = self.pmap.has_directories(cpu.hardware());
        let hooked = if has_directories { self.pmap.hooked_leaf(cpu, mem, va) } else { None };
        // This look without the page-table lock only decides what to prepare. It is repeated under the lock.
        let found = match hooked {
            Some(at) => table::find_at(mem, at),
            None => table::find(mem, self.pmap.root(), va),
        };
        let result = match found {
            Found::Leaf(entry) if is_write_of_read_only(entry, access) => copy_on_write(&self.pmap, cpu, mem, va),
            Found::Leaf(_) => Ok(Fault::Spurious),
            Found::Hole(level) => {
                let hole = hooked.map_or(Place::Level(level), Place::Leaf);
                fill(&self.pmap, cpu, mem, &region, va, hole, access)
            }
        };
        let is_to_be_hooked = has_directories && hooked.is_none();
        let result = if is_to_be_hooked { self.hook_after(result, cpu, mem, va) } else { result };
        result.unwrap_or(Fault::OutOfMemory)
    }

    /// The page is there; now this CPU has to be able to walk to it.
    fn hook_after<H: Hardware<Set = S>>(
        &self,
        result: Result<Fault, Error>,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        va: u64,
    ) -> Result<Fault, Error> {
        let fault = result?;
        let made = self.pmap.hook(cpu, mem, va)?;
        Ok(match fault {
            Fault::Mapped { zeroed, copied, table_frames } => {
                Fault::Mapped { zeroed, copied, table_frames: table_frames + made }
            }
            Fault::Spurious if made != 0 => Fault::Mapped { zeroed: 0, copied: 0, table_frames: made },
            other => other,
        })
    }
}

fn is_write_of_read_only(entry: Entry, access: Access) -> bool {
    access == Access::Write && !entry.pte.has(Pte::WRITE)
}

/// Maps a page where none is mapped, so nothing has to be flushed (C-40). The page that was mapped there before may
/// have been unhooked by a sweep or an eviction that has not flushed yet. Until that operation returns, other CPUs may
/// use the old page beside the new one. The old frame is freed only afterwards. What was there may also be a page of a
/// file whose flush is deferred: then no CPU may use it any more before another one writes to its copy (`clean.rs`).
pub(crate) fn fill<S, H: Hardware<Set = S>>(
    pmap: &Pmap<S>,
    cpu: &Cpu<'_, '_, H>,
    mem: &impl Memory,
    region: &Region,
    va: u64,
    hole: Place,
    access: Access,
) -> Result<Fault, Error> {
    let hw = cpu.hardware();
    if matches!(hole, Place::Level(2..))
        && let Some(fault) = fill_large(pmap, hw, mem, region, va, access)?
    {
        return Ok(fault);
    }
    let (pte, zeroed, copied) = new_page(mem, region, va, access)?;
    let is_copy_of_deferred = (region.backing, access) == (Backing::FilePrivate, Access::Write)
        && cpu.tlb().policy().reclaim == Reclaim::AtReuse;
    let before = || {
        if is_copy_of_deferred {
            cpu.drain(pmap.space())
        }
    };
    let place = if let Place::Level(_) = hole { Place::Level(1) } else { hole };
    let made = pmap.install(hw, mem, va, place, with_protection(pte, region.protection), before)?;
    if access == Access::Read && region.backing.has_file() && mem.fault_around() != 1 {
        map_around(pmap, cpu, mem, region, va);
    }
    Ok(made.map_or(Fault::Spurious, |table_frames| Fault::Mapped { zeroed, copied, table_frames }))
}

/// Fault-around: maps the pages of the file in the window around `va`, as far as they lie in the region and nothing is
/// mapped there yet. The window lies in the last-level table of `va`, which exists already. No access has asked for
/// these pages; where it saves a flush to know that, the accessed bit says so.
fn map_around<S, H: Hardware>(pmap: &Pmap<S>, cpu: &Cpu<'_, '_, H>, mem: &impl Memory, region: &Region, va: u64) {
    let pages = mem.fault_around();
    // In a larger window, addresses beyond the table would alias entries of other pages.
    let is_in_one_table = pages.is_power_of_two() && pages <= TABLE_ENTRIES;
    assert!(is_in_one_table, "fault_around {pages}: must be a power of two, at most {TABLE_ENTRIES}");
    let bytes = pages * PAGE_BYTES;
    let (window, own) = (va & !(bytes - 1), region.range());
    let early = match cpu.tlb().policy().unaccessed {
        Unaccessed::Flushed => 0,
        Unaccessed::Spared => Pte::ACCESSED,
    };
    let _guard = pmap.lock(cpu.hardware(), va);
    let Found::Leaf(Entry { at: entry, level: 1, .. }) = table::find(mem, pmap.root(), va) else { return };
    for page in (window.max(own.start)..(window + bytes).min(own.end)).step_by(PAGE_BYTES as usize) {
        let at = entry_at(PhysAddr(entry.0 & !(PAGE_BYTES - 1)), VirtAddr(page), 1);
        if Pte(mem.load(at)).is_empty() {
            let pte = file_page(mem, region, page, Access::Read);
            mem.store(at, with_protection(pte.without(early), region.protection).0);
        }
    }
}

/// The leaf to map at `va`, before the protection is applied, and how many pages were zeroed and copied for it.
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

/// The leaf that maps the page-cache page at `va`, before the protection is applied.
fn file_page(mem: &impl Memory, region: &Region, va: u64, access: Access) -> Pte {
    let at = mem.file_page(region.file, region.file_page(va));
    mem.share(at);
    let private = if region.backing == Backing::FilePrivate { pte::COW } else { 0 };
    Pte::new(at, bits_for(region, access) | private)
}

/// Maps a large page, if the region asks for one, it fits, and a large frame is free. Otherwise returns `None`, and the
/// caller maps a base page.
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
    if !fits || region.stride != Stride::Page2M || region.backing != Backing::AnonPrivate || pmap.has_directories(hw) {
        return Ok(None);
    }
    let Some(frame) = mem.alloc(21, Purpose::Data) else { return Ok(None) };
    pmap.locks.directories.note_large(hw);
    let pte = Pte::new(frame.at, bits_for(region, access) | Pte::LARGE);
    let made = pmap.install(hw, mem, first, Place::Level(2), with_protection(pte, region.protection), || ())?;
    Ok(Some(made.map_or(Fault::Spurious, |table_frames| Fault::Mapped { zeroed: 512, copied: 0, table_frames })))
}

/// Handles a store to a read-only page of a writable region. If this space is the only holder of the frame, the page is
/// made writable in place; otherwise it is replaced by a copy.
fn copy_on_write<'a, S, H: Hardware<Set = S>, M: Memory>(
    pmap: &'a Pmap<S>,
    cpu: &Cpu<'a, '_, H>,
    mem: &'a M,
    va: u64,
) -> Result<Fault, Error> {
    let guard = pmap.lock(cpu.hardware(), va);
    let entry = match table::find(mem, pmap.root(), va) {
        Found::Leaf(entry) if is_write_of_read_only(entry, Access::Write) => entry,
        _ => return Ok(Fault::Spurious),
    };
    let old = entry.pte;
    let is_copied = !old.has(pte::ZERO);
    if old.has(pte::SHARED) || is_copied && mem.references(old.frame()) == 1 {
        mem.store(entry.at, made_writable(old).0);
        return Ok(Fault::NO_COST);
    }
    if is_copied {
        // Take a reference for the time of the copy. Otherwise another holder could become the only one meanwhile, and
        // store to the frame in place.
        mem.share(old.frame());
    }
    drop(guard);
    let result = replace_by_copy(pmap, cpu, mem, va, entry);
    if is_copied {
        mem.put(Frame { at: old.frame(), shift: entry.shift() });
    }
    result
}

/// Replaces what `seen` maps by a copy, unless the entry has changed. The old translation is flushed before the copy is
/// mapped, so that no CPU can use the copy while another one still reads the old frame.
fn replace_by_copy<'a, S, H: Hardware<Set = S>, M: Memory>(
    pmap: &'a Pmap<S>,
    cpu: &Cpu<'a, '_, H>,
    mem: &'a M,
    va: u64,
    seen: Entry,
) -> Result<Fault, Error> {
    let pages = (seen.bytes() / PAGE_BYTES) as u32;
    let is_copied = !seen.pte.has(pte::ZERO);
    let purpose = if is_copied { Purpose::Copy } else { Purpose::Data };
    let frame = mem.alloc(seen.shift(), purpose).ok_or(Error::OutOfMemory)?;
    if is_copied {
        mem.copy(seen.pte.frame(), frame.at, seen.shift());
    }
    let _guard = pmap.lock(cpu.hardware(), va);
    let is_same = |now: &Entry| now.level == seen.level && now.pte.frame() == seen.pte.frame();
    match table::find(mem, pmap.root(), va) {
        Found::Leaf(now) if is_same(&now) => {
            pmap.replace(cpu, mem, va, now, Pte::new(frame.at, made_writable(now.pte).bits()), Reason::CopyOnWrite);
            let (zeroed, copied) = if is_copied { (0, pages) } else { (pages, 0) };
            Ok(Fault::Mapped { zeroed, copied, table_frames: 0 })
        }
        _ => {
            mem.put(frame);
            Ok(Fault::Spurious)
        }
    }
}

/// A read-only leaf, made writable and dirty for the store that faulted.
const fn made_writable(pte: Pte) -> Pte {
    pte.without(pte::COW | pte::ZERO).with(Pte::WRITE | Pte::ACCESSED | Pte::DIRTY)
}

//! Upper page tables of each CPU's own, so that a flush interrupts only CPUs that can hold what it takes away. The rule
//! is at the head of `tlbkit`'s `flush/sharers.rs`; RadixVM and numaPTE are such kernels.
//!
//! The tables that every other space has are the master tree: complete, and read by all that changes leaves. No CPU
//! loads it. Each CPU has a root, and tables below it down to the directories, whose entries name last-level tables of
//! the master tree: those below which this CPU has faulted. A fault that finds the page there and the directory's entry
//! missing only hooks the table.
//!
//! Each fault costs a walk of the CPU's own tables more, and each CPU that shares a table one fault more. A space takes
//! a root for each CPU from the start, and 4 KiB for each GiB that a CPU uses. It has no large pages: their entries
//! would have to be changed in all directories at once.

use tlbkit::{CpuId, Hardware, PAGE_BYTES, PhysAddr, SpaceToken, Tlb};
use tlbkit_arch::Pte;
use tlbkit_arch::addr::TABLE_ENTRIES;

use crate::error::Error;
use crate::kernel::KernelMap;
use crate::memory::{Frame, Memory, Purpose};
use crate::pmap::Pmap;
use crate::pte;
use crate::table::{self, Entry, Found, Root};
use crate::vm::Vm;

/// Gives each of `cpus` CPUs a top-level table. What was made before an error goes with the root of `pmap`.
fn make_roots<S>(cpus: usize, mem: &impl Memory, kernel: &KernelMap<'_>, pmap: &mut Pmap<S>) -> Result<(), Error> {
    assert!(cpus as u64 <= TABLE_ENTRIES, "{cpus} CPUs: no more than {TABLE_ENTRIES} have directories of their own");
    let page = mem.alloc(12, Purpose::Table).ok_or(Error::OutOfMemory)?.at;
    pmap.locks.directories.page = page;
    for cpu in 0..cpus as u32 {
        let root = table::new_root(mem, kernel.root(), pmap.root().isolation).ok_or(Error::OutOfMemory)?;
        mem.store(PhysAddr(page.0 + 8 * u64::from(cpu)), root.at.0);
        pmap.locks.directories.cpus = cpu + 1;
    }
    Ok(())
}

/// The top-level tables of the CPUs, if each has one: a page with the address of each.
#[derive(Clone, Copy)]
pub(crate) struct Directories {
    page: PhysAddr,
    cpus: u32,
}

impl Directories {
    /// All CPUs walk the same tables.
    pub(crate) const NONE: Self = Self { page: PhysAddr(0), cpus: 0 };
}

impl<'k, S> Vm<'k, S> {
    /// As [`new`](Self::new), an empty space in which each CPU of the machine has its own upper page tables.
    /// [`Hardware::root_here`] answers with [`root_on`](Self::root_on) for it, and [`Memory::sharers`] is asked.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    ///
    /// # Panics
    /// If the machine has more than 512 CPUs.
    pub fn with_directories(
        tlb: &Tlb<'k>,
        mem: &impl Memory,
        kernel: &'k KernelMap<'k>,
        token: SpaceToken,
        set: S,
    ) -> Result<Self, Error> {
        let mut space = Self::new(tlb, mem, kernel, token, set)?;
        let made = make_roots(tlb.cpus(), mem, kernel, &mut space.pmap);
        made.inspect_err(|_| space.pmap.free_root(mem)).map(|()| space)
    }

    /// The top-level table that `cpu` loads.
    #[must_use]
    pub fn root_on(&self, mem: &impl Memory, cpu: CpuId) -> PhysAddr {
        if self.pmap.has_directories() { self.pmap.root_on(mem, cpu).at } else { self.space().root() }
    }
}

impl<S> Pmap<S> {
    /// True if each CPU has its own upper page tables.
    pub(crate) const fn has_directories(&self) -> bool {
        self.locks.directories.page.0 != 0
    }

    fn root_on(&self, mem: &impl Memory, cpu: CpuId) -> Root {
        let at = PhysAddr(mem.load(PhysAddr(self.locks.directories.page.0 + 8 * u64::from(cpu.0))));
        Root { at, isolation: self.root().isolation }
    }

    fn cpus(&self) -> impl Iterator<Item = CpuId> + use<S> {
        (0..self.locks.directories.cpus).map(CpuId)
    }

    /// After a fault of `cpu`, which runs this, at `va`: has its directory name the table in which the page is. Returns
    /// how many page-table pages that took.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn hook(&self, cpu: CpuId, hw: &impl Hardware, mem: &impl Memory, va: u64) -> Result<u32, Error> {
        let root = self.root_on(mem, cpu);
        if table::directory_entry(mem, root, va).is_some_and(|at| !Pte(mem.load(at)).is_empty()) {
            return Ok(0);
        }
        let _guard = self.lock(hw, va);
        // If the page is gone again, the access faults again.
        let Found::Leaf(Entry { at, level: 1, .. }) = table::find(mem, self.root(), va) else { return Ok(0) };
        let (place, made) = table::create(mem, root, va, 2).ok_or(Error::OutOfMemory)?;
        let last = PhysAddr(at.0 & !(PAGE_BYTES - 1));
        mem.sharers(last).expect("a kernel whose CPUs have directories keeps the sharers of tables").hook(cpu);
        mem.store(place.at, Pte::new(last, pte::TABLE).0);
        Ok(made)
    }

    /// The last-level table at `last`, which maps from `va` on, is taken out: no directory names it any more. No CPU
    /// hooks tables meanwhile.
    pub(crate) fn unhook(&self, mem: &impl Memory, va: u64, last: PhysAddr) {
        let Some(sharers) = mem.sharers(last).filter(|_| self.has_directories()) else { return };
        for cpu in self.cpus().filter(|&cpu| sharers.may_include(cpu)) {
            if let Some(at) = table::directory_entry(mem, self.root_on(mem, cpu), va) {
                mem.store(at, 0);
            }
        }
    }

    /// No CPU has the space loaded: frees what CPUs have of their own.
    pub(crate) fn free_directories(&self, mem: &impl Memory) {
        if !self.has_directories() {
            return;
        }
        for root in self.cpus().map(|cpu| self.root_on(mem, cpu)) {
            table::unhook_directories(mem, root, &mut |frame| mem.put(frame));
            mem.put(Frame { at: root.at, shift: root.shift() });
        }
        mem.put(Frame { at: self.locks.directories.page, shift: 12 });
    }
}

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

use core::sync::atomic::AtomicU64;

use tlbkit::sync::Ordering;
use tlbkit::{CpuId, Hardware, Isolation, PAGE_BYTES, PhysAddr};
use tlbkit_arch::Pte;

use crate::error::Error;
use crate::memory::{Frame, Memory};
use crate::pmap::Pmap;
use crate::pte;
use crate::table::{self, Entry, Found, Root};
use crate::vm::Vm;

impl<S> Vm<'_, S> {
    /// Gives each CPU upper page tables of its own. `roots` has a word for each possible CPU and serves no other space.
    /// No CPU has run the space yet. From then on [`Hardware::root_here`] answers with [`root_on`](Self::root_on), and
    /// [`Memory::sharers`] is asked.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; the space is as before then.
    pub fn give_directories(&mut self, mem: &impl Memory, roots: &'static [AtomicU64]) -> Result<(), Error> {
        let (kernel_root, isolation) = (self.kernel.root(), self.pmap.root().isolation);
        for (done, root) in roots.iter().enumerate() {
            let Some(frame) = table::new_root(mem, kernel_root, isolation) else {
                roots[..done].iter().for_each(|root| free_directories(mem, root_in(root, isolation)));
                return Err(Error::OutOfMemory);
            };
            // Relaxed: the kernel orders that the space exists before a CPU runs it.
            root.store(frame.at.0, Ordering::Relaxed);
        }
        self.pmap.locks.roots = roots;
        Ok(())
    }

    /// The top-level table that `cpu` loads.
    #[must_use]
    pub fn root_on(&self, cpu: CpuId) -> PhysAddr {
        self.pmap.root_on(cpu).at
    }
}

impl<S> Pmap<S> {
    /// True if each CPU has upper page tables of its own.
    pub(crate) const fn has_directories(&self) -> bool {
        !self.locks.roots.is_empty()
    }

    fn root_on(&self, cpu: CpuId) -> Root {
        match self.locks.roots.get(cpu.0 as usize) {
            Some(root) => root_in(root, self.root().isolation),
            None => self.root(),
        }
    }

    /// After a fault of `cpu`, which runs this, at `va`: has its directory name the table in which the page is. Returns
    /// how many page-table pages that took.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn hook(&self, cpu: CpuId, hw: &impl Hardware, mem: &impl Memory, va: u64) -> Result<u32, Error> {
        let root = self.root_on(cpu);
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
        for cpu in (0..self.locks.roots.len() as u32).map(CpuId).filter(|&cpu| sharers.may_include(cpu)) {
            if let Some(at) = table::directory_entry(mem, self.root_on(cpu), va) {
                mem.store(at, 0);
            }
        }
    }

    /// No CPU has the space loaded: frees what CPUs have of their own.
    pub(crate) fn free_directories(&self, mem: &impl Memory) {
        self.locks.roots.iter().for_each(|root| free_directories(mem, root_in(root, self.root().isolation)));
    }
}

fn root_in(root: &AtomicU64, isolation: Isolation) -> Root {
    // Relaxed: as in `give_directories`.
    Root { at: PhysAddr(root.load(Ordering::Relaxed)), isolation }
}

fn free_directories(mem: &impl Memory, root: Root) {
    table::unhook_directories(mem, root, &mut |frame| mem.put(frame));
    mem.put(Frame { at: root.at, shift: root.shift() });
}

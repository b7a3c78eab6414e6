//! Upper page tables of each CPU's own, so that a flush interrupts only CPUs that can hold what it takes away. The rule
//! is at the head of `tlbkit`'s `flush/sharers.rs`; RadixVM and numaPTE are such kernels.
//!
//! A space begins like any other, and costs no more. Before its second thread starts, [`Vm::give_directories`] converts
//! it. The tables that it has are the master tree from then on: complete, and read by all that changes leaves, but
//! loaded by no CPU. Each CPU has a root, and tables below it down to the directories, whose entries name last-level
//! tables of the master tree: those below which this CPU has faulted. A fault that finds the page there and the
//! directory's entry missing only hooks the table.
//!
//! A CPU gets its root in its first fault. Until then it loads the empty root, which all CPUs share and which maps
//! nothing of the user half: so a switch needs no memory, and nothing is made for CPUs that the space never runs on.
//! Who reads the word with a CPU's root, and when:
//!
//! | who | when |
//! |---|---|
//! | [`Vm::root_on`] for this CPU, in a switch or an answer | interrupts are off |
//! | the fault that writes it, on this CPU alone | the same, and it loads the root at once |
//! | a fault that hooks a table | on this CPU |
//! | whoever takes a table out of all directories | the lock of the regions is held for writing, and by no fault |
//! | whoever frees the space | no CPU has it loaded, or ever will |
//!
//! The lock of the regions also orders the conversion with all that asks whether the space was converted, but for
//! [`Vm::root_on`].
//!
//! A fault begins at the CPU's own tables. If they lead to a last-level table, that is the one of the master tree, and
//! it stays: a CPU that takes a table out holds the lock of the regions for writing, and the fault holds it for
//! reading. So the fault looks at the leaf there, and again under the lock of the table, and neither walks the master
//! tree nor hooks anything. Each CPU that shares a table takes one fault more. Such a space takes two frames, a root
//! for each CPU that has run it, and 4 KiB for each GiB that a CPU uses. It has no large pages: their entries would
//! have to be changed in all directories at once.

use tlbkit::sync::{AtomicU32, AtomicU64, Ordering};
use tlbkit::{Cpu, CpuId, Hardware, PAGE_BYTES, PhysAddr, VirtAddr};
use tlbkit_arch::addr::TABLE_ENTRIES;
use tlbkit_arch::{Pte, entry_at};

use crate::error::Error;
use crate::memory::{Frame, Memory, Purpose};
use crate::pmap::Pmap;
use crate::pte;
use crate::table::{self, Entry, Found, Root};
use crate::vm::Vm;

/// The top-level tables of the CPUs, if the space was converted.
pub(crate) struct Directories {
    /// The frame with the address of each CPU's root, 0 as long as it has none; 0 if all CPUs walk the same tables.
    roots: AtomicU64,
    empty_root: AtomicU64,
    cpus: AtomicU32,
    /// Not 0 if a large page was ever mapped.
    had_large: AtomicU32,
    /// Not 0 if a last-level table may ever have been taken out.
    lost_tables: AtomicU32,
}

impl Directories {
    /// All CPUs walk the same tables.
    pub(crate) fn none() -> Self {
        Self {
            roots: AtomicU64::new(0),
            empty_root: AtomicU64::new(0),
            cpus: AtomicU32::new(0),
            had_large: AtomicU32::new(0),
            lost_tables: AtomicU32::new(0),
        }
    }

    /// Last-level tables are taken out, with the lock of the regions held for writing.
    pub(crate) fn note_lost_tables(&self) {
        // Relaxed: the lock of the regions orders it.
        self.lost_tables.store(1, Ordering::Relaxed);
    }

    /// True if no last-level table was ever taken out: where this CPU, which holds the lock of the regions, has found
    /// none there has been none.
    pub(crate) fn have_all_tables(&self) -> bool {
        self.lost_tables.load(Ordering::Relaxed) == 0 // Relaxed: as above
    }

    /// A large page is about to be mapped, with the lock of the regions held.
    pub(crate) fn note_large(&self, hw: &impl Hardware) {
        if hw.directories() == tlbkit::Directories::OfEachCpu {
            // Relaxed: the lock of the regions orders it.
            self.had_large.store(1, Ordering::Relaxed);
        }
    }

    fn roots(&self) -> Option<PhysAddr> {
        // Acquire: partner is the Release in `publish`: the frame is zeroed, and the empty root is known.
        Some(PhysAddr(self.roots.load(Ordering::Acquire))).filter(|roots| roots.0 != 0)
    }

    fn empty_root(&self) -> PhysAddr {
        PhysAddr(self.empty_root.load(Ordering::Relaxed)) // Relaxed: ordered by the Acquire in `roots`
    }

    /// CPUs that load the space from here on load the empty root.
    fn publish(&self, roots: PhysAddr, empty_root: PhysAddr, cpus: usize) {
        self.empty_root.store(empty_root.0, Ordering::Relaxed); // Relaxed: ordered by the Release below
        self.cpus.store(cpus as u32, Ordering::Relaxed); // Relaxed: likewise
        // Release: partner is the Acquire in `roots`.
        self.roots.store(roots.0, Ordering::Release);
    }
}

impl<S> Vm<'_, S> {
    /// Gives each CPU of the machine its own upper page tables in this space, by one flush of everything, if it has
    /// none yet: for a space that only the calling thread uses, and whose second thread is about to start. It may be
    /// called at any time. [`Hardware::root_here`] answers with [`root_on`](Self::root_on), and [`Memory::sharers`] is
    /// asked from then on.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::HadLargePages`]. The space goes on as it was.
    ///
    /// # Panics
    /// If the machine has more than 512 CPUs. As [`Cpu::reload_roots`].
    pub fn give_directories<H: Hardware<Set = S>>(&self, cpu: &Cpu<'_, '_, H>, mem: &impl Memory) -> Result<(), Error> {
        let _guard = self.lock.write(cpu.hardware());
        let (directories, cpus) = (&self.pmap.locks.directories, cpu.tlb().cpus());
        if directories.roots().is_some() {
            return Ok(());
        }
        assert!(
            cpus as u64 <= TABLE_ENTRIES,
            "{cpus} CPUs: no more than {TABLE_ENTRIES} have directories of their own"
        );
        // Relaxed: the lock of the regions orders it.
        if directories.had_large.load(Ordering::Relaxed) != 0 {
            return Err(Error::HadLargePages);
        }
        let roots = mem.alloc(12, Purpose::Table).ok_or(Error::OutOfMemory)?;
        let Some(empty_root) = self.pmap.make_root(mem) else {
            mem.put(roots);
            return Err(Error::OutOfMemory);
        };
        directories.publish(roots.at, empty_root, cpus);
        cpu.reload_roots(self.space());
        Ok(())
    }

    /// True if each CPU has its own upper page tables.
    #[must_use]
    pub fn has_directories(&self, hw: &impl Hardware) -> bool {
        self.pmap.has_directories(hw)
    }

    /// The top-level table that `cpu` loads.
    #[must_use]
    pub fn root_on(&self, mem: &impl Memory, cpu: CpuId) -> PhysAddr {
        let directories = &self.pmap.locks.directories;
        let Some(roots) = directories.roots() else { return self.space().root() };
        match mem.load(word_of(roots, cpu)) {
            0 => directories.empty_root(),
            own => PhysAddr(own),
        }
    }
}

const fn word_of(roots: PhysAddr, cpu: CpuId) -> PhysAddr {
    PhysAddr(roots.0 + 8 * cpu.0 as u64)
}

impl<S> Pmap<S> {
    /// True if each CPU has its own upper page tables. Nothing is read where the kernel gives none.
    pub(crate) fn has_directories(&self, hw: &impl Hardware) -> bool {
        hw.directories() == tlbkit::Directories::OfEachCpu && self.locks.directories.roots().is_some()
    }

    /// Another top-level table that maps nothing of the user half.
    fn make_root(&self, mem: &impl Memory) -> Option<PhysAddr> {
        let root = table::new_root(mem, self.root().at, self.root().isolation)?;
        mem.adopt_root(root.at, self.root().at);
        Some(root.at)
    }

    /// That of `cpu`, if it has one.
    fn own_root(&self, mem: &impl Memory, roots: PhysAddr, cpu: CpuId) -> Option<Root> {
        let at = PhysAddr(mem.load(word_of(roots, cpu)));
        (at.0 != 0).then_some(Root { at, isolation: self.root().isolation })
    }

    /// Makes this CPU's, and loads it.
    fn take_root<H: Hardware<Set = S>>(
        &self,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        roots: PhysAddr,
    ) -> Result<Root, Error> {
        let at = self.make_root(mem).ok_or(Error::OutOfMemory)?;
        cpu.hardware().with_irqs_off(|irqs| {
            mem.store(word_of(roots, cpu.id()), at.0);
            cpu.reload_root_here(self.space(), irqs);
        });
        Ok(Root { at, isolation: self.root().isolation })
    }

    /// Where the leaf of `va` lies, if this CPU, on which the space runs, has hooked the table. It stays there as long
    /// as the caller holds the lock of the regions.
    pub(crate) fn hooked_leaf<H: Hardware<Set = S>>(
        &self,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        va: u64,
    ) -> Option<PhysAddr> {
        let roots = self.locks.directories.roots().filter(|_| cpu.is_running(self.space()))?;
        let last = table::last_table(mem, self.own_root(mem, roots, cpu.id())?, va)?;
        Some(entry_at(last, VirtAddr(va), 1))
    }

    /// After a fault at `va` on this CPU, which has not hooked the table: has its directory name the table in which the
    /// page is, if the space runs here. Returns how many page-table pages that took.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn hook<H: Hardware<Set = S>>(
        &self,
        cpu: &Cpu<'_, '_, H>,
        mem: &impl Memory,
        va: u64,
    ) -> Result<u32, Error> {
        let Some(roots) = self.locks.directories.roots().filter(|_| cpu.is_running(self.space())) else { return Ok(0) };
        let (root, made) = match self.own_root(mem, roots, cpu.id()) {
            Some(root) => (root, 0),
            None => (self.take_root(cpu, mem, roots)?, 1),
        };
        let _guard = self.lock(cpu.hardware(), va);
        // If the page is gone again, the access faults again.
        let Found::Leaf(Entry { at, level: 1, .. }) = table::find(mem, self.root(), va) else { return Ok(made) };
        let (place, more) = table::create(mem, root, va, 2).ok_or(Error::OutOfMemory)?;
        let last = PhysAddr(at.0 & !(PAGE_BYTES - 1));
        mem.sharers(last).expect("a kernel whose CPUs have directories keeps the sharers of tables").hook(cpu.id());
        mem.store(place.at, Pte::new(last, pte::TABLE).0);
        Ok(made + more)
    }

    fn cpus(&self) -> impl Iterator<Item = CpuId> + use<S> {
        // Relaxed: the lock of the regions orders it, or the space has ended.
        (0..self.locks.directories.cpus.load(Ordering::Relaxed)).map(CpuId)
    }

    /// The last-level table at `last`, which maps from `va` on, is taken out: no directory names it any more. No CPU
    /// hooks tables meanwhile.
    pub(crate) fn unhook(&self, mem: &impl Memory, va: u64, last: PhysAddr) {
        let Some(roots) = self.locks.directories.roots() else { return };
        let Some(sharers) = mem.sharers(last) else { return };
        for cpu in self.cpus().filter(|&cpu| sharers.may_include(cpu)) {
            let root = self.own_root(mem, roots, cpu);
            if let Some(at) = root.and_then(|root| table::directory_entry(mem, root, va)) {
                mem.store(at, 0);
            }
        }
    }

    /// No CPU has the space loaded: frees what CPUs have of their own.
    pub(crate) fn free_directories(&self, mem: &impl Memory) {
        let Some(roots) = self.locks.directories.roots() else { return };
        for root in self.cpus().filter_map(|cpu| self.own_root(mem, roots, cpu)) {
            table::unhook_directories(mem, root, &mut |frame| mem.put(frame));
            mem.put(Frame { at: root.at, shift: root.shift() });
        }
        mem.put(Frame { at: self.locks.directories.empty_root(), shift: self.root().shift() });
        mem.put(Frame { at: roots, shift: 12 });
    }
}

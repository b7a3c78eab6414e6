//! The machine alone, without a kernel on it: driven by hand, it lists every outcome that an access can have.
//!
//! This is how the machine itself is tested: what x86-64 forbids must not be among the outcomes, what it permits must.

use tlbkit::{Cr3, Features, Invlpgb, Invpcid, Pcid, PhysAddr, VirtAddr};
use tlbkit_arch::{Pte, entry_at};

pub use crate::machine::observation::Exception;

use crate::finding::Finding;
use crate::machine::buffer::{Place, Store};
use crate::machine::memory::Use;
use crate::machine::touch::Touched;
use crate::machine::{Machine, MachineConfig};
use crate::oracle::{self, Oracles};
use crate::program::Access;
use crate::schedule::script::Script;
use crate::timeline::Log;

/// What a load can come to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Seen {
    /// The frame's value.
    Value(u64),
    /// A page fault.
    Fault,
}

/// A machine with empty tables.
pub struct Bare {
    machine: Machine,
}

const LEAF: u64 = Pte::PRESENT | Pte::USER | Pte::ACCESSED | Pte::DIRTY;
const INNER: u64 = LEAF | Pte::WRITE;

impl Bare {
    /// `cpus` CPUs that run nothing.
    #[must_use]
    pub fn new(cpus: usize, config: &MachineConfig) -> Self {
        let config = MachineConfig { cpus, ..*config };
        let (monitor, chooser) = (Box::new(Oracles::new(None)), Box::new(Script::new(Vec::new())));
        let mut machine = Machine::new(&config, tlbkit::Isolation::Off, monitor, chooser, Log::none());
        machine.is_live = true;
        Self { machine }
    }

    /// A new top-level table.
    ///
    /// # Panics
    /// If memory is exhausted; so do the other methods that need a frame.
    pub fn root(&mut self) -> u64 {
        self.machine.alloc(12, Use::Table).expect("a frame")
    }

    /// A new frame that holds `value`.
    pub fn frame(&mut self, value: u64) -> u64 {
        let at = self.machine.alloc(12, Use::Data).expect("a frame");
        self.machine.memory.write(at, value);
        at
    }

    /// Where the entry of `level` for `va` lies below `root`; tables on the way are made.
    pub fn entry(&mut self, root: u64, va: u64, level: u32) -> u64 {
        let mut table = root;
        for above in (level + 1..=4).rev() {
            let at = entry_at(PhysAddr(table), VirtAddr(va), above).0;
            if self.machine.memory.read(at) == 0 {
                let next = self.machine.alloc(12, Use::Table).expect("a frame");
                self.machine.write_physical(at, next | INNER, 0);
            }
            table = Pte(self.machine.memory.read(at)).frame().0;
        }
        entry_at(PhysAddr(table), VirtAddr(va), level).0
    }

    /// A leaf for `frame`; `bits` are added to those of a page that can be read.
    #[must_use]
    pub const fn leaf(frame: u64, bits: u64) -> u64 {
        frame | LEAF | bits
    }

    /// `cpu` stores `value` to the word at `at`, plainly.
    pub fn store(&mut self, cpu: usize, at: u64, value: u64) {
        self.machine.cpus[cpu].buffer.push(Store { to: Place::Physical(at), value, op: 0, user: None });
    }

    /// What `cpu` loads from the word at `at`.
    #[must_use]
    pub fn load_word(&self, cpu: usize, at: u64) -> u64 {
        let own = self.machine.cpus[cpu].buffer.forward(Place::Physical(at));
        own.unwrap_or_else(|| self.machine.memory.read(at))
    }

    /// The oldest store of `cpu` reaches memory.
    pub fn drain_one(&mut self, cpu: usize) {
        self.machine.drain_one(cpu);
    }

    /// MFENCE, or any locked operation.
    pub fn fence(&mut self, cpu: usize) {
        self.machine.current = cpu;
        self.machine.drain();
    }

    /// Walkers look at the page of `va` from now on.
    pub fn watch(&mut self, va: u64) {
        self.machine.watch(va);
    }

    /// From now on walks set the A bit of an entry before they cache anything of it, as Intel's manual has it.
    pub fn mark_first(&mut self) {
        self.machine.marks_first = true;
    }

    /// Walks set each A bit that they have found clear.
    pub fn mark_all(&mut self) {
        while self.machine.has_unaccessed() {
            self.machine.set_accessed(0);
        }
    }

    /// Everything that a load of `va` by `cpu` can come to.
    #[must_use]
    pub fn loads(&self, cpu: usize, va: u64) -> Vec<Seen> {
        self.outcomes(cpu, va, Access::Read)
    }

    /// Everything that a store to `va` by `cpu` can come to, named by what is overwritten.
    #[must_use]
    pub fn stores(&self, cpu: usize, va: u64) -> Vec<Seen> {
        self.outcomes(cpu, va, Access::Write)
    }

    fn outcomes(&self, cpu: usize, va: u64, access: Access) -> Vec<Seen> {
        let core = &self.machine.cpus[cpu];
        let usable: Vec<_> = core.tlb.usable(core.pcid, VirtAddr(va)).collect();
        let outcome =
            |may_access: bool, at| if may_access { Seen::Value(self.load_word(cpu, at)) } else { Seen::Fault };
        let seen = usable.iter().map(|entry| outcome(access == Access::Read || entry.rights.may_write, entry.frame.at));
        let mut all: Vec<_> = seen.collect();
        if usable.iter().all(|entry| entry.life.revoked.is_some()) {
            all.push(Seen::Fault);
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// `cpu` stores to `va` through the translation number `n` of those that it may use; false if that faults.
    pub fn touch(&mut self, cpu: usize, va: u64, n: u8) -> bool {
        self.machine.current = cpu;
        self.machine.chooser = Box::new(Script::new(vec![n]));
        self.machine.touch(0, va, Access::Write) == Touched::Done
    }

    /// MOV to CR3.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn load_cr3(&mut self, cpu: usize, cr3: Cr3) -> Result<(), Exception> {
        self.machine.current = cpu;
        self.machine.write_cr3(cpu, cr3)
    }

    /// MOV to CR3 of `root` under `pcid`, flushing what that PCID holds.
    ///
    /// # Panics
    /// If the machine refuses it.
    pub fn load(&mut self, cpu: usize, root: u64, pcid: u16) {
        self.load_cr3(cpu, Cr3::flushing(PhysAddr(root), Pcid(pcid))).expect("a CR3 that breaks no rule");
    }

    /// INVLPG.
    pub fn invlpg(&mut self, cpu: usize, va: u64) {
        self.machine.current = cpu;
        self.machine.invlpg(cpu, va);
    }

    /// INVPCID.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn invpcid(&mut self, cpu: usize, what: Invpcid) -> Result<(), Exception> {
        self.machine.current = cpu;
        self.machine.invpcid(cpu, what)
    }

    /// CR4.PGE off and on.
    pub fn toggle_pge(&mut self, cpu: usize) {
        self.machine.current = cpu;
        self.machine.toggle_pge(cpu);
    }

    /// CR4.PCIDE and what CPUID says of INVPCID.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn set_features(&mut self, cpu: usize, features: Features) -> Result<(), Exception> {
        self.machine.set_pcide(cpu, features)
    }

    /// INVLPGB.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn invlpgb(&mut self, cpu: usize, what: Invlpgb) -> Result<(), Exception> {
        self.machine.current = cpu;
        self.machine.invlpgb(cpu, what)
    }

    /// TLBSYNC.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn tlbsync(&mut self, cpu: usize) -> Result<(), Exception> {
        self.machine.current = cpu;
        self.machine.tlbsync(cpu)
    }

    /// INVLPGB and TLBSYNC by CPU 0.
    ///
    /// # Panics
    /// If the machine refuses them.
    pub fn broadcast(&mut self, what: Invlpgb) {
        self.invlpgb(0, what).and_then(|()| self.tlbsync(0)).expect("a broadcast that breaks no rule");
    }

    /// Gives a frame back, and looks whether a CPU can still walk it.
    pub fn free(&mut self, at: u64) -> Option<Finding> {
        self.machine.memory.free(at, 12);
        (0..self.machine.cpus.len()).find_map(|cpu| oracle::inspect(&self.machine, cpu))
    }
}

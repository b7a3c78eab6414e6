//! Stores on their way to memory, and what happens when they arrive.

use tlbkit::sync::Word;
use tlbkit_arch::Pte;

use super::Machine;
use super::buffer::{Place, Store};
use super::errata::Erratum;
use super::memory::Use;
use super::observation::Observation;
use super::words::write_word;

impl Machine {
    /// A plain store: it goes into the buffer, if steps are scheduled.
    pub(crate) fn store_later(&mut self, to: Place, value: u64) {
        let store = Store { to, value, op: self.cpus[self.current].op, user: None };
        if self.is_live {
            self.cpus[self.current].buffer.push(store);
        } else {
            self.arrive(&store);
        }
    }

    /// Writes the oldest store of `cpu`, if there is one, to memory.
    pub(crate) fn drain_one(&mut self, cpu: usize) -> Option<Store> {
        let store = self.cpus[cpu].buffer.pop()?;
        self.arrive(&store);
        Some(store)
    }

    /// A locked operation, a fence or a serialising instruction of the CPU that executes.
    pub(crate) fn drain(&mut self) {
        self.drain_cpu(self.current);
    }

    /// What `cpu` has stored so far arrives.
    pub(crate) fn drain_cpu(&mut self, cpu: usize) {
        while self.drain_one(cpu).is_some() {}
    }

    /// What programs of `cpu` have stored so far arrives, and what came before it.
    pub(crate) fn drain_programs(&mut self, cpu: usize) {
        while self.cpus[cpu].buffer.iter().any(|store| store.user.is_some()) {
            self.drain_one(cpu);
        }
    }

    /// What each CPU has stored so far arrives: a count that they have all lowered by locked operations is zero.
    pub(crate) fn drain_all(&mut self) {
        (0..self.cpus.len()).for_each(|cpu| self.drain_cpu(cpu));
    }

    /// A frame, if one is left. What was stored to it before it was given back has arrived: a CPU that takes a frame
    /// out of an allocator sees what was done by the CPU that put it there.
    pub(crate) fn alloc(&mut self, shift: u8, is: Use) -> Option<u64> {
        let first = self.memory.next_free(shift)?;
        let frame = first..first + (1 << shift);
        let is_into = |store: &Store| matches!(store.to, Place::Physical(at) if frame.contains(&at));
        for cpu in 0..self.cpus.len() {
            while self.cpus[cpu].buffer.iter().any(is_into) {
                self.drain_one(cpu);
            }
        }
        self.memory.alloc(shift, is)
    }

    fn arrive(&mut self, store: &Store) {
        match store.to {
            Place::Shared(word) => {
                write_word(word, store.value);
                self.record_change();
            }
            Place::Physical(at) => {
                self.report(&Observation::StoreArrives { at, store });
                if let Some(user) = store.user {
                    self.values.stored(user.space, user.va, store.value);
                }
                self.write_physical(at, store.value, store.op);
            }
        }
    }

    /// Writes a word of physical memory; walkers see it at once.
    pub(crate) fn write_physical(&mut self, at: u64, value: u64, op: u32) -> u64 {
        let before = self.memory.write(at, value);
        if self.memory.is_table(at) && before != value {
            self.report(&Observation::EntryChanged { at, before, op });
            self.age_entries(at, op);
            self.walk_everywhere();
        }
        self.record_change();
        before
    }

    /// A locked exchange by the CPU that executes.
    pub(crate) fn exchange_physical(&mut self, at: u64, value: u64) -> u64 {
        self.drain();
        let op = self.cpus[self.current].op;
        let before = self.write_physical(at, value, op);
        self.cpus[self.current].remember(before);
        if self.errata.has(Erratum::ExchangeHidesDirty) { Pte(before).without(Pte::DIRTY).0 } else { before }
    }

    /// What the CPU that executes reads at `at`.
    pub(crate) fn read_physical(&mut self, at: u64) -> u64 {
        let core = &mut self.cpus[self.current];
        let value = core.buffer.forward(Place::Physical(at)).unwrap_or_else(|| self.memory.read(at));
        core.remember(value);
        value
    }

    /// What the CPU that executes reads of its own pending stores to `word`.
    pub(crate) fn forward(&self, word: Word) -> Option<u64> {
        self.cpus[self.current].buffer.forward(Place::Shared(word))
    }

    /// True if a walk has found an A bit clear that is not set yet.
    pub(crate) fn has_unaccessed(&self) -> bool {
        !self.unaccessed.is_empty()
    }

    /// The hardware sets an A bit that a walk has found clear, unless the entry is gone.
    pub(crate) fn set_accessed(&mut self, index: usize) {
        let at = self.unaccessed.swap_remove(index);
        let pte = Pte(self.memory.read(at));
        if self.memory.is_table(at) && pte.has(Pte::PRESENT) {
            self.memory.write(at, pte.with(Pte::ACCESSED).0);
            if self.marks_first {
                self.walk_everywhere();
            }
        }
    }

    /// Shared memory has changed: a CPU that spins looks again.
    pub(crate) fn record_change(&mut self) {
        self.changes += 1;
        self.idle_rounds = 0;
    }
}

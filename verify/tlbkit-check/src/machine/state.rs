//! A digest of everything that decides what can happen from here on: two runs in the same state have the same future.
//!
//! What a CPU's code has in its registers and on its stack is decided by what it has read, so a digest of all that it
//! read, in order, stands for it.

use tlbkit::sync::Word;

use super::Machine;
use super::buffer::Place;
use super::core::Core;
use super::tlb::{Named, TlbEntry};
use super::words::read_word;
use crate::digest::mix;

impl Machine {
    /// The digest.
    pub(crate) fn digest(&mut self) -> u64 {
        let mut digest = mix(self.memory.digest(), self.values.digest());
        digest = mix(digest, u64::from(self.idle_rounds) | u64::from(self.unplanned) << 32);
        digest = self.words.iter().fold(digest, |digest, word| mix(digest, read_word(word)));
        digest = self.unaccessed.iter().fold(digest, |digest, at| mix(digest, *at));
        for cpu in 0..self.cpus.len() {
            digest = self.digest_core(digest, cpu);
        }
        mix(digest, self.current as u64)
    }

    fn digest_core(&mut self, mut digest: u64, cpu: usize) -> u64 {
        let core = &self.cpus[cpu];
        let spins = match core.spins_since {
            None => 0,
            Some(since) => 1 + u64::from(since == self.changes),
        };
        let flags = core.mode as u64
            | (core.irqs as u64) << 4
            | (core.progress as u64) << 8
            | spins << 12
            | (core.host as u64) << 16
            | u64::from(core.handles_nmi) << 20;
        for value in
            [core.history, flags, core.interrupts, core.root.at | u64::from(core.pcid.0), self.digest_tlb(core)]
        {
            digest = mix(digest, value);
        }
        for store in core.buffer.iter() {
            let place = match store.to {
                Place::Physical(at) => at,
                Place::Shared(word) => 1 << 63 | self.words.number(word) as u64,
            };
            digest = mix(mix(digest, place), store.value);
        }
        digest
    }

    /// Entries are a set: their order does not matter.
    fn digest_tlb(&self, core: &Core) -> u64 {
        let entries = core.tlb.entries.iter().map(|entry| self.digest_entry(entry));
        let paths = core.tlb.paths.iter().map(|path| {
            let place = mix(path.reach.start.0, u64::from(path.reach.level) << 32 | u64::from(path.reach.pcid.0));
            mix(mix(place, path.table.at), mix(u64::from(path.table.epoch) | path.named.0 << 32, path.root.at))
        });
        entries.chain(paths).fold(0, |sum, digest: u64| sum.wrapping_add(digest))
    }

    fn digest_entry(&self, entry: &TlbEntry) -> u64 {
        let (page, may_write) = (entry.page, entry.rights.may_write);
        let rights = u64::from(may_write) | u64::from(entry.is_dirty) << 1 | u64::from(page.is_global) << 2;
        let mut digest = mix(page.start.0, rights | u64::from(page.pcid.0) << 8 | u64::from(page.stride.shift()) << 32);
        for value in [entry.frame.at, u64::from(entry.frame.epoch), entry.pte_at, entry.root.at] {
            digest = mix(digest, value);
        }
        digest = if entry.named == Named::default() { digest } else { mix(digest, entry.named.0) };
        let Some(revoked) = entry.life.revoked else { return digest };
        // Which of the calls under way began after it: their return will promise that it is gone.
        let later = self.cpus.iter().enumerate().map(|(cpu, core)| {
            let began = self.ops[core.op as usize].began;
            u64::from(core.op == revoked.op) << (2 * cpu) | u64::from(revoked.step < began) << (2 * cpu + 1)
        });
        let later = later.fold(0, |bits, bit| bits | bit);
        // Which of those that go on later revoked it: that one's return will promise it too.
        let place = |core: &Core| core.suspended.iter().position(|&id| id == revoked.op).map_or(0, |n| n as u64 + 1);
        let later = self.cpus.iter().map(place).fold(later, |bits, place| bits << 4 | place);
        mix(mix(digest, 1 + u64::from(entry.life.promised_by.is_some())), later)
    }

    /// The CPU that executes is about to change the word at `address` by a locked operation, and learns what it holds:
    /// its low half, which is all of it unless a plain access has shown otherwise.
    pub(crate) fn learn_locked(&mut self, address: usize) {
        if self.chooser.records_states() {
            let number = self.words.number(Word { address, bytes: 4 });
            self.learn(read_word(self.words.get(number)));
        }
    }

    /// The CPU that executes reads or writes `word`.
    pub(crate) fn learn_word(&mut self, word: Word) {
        if self.chooser.records_states() {
            self.words.number(word);
        }
    }

    /// The CPU that executes has learnt `value` in a way that memory does not show.
    pub(crate) fn learn(&mut self, value: u64) {
        self.cpus[self.current].remember(value);
    }
}

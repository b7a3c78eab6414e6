//! Arrays of any other shape, in practice fully associative: 32 paging-structure entries, 64 to 96 first-level ones.
//!
//! A look-up first tries the way where the page was used last. LRU is the time of each way's last use: hits are many,
//! and noting one is a store.

use super::config::{ArrayConfig, ReplacementPolicy};
use super::entry::page_in;
use super::epochs::{Displaced, Epochs};
use super::replace::{tree_touched, tree_victim};
use super::slots::{Entries, Slots};

/// Guesses of one set.
const HINTS: usize = 256;

/// What is known of a set beside its entries.
#[derive(Clone, Debug)]
struct Set {
    /// Uses so far.
    now: u64,
    full_at: u32,
    tree: u64,
    /// Way of the last use, by low bits of the page number: only a guess.
    hints: [u8; HINTS],
}

/// An entry, and when it was used last.
#[derive(Clone, Copy, Debug)]
struct Slot {
    entry: (u64, u64),
    used: u64,
}

/// All sets of one array.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    ways: usize,
    policy: ReplacementPolicy,
    count: usize,
    /// None before the first fill, then `count`.
    sets: Vec<Set>,
    /// One set after the other.
    slots: Vec<Slot>,
}

impl Wide {
    pub(super) const fn new(policy: ReplacementPolicy, count: usize, ways: usize) -> Self {
        Self { ways, policy, count, sets: Vec::new(), slots: Vec::new() }
    }

    /// The data of `key`, which is noted as used.
    #[inline(always)]
    pub(super) fn lookup(&mut self, set: usize, key: u64) -> Option<u64> {
        let known = self.sets.get_mut(set)?;
        let guess = set * self.ways + usize::from(known.hints[hint_of(key)]);
        match self.slots.get_mut(guess) {
            Some(slot) if slot.entry.0 == key && self.policy == ReplacementPolicy::Lru => {
                slot.used = known.now;
                known.now += 1;
                Some(slot.entry.1)
            }
            _ => self.search_and_touch(set, key),
        }
    }

    #[inline(never)]
    fn search_and_touch(&mut self, set: usize, key: u64) -> Option<u64> {
        let slot = self.find(set, key)?;
        self.touch(set, slot, key);
        Some(self.slots[slot].entry.1)
    }

    /// The slot of `key`.
    pub(super) fn find(&self, set: usize, key: u64) -> Option<usize> {
        let base = set * self.ways;
        let guess = base + usize::from(self.sets.get(set)?.hints[hint_of(key)]);
        if self.slots[guess].entry.0 == key {
            return Some(guess);
        }
        self.of_set(set).iter().position(|slot| slot.entry.0 == key).map(|way| base + way)
    }

    fn of_set(&self, set: usize) -> &[Slot] {
        &self.slots[set * self.ways..][..self.ways]
    }

    /// Puts an entry in.
    pub(super) fn fill(&mut self, set: usize, entry: (u64, u64), epochs: &mut Epochs) -> Displaced {
        if self.sets.is_empty() {
            self.sets = vec![Set { now: 0, full_at: 0, tree: 0, hints: [0; HINTS] }; self.count];
            self.slots = vec![Slot { entry: (0, 0), used: 0 }; self.count * self.ways];
        }
        let mut room = None;
        if self.sets[set].full_at != epochs.changes() {
            room = self.search_dead(set, entry.0, entry.1, epochs);
        }
        let (way, displaced) = room.unwrap_or_else(|| (self.victim(set), Displaced::Living));
        let slot = set * self.ways + way;
        epochs.note_exchange(displaced, &self.slots[slot].entry, entry);
        self.slots[slot].entry = entry;
        self.touch(set, slot, entry.0);
        displaced
    }

    fn touch(&mut self, set: usize, slot: usize, key: u64) {
        let known = &mut self.sets[set];
        let way = slot - set * self.ways;
        known.hints[hint_of(key)] = way as u8;
        if self.policy == ReplacementPolicy::TreePlru {
            known.tree = tree_touched(known.tree, way, self.ways);
            return;
        }
        self.slots[slot].used = known.now;
        known.now += 1;
    }

    fn victim(&self, set: usize) -> usize {
        if self.policy == ReplacementPolicy::TreePlru {
            return tree_victim(self.sets[set].tree, self.ways);
        }
        let slots = self.of_set(set);
        (0..slots.len()).min_by_key(|&way| slots[way].used).expect("a set has ways")
    }
}

/// One set, which need not be looked for.
impl Entries for Wide {
    fn new(config: &ArrayConfig) -> Self {
        assert!(config.sets == 1, "a fully associative array has one set");
        Self::new(config.policy, 1, config.ways)
    }

    fn absent() -> Self {
        Self::new(ReplacementPolicy::Lru, 0, 1)
    }

    #[inline(always)]
    fn lookup(&mut self, _: u64, key: u64) -> Option<u64> {
        self.lookup(0, key)
    }

    fn find(&self, _: u64, key: u64) -> Option<usize> {
        self.find(0, key)
    }

    fn fill(&mut self, _: u64, key: u64, data: u64, epochs: &mut Epochs) -> Displaced {
        self.fill(0, (key, data), epochs)
    }

    fn slots(&self) -> &dyn Slots {
        self
    }

    fn slots_mut(&mut self) -> &mut dyn Slots {
        self
    }
}

#[inline(always)]
const fn hint_of(key: u64) -> usize {
    let page = page_in(key);
    ((page ^ page >> 8) as usize) % HINTS
}

impl Slots for Wide {
    fn len(&self) -> usize {
        self.slots.len()
    }

    fn ways(&self) -> usize {
        self.ways
    }

    fn entry(&self, slot: usize) -> (u64, u64) {
        self.slots[slot].entry
    }

    fn set_key(&mut self, slot: usize, key: u64) {
        self.slots[slot].entry.0 = key;
    }

    fn full_at(&mut self, set: usize) -> &mut u32 {
        &mut self.sets[set].full_at
    }
}

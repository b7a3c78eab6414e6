//! Arrays of any other shape, in practice fully associative: 32 paging-structure entries, 64 to 96 first-level ones.
//!
//! A look-up first tries the way where the page was used last, and then those whose prints agree, which lie side by
//! side. LRU is the time of each way's last use: hits are many, and noting one is a store.

use super::config::{ArrayConfig, ReplacementPolicy};
use super::entry::page_in;
use super::epochs::{Displaced, Epochs};
use super::replace::{tree_touched, tree_victim};
use super::slots::{self, CHUNK, Entries, Slots, find_way, print_of};

/// Guesses of one set.
const HINTS: usize = 256;
/// Room for the prints of a set: of the most ways that there are.
const CHUNKS: usize = 256 / CHUNK;

/// What is known of a set beside its entries. Most of what tells a miss lies in its first lines of the host.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Set {
    /// Uses so far.
    now: u64,
    tree: u64,
    /// The change number at which the first `alive` ways were found alive.
    alive_at: u32,
    alive: u32,
    /// Prints of the page numbers.
    prints: [[u8; CHUNK]; CHUNKS],
    /// Way of the last use, by low bits of the page number: only a guess.
    hints: [u8; HINTS],
}

impl Set {
    const UNUSED: Self =
        Self { now: 0, tree: 0, alive_at: 0, alive: 0, prints: [[0; CHUNK]; CHUNKS], hints: [0; HINTS] };

    #[inline(always)]
    fn print(&self, way: usize) -> u8 {
        self.prints.as_flattened()[way]
    }
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
        let guess = usize::from(known.hints[hint_of(key)]);
        if known.print(guess) != print_of(key) {
            return self.search_and_touch(set, key);
        }
        match self.slots.get_mut(set * self.ways + guess) {
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
        if self.sets.is_empty() {
            return None;
        }
        self.find_agreeing(set, key, |held| held.0 == key).map(|way| set * self.ways + way)
    }

    /// The first way whose print is that of the key and whose entry `is_wanted`.
    #[inline(always)]
    fn find_agreeing(&self, set: usize, key: u64, is_wanted: impl Fn((u64, u64)) -> bool) -> Option<usize> {
        let (prints, held) = (&self.sets[set].prints[..self.ways.div_ceil(CHUNK)], self.of_set(set));
        find_way(prints, key, |way| held.get(way).is_some_and(|slot| is_wanted(slot.entry)))
    }

    fn of_set(&self, set: usize) -> &[Slot] {
        &self.slots[set * self.ways..][..self.ways]
    }

    /// Puts an entry in.
    pub(super) fn fill(&mut self, set: usize, entry: (u64, u64), epochs: &mut Epochs) -> Displaced {
        if self.sets.is_empty() {
            self.sets = vec![Set::UNUSED; self.count];
            self.slots = vec![Slot { entry: (0, 0), used: 0 }; self.count * self.ways];
        }
        let (way, displaced) =
            self.search_dead(set, entry, epochs).unwrap_or_else(|| (self.victim(set), Displaced::Living));
        let slot = set * self.ways + way;
        epochs.note_exchange(displaced, &self.slots[slot].entry, entry);
        self.slots[slot].entry = entry;
        self.sets[set].prints[way / CHUNK][way % CHUNK] = print_of(entry.0);
        self.touch(set, slot, entry.0);
        displaced
    }

    /// The first way without a living entry. What was found alive still is until entries die in bulk, so a set that is
    /// filled way by way is gone through once. A dead entry of the very page and tag of `entry` is emptied, so that it
    /// is counted once.
    fn search_dead(&mut self, set: usize, entry: (u64, u64), epochs: &Epochs) -> Option<(usize, Displaced)> {
        let known = &self.sets[set];
        let alive = if known.alive_at == epochs.changes() { known.alive as usize } else { 0 };
        let mut living = slots::NO_STAMP;
        let dead = self.of_set(set)[alive..].iter().position(|slot| slots::is_dead(slot.entry, &mut living, epochs));
        let dead = dead.map(|beyond| alive + beyond);
        let displaced = match dead {
            Some(_) => self.bury_former(set, entry, epochs),
            None => Displaced::Nothing,
        };
        let known = &mut self.sets[set];
        known.alive_at = epochs.changes();
        // The way that was found is filled next.
        known.alive = dead.map_or(self.ways, |way| way + 1) as u32;
        dead.map(|way| (way, displaced))
    }

    /// Empties a dead entry of the page and the tag of `entry`.
    fn bury_former(&mut self, set: usize, entry: (u64, u64), epochs: &Epochs) -> Displaced {
        let Some(way) = self.find_agreeing(set, entry.0, |held| slots::is_former(held, entry, epochs)) else {
            return Displaced::Nothing;
        };
        self.slots[set * self.ways + way].entry.0 = 0;
        Displaced::FlushedSelf
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

    fn entry(&self, slot: usize) -> (u64, u64) {
        self.slots[slot].entry
    }

    fn set_key(&mut self, slot: usize, key: u64) {
        self.slots[slot].entry.0 = key;
    }

    fn note_emptied(&mut self, slot: usize) {
        let known = &mut self.sets[slot / self.ways];
        known.alive = known.alive.min((slot % self.ways) as u32);
    }
}

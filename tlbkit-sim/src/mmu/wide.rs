//! Arrays of any other shape, in practice fully associative: 32 paging-structure entries, 64 to 96 first-level ones.
//!
//! A look-up first tries the way where the page was used last. LRU is the time of each way's last use: hits are many,
//! and noting one is a store.

use super::array::Displaced;
use super::config::Policy;
use super::entry::page_in;
use super::epochs::Epochs;
use super::replace::{tree_touched, tree_victim};
use super::slots::Slots;

/// Guesses of one set.
const HINTS: usize = 256;

/// One set.
#[derive(Clone, Debug)]
struct Set {
    /// Keys and data.
    entries: Box<[(u64, u64)]>,
    /// When each way was used last.
    used: Box<[u64]>,
    /// Uses so far.
    now: u64,
    full_at: u32,
    tree: u64,
    /// Way of the last use, by low bits of the page number: only a guess.
    hints: Box<[u8; HINTS]>,
}

/// All sets of one array.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    ways: usize,
    policy: Policy,
    count: usize,
    /// None before the first fill, then `count`.
    sets: Vec<Set>,
}

impl Wide {
    pub(super) const fn new(policy: Policy, count: usize, ways: usize) -> Self {
        Self { ways, policy, count, sets: Vec::new() }
    }

    /// The data of `key`, which is noted as used.
    #[inline(always)]
    pub(super) fn lookup(&mut self, set: usize, key: u64) -> Option<u64> {
        let policy = self.policy;
        let set = self.sets.get_mut(set)?;
        let way = set.way_of(key)?;
        set.touch(way, key, policy);
        Some(set.entries[way].1)
    }

    /// The slot of `key`.
    pub(super) fn find(&self, set: usize, key: u64) -> Option<usize> {
        self.sets.get(set)?.way_of(key).map(|way| set * self.ways + way)
    }

    /// Puts an entry in.
    pub(super) fn fill(&mut self, set: usize, (key, data): (u64, u64), epochs: &mut Epochs) -> Displaced {
        if self.sets.is_empty() {
            self.sets = vec![Set::unused(self.ways); self.count];
        }
        let mut room = None;
        if self.sets[set].full_at != epochs.changes() {
            room = self.search_dead(set, key, data, epochs);
        }
        let policy = self.policy;
        let set = &mut self.sets[set];
        let (way, displaced) = room.unwrap_or_else(|| (set.victim(policy), Displaced::Living));
        set.put(way, displaced, (key, data), epochs);
        set.touch(way, key, policy);
        displaced
    }
}

impl Set {
    fn unused(ways: usize) -> Self {
        Self {
            entries: vec![(0, 0); ways].into(),
            used: vec![0; ways].into(),
            now: 0,
            full_at: 0,
            tree: 0,
            hints: Box::new([0; HINTS]),
        }
    }

    #[inline(always)]
    fn way_of(&self, key: u64) -> Option<usize> {
        let guess = usize::from(self.hints[hint_of(key)]);
        if self.entries[guess].0 == key { Some(guess) } else { self.search(key) }
    }

    #[inline(never)]
    fn search(&self, key: u64) -> Option<usize> {
        self.entries.iter().position(|&(held, _)| held == key)
    }

    fn put(&mut self, way: usize, displaced: Displaced, (key, data): (u64, u64), epochs: &mut Epochs) {
        let (held, held_data) = self.entries[way];
        epochs.note_exchange(displaced, held, &held_data, key, data);
        self.entries[way] = (key, data);
    }

    #[inline(always)]
    fn touch(&mut self, way: usize, key: u64, policy: Policy) {
        self.hints[hint_of(key)] = way as u8;
        if policy == Policy::TreePlru {
            self.tree = tree_touched(self.tree, way, self.entries.len());
            return;
        }
        self.used[way] = self.now;
        self.now += 1;
    }

    fn victim(&self, policy: Policy) -> usize {
        if policy == Policy::TreePlru {
            return tree_victim(self.tree, self.entries.len());
        }
        (0..self.used.len()).min_by_key(|&way| self.used[way]).expect("a set has ways")
    }
}

#[inline(always)]
const fn hint_of(key: u64) -> usize {
    let page = page_in(key);
    ((page ^ page >> 8) as usize) % HINTS
}

impl Slots for Wide {
    fn len(&self) -> usize {
        self.sets.len() * self.ways
    }

    fn ways(&self) -> usize {
        self.ways
    }

    fn entry(&self, slot: usize) -> (u64, u64) {
        self.sets[slot / self.ways].entries[slot % self.ways]
    }

    fn set_key(&mut self, slot: usize, key: u64) {
        self.sets[slot / self.ways].entries[slot % self.ways].0 = key;
    }

    fn full_at(&mut self, set: usize) -> &mut u32 {
        &mut self.sets[set].full_at
    }
}

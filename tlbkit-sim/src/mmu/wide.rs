//! Arrays of any other shape, in practice fully associative: 32 paging-structure entries, 64 to 96 first-level ones.
//!
//! A look-up first tries the way where the page was used last. LRU is a rank for each way, zero for the one used last:
//! noting a use adds one to all lower ranks, sixteen at a time.

use super::array::Displaced;
use super::config::Policy;
use super::epochs::Epochs;
use super::replace::{tree_touched, tree_victim};
use super::slots::Slots;

/// Guesses of one set.
const HINTS: usize = 256;
/// Ranks that are compared at once.
const LANES: usize = 16;

/// One set.
#[derive(Clone, Debug)]
struct Set {
    /// Keys and data.
    entries: Box<[(u64, u64)]>,
    /// How many ways were used after this one.
    ranks: Box<[[u8; LANES]]>,
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
    /// The last way is the first to be filled once dead ways are used up: it has the highest rank. Places beyond it
    /// rank higher still, and are never looked at.
    fn unused(ways: usize) -> Self {
        let rank_block = |block: usize| std::array::from_fn(|lane| (block * LANES + lane) as u8);
        Self {
            entries: vec![(0, 0); ways].into(),
            ranks: (0..ways.div_ceil(LANES)).map(rank_block).collect(),
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
        // Emptying a slot clears half of its key; what is left equals no key.
        self.entries.iter().position(|&(held, _)| held == key)
    }

    fn put(&mut self, way: usize, displaced: Displaced, (key, data): (u64, u64), epochs: &mut Epochs) {
        let (held, held_data) = self.entries[way];
        epochs.note_exchange(displaced, held as u32, &held_data, key, data);
        self.entries[way] = (key, data);
    }

    #[inline(always)]
    fn touch(&mut self, way: usize, key: u64, policy: Policy) {
        self.hints[hint_of(key)] = way as u8;
        if policy == Policy::TreePlru {
            self.tree = tree_touched(self.tree, way, self.entries.len());
            return;
        }
        let rank = self.ranks[way / LANES][way % LANES];
        for block in &mut self.ranks {
            let passed = |other: u8| if other == rank { 0 } else { other + u8::from(other < rank) };
            *block = block.map(passed);
        }
    }

    fn victim(&self, policy: Policy) -> usize {
        if policy == Policy::TreePlru {
            return tree_victim(self.tree, self.entries.len());
        }
        let last = (self.entries.len() - 1) as u8;
        let oldest = self.ranks.as_flattened().iter().position(|&rank| rank == last);
        oldest.expect("ranks are a permutation")
    }
}

#[inline(always)]
const fn hint_of(key: u64) -> usize {
    let page = key >> 32;
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

    fn set_rest(&mut self, slot: usize, rest: u32) {
        let key = &mut self.sets[slot / self.ways].entries[slot % self.ways].0;
        *key = *key >> 32 << 32 | u64::from(rest);
    }

    fn full_at(&mut self, set: usize) -> &mut u32 {
        &mut self.sets[set].full_at
    }
}

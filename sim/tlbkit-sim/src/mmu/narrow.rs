//! Arrays of up to 16 ways: the tags of a set are compared several at once.
//!
//! What tells a miss, and which way it replaces, lies in one line of the host: a print of each page number, and what
//! the policy knows. A whole key is looked at only where its print agrees.

use super::config::ReplacementPolicy;
use super::epochs::{Displaced, Epochs};
use super::replace::{stack_base, stack_rotated, stack_touched, stack_unused};
use super::replace::{tree_touched, tree_victim, trees_touched, trees_victim};
use super::slots::{self, CHUNK, Slots, Wanted, find_way, print_of};

/// The most ways that a set has here.
pub(super) const WAYS_MAX: usize = CHUNKS * CHUNK;
const CHUNKS: usize = 2;

/// One set. It has room for the most ways whatever the array's are: a way's number then needs no check.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Set {
    /// Prints of the page numbers.
    prints: [[u8; CHUNK]; CHUNKS],
    /// What the policy knows.
    order: u64,
    full_at: u32,
    /// Keys and data. A key is zero in an empty slot.
    entries: [(u64, u64); WAYS_MAX],
}

/// Which way of a set gives room.
#[derive(Clone, Copy, Debug)]
struct Replacement {
    policy: ReplacementPolicy,
    ways: usize,
    /// Where the stack begins that LRU keeps.
    base: u32,
}

/// All sets of one array.
#[derive(Clone, Debug)]
pub(super) struct Narrow {
    count: usize,
    how: Replacement,
    /// None before the first fill, then `count`.
    sets: Vec<Set>,
}

impl Narrow {
    pub(super) const fn new(policy: ReplacementPolicy, count: usize, ways: usize) -> Self {
        Self { count, how: Replacement { policy, ways, base: stack_base(ways) }, sets: Vec::new() }
    }

    /// The data of `key`, which is noted as used.
    #[inline(always)]
    pub(super) fn lookup(&mut self, set: usize, key: u64) -> Option<u64> {
        let held = self.sets.get_mut(set)?;
        if held.may_hold(key) { held.search_and_touch(key, &self.how) } else { None }
    }

    /// The slot of `key`.
    pub(super) fn find(&self, set: usize, key: u64) -> Option<usize> {
        self.sets.get(set)?.find(key).map(|way| set * self.how.ways + way)
    }

    /// Puts an entry in.
    #[inline(always)]
    pub(super) fn fill(&mut self, set: usize, entry: (u64, u64), epochs: &mut Epochs) -> Displaced {
        if let Some(held) = self.sets.get_mut(set)
            && held.full_at == epochs.changes()
        {
            let way = held.take_victim(&self.how);
            held.put(way, Displaced::Living, entry, epochs);
            return Displaced::Living;
        }
        self.fill_room(set, entry, epochs)
    }

    /// Fills a set that may have dead ways.
    #[inline(never)]
    fn fill_room(&mut self, set: usize, entry: (u64, u64), epochs: &mut Epochs) -> Displaced {
        if self.sets.is_empty() {
            self.sets = vec![Set::unused(&self.how); self.count];
        }
        let (how, held) = (&self.how, &mut self.sets[set]);
        let room = held.search_dead(entry, how.ways, epochs);
        let (way, displaced) = room.unwrap_or_else(|| (held.take_victim(how), Displaced::Living));
        held.touch(way, how);
        held.put(way, displaced, entry, epochs);
        displaced
    }
}

impl Set {
    fn unused(how: &Replacement) -> Self {
        let order = if how.policy == ReplacementPolicy::Lru { stack_unused(how.ways) } else { 0 };
        Self { prints: [[0; CHUNK]; CHUNKS], order, full_at: 0, entries: [(0, 0); WAYS_MAX] }
    }

    /// All ways are compared whatever is found.
    #[inline(always)]
    fn may_hold(&self, key: u64) -> bool {
        let wanted = Wanted::new(key);
        self.prints.iter().fold(0, |any, &prints| any | wanted.among(prints).0) != 0
    }

    /// Out of line: beside the search the compiler makes less of the comparison that tells a miss.
    #[inline(never)]
    fn search_and_touch(&mut self, key: u64, how: &Replacement) -> Option<u64> {
        let way = self.find(key)?;
        self.touch(way, how);
        Some(self.entries[way].1)
    }

    /// The way of `key`.
    #[inline(always)]
    fn find(&self, key: u64) -> Option<usize> {
        find_way(&self.prints, key, |way| self.entries[way].0 == key)
    }

    /// The first way without a living entry; if there is none, the set is marked as full. A dead entry of the very page
    /// and tag of `entry` is emptied, so that it is counted once.
    fn search_dead(&mut self, entry: (u64, u64), ways: usize, epochs: &Epochs) -> Option<(usize, Displaced)> {
        let mut living = slots::NO_STAMP;
        let Some(dead) = self.entries[..ways].iter().position(|&held| slots::is_dead(held, &mut living, epochs)) else {
            self.full_at = epochs.changes();
            return None;
        };
        let is_former = |way: usize| slots::is_former(self.entries[way], entry, epochs);
        let Some(former) = find_way(&self.prints, entry.0, is_former) else {
            return Some((dead, Displaced::Nothing));
        };
        self.entries[former].0 = 0;
        Some((dead, Displaced::FlushedSelf))
    }

    #[inline(always)]
    fn put(&mut self, way: usize, displaced: Displaced, entry: (u64, u64), epochs: &mut Epochs) {
        epochs.note_exchange(displaced, &self.entries[way], entry);
        self.entries[way] = entry;
        self.prints[way / CHUNK][way % CHUNK] = print_of(entry.0);
    }

    #[inline(always)]
    fn touch(&mut self, way: usize, how: &Replacement) {
        self.order = match how.policy {
            ReplacementPolicy::Lru => stack_touched(self.order, way, how.base),
            ReplacementPolicy::TreePlru => tree_touched(self.order, way, how.ways),
            ReplacementPolicy::RotatingPlru4 => trees_touched(self.order, way),
        };
    }

    /// The way that gives room; it is noted as used.
    #[inline(always)]
    fn take_victim(&mut self, how: &Replacement) -> usize {
        if how.policy == ReplacementPolicy::Lru {
            let (order, way) = stack_rotated(self.order, how.base);
            self.order = order;
            return way;
        }
        self.take_leaf(how)
    }

    /// What trees choose.
    #[inline(never)]
    fn take_leaf(&mut self, how: &Replacement) -> usize {
        let way = match how.policy {
            ReplacementPolicy::RotatingPlru4 => trees_victim(self.order),
            _ => tree_victim(self.order, how.ways),
        };
        self.touch(way, how);
        way
    }
}

impl Slots for Narrow {
    fn len(&self) -> usize {
        self.sets.len() * self.how.ways
    }

    fn entry(&self, slot: usize) -> (u64, u64) {
        self.sets[slot / self.how.ways].entries[slot % self.how.ways]
    }

    fn set_key(&mut self, slot: usize, key: u64) {
        self.sets[slot / self.how.ways].entries[slot % self.how.ways].0 = key;
    }

    fn note_emptied(&mut self, slot: usize) {
        self.sets[slot / self.how.ways].full_at = 0;
    }
}

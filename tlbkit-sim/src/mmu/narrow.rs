//! Arrays of 4, 8, 12 or 16 ways: a set is one block of memory of known size, compared several ways at once.
//!
//! What tells a miss, and which way it replaces, lies in one line of the host: the lowest bits of all page numbers, and
//! what the policy knows. A whole key is looked at only where those bits agree.

use super::array::Displaced;
use super::config::Policy;
use super::entry::page_in;
use super::epochs::Epochs;
use super::replace::{stack_rotated, stack_touched, tree_touched, tree_victim, trees_touched, trees_victim};
use super::slots::Slots;

/// The stack of a set that was never used: way n at place n.
const UNUSED_STACK: u64 = 0xfedc_ba98_7654_3210;

/// One set. The order of its fields is that of the lines that an access touches.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Set<const WAYS: usize> {
    /// The lowest bits of the page numbers.
    pages: [u16; WAYS],
    /// What the policy knows.
    order: u64,
    full_at: u32,
    /// Zero in an empty slot.
    keys: [u64; WAYS],
    data: [u64; WAYS],
}

/// All sets of one array.
#[derive(Clone, Debug)]
pub(super) struct Narrow<const WAYS: usize> {
    count: usize,
    /// None before the first fill, then `count`.
    sets: Vec<Set<WAYS>>,
    policy: Policy,
}

impl<const WAYS: usize> Narrow<WAYS> {
    pub(super) const fn new(policy: Policy, count: usize) -> Self {
        Self { count, sets: Vec::new(), policy }
    }

    /// The data of `key`, which is noted as used.
    #[inline(always)]
    pub(super) fn lookup(&mut self, set: usize, key: u64) -> Option<u64> {
        let policy = self.policy;
        let set = self.sets.get_mut(set)?;
        let way = set.way_of(key)?;
        set.touch(way, policy);
        Some(set.data[way])
    }

    /// The slot of `key`.
    pub(super) fn find(&self, set: usize, key: u64) -> Option<usize> {
        self.sets.get(set)?.way_of(key).map(|way| set * WAYS + way)
    }

    /// Puts an entry in.
    #[inline(always)]
    pub(super) fn fill(&mut self, set: usize, (key, data): (u64, u64), epochs: &mut Epochs) -> Displaced {
        let policy = self.policy;
        if let Some(held) = self.sets.get_mut(set)
            && held.full_at == epochs.changes()
        {
            let way = held.take_victim(policy);
            held.put(way, Displaced::Living, (key, data), epochs);
            return Displaced::Living;
        }
        self.fill_room(set, (key, data), epochs)
    }

    /// Fills a set that may have dead ways.
    #[inline(never)]
    fn fill_room(&mut self, set: usize, (key, data): (u64, u64), epochs: &mut Epochs) -> Displaced {
        let policy = self.policy;
        if self.sets.is_empty() {
            self.sets = vec![Set::unused(policy); self.count];
        }
        let room = self.search_dead(set, key, data, epochs);
        let set = &mut self.sets[set];
        let (way, displaced) = room.unwrap_or_else(|| (set.take_victim(policy), Displaced::Living));
        set.put(way, displaced, (key, data), epochs);
        set.touch(way, policy);
        displaced
    }
}

impl<const WAYS: usize> Set<WAYS> {
    fn unused(policy: Policy) -> Self {
        let order = if policy == Policy::Lru { UNUSED_STACK } else { 0 };
        Self { pages: [0; WAYS], order, full_at: 0, keys: [0; WAYS], data: [0; WAYS] }
    }

    /// All ways are compared whatever is found: without a branch per way the compiler does several at once. Only a set
    /// that may hold the page is looked at again.
    #[inline(always)]
    fn way_of(&self, key: u64) -> Option<usize> {
        let wanted = page_bits(key);
        if !self.pages.iter().fold(false, |any, &held| any | (held == wanted)) {
            return None;
        }
        self.keys.iter().position(|&held| held == key)
    }

    #[inline(always)]
    fn touch(&mut self, way: usize, policy: Policy) {
        self.order = match policy {
            Policy::Lru if self.order & 15 == way as u64 => return,
            Policy::Lru => stack_touched(self.order, way as u64),
            Policy::TreePlru => tree_touched(self.order, way, WAYS),
            Policy::RotatingPlru4 => trees_touched(self.order, way),
        };
    }

    /// The way that gives room; it is noted as used.
    #[inline(always)]
    fn take_victim(&mut self, policy: Policy) -> usize {
        let way = match policy {
            Policy::Lru => {
                let (order, way) = stack_rotated(self.order, WAYS);
                self.order = order;
                return way;
            }
            Policy::TreePlru => tree_victim(self.order, WAYS),
            Policy::RotatingPlru4 => trees_victim(self.order),
        };
        self.touch(way, policy);
        way
    }

    #[inline(always)]
    fn put(&mut self, way: usize, displaced: Displaced, (key, data): (u64, u64), epochs: &mut Epochs) {
        assert!(way < WAYS, "a policy names a way of the set");
        epochs.note_exchange(displaced, self.keys[way], &self.data[way], key, data);
        self.pages[way] = page_bits(key);
        self.keys[way] = key;
        self.data[way] = data;
    }
}

/// The lowest bits of the page number in a key.
#[inline(always)]
const fn page_bits(key: u64) -> u16 {
    page_in(key) as u16
}

impl<const WAYS: usize> Slots for Narrow<WAYS> {
    fn len(&self) -> usize {
        self.sets.len() * WAYS
    }

    fn ways(&self) -> usize {
        WAYS
    }

    fn entry(&self, slot: usize) -> (u64, u64) {
        let (set, way) = (&self.sets[slot / WAYS], slot % WAYS);
        (set.keys[way], set.data[way])
    }

    fn set_key(&mut self, slot: usize, key: u64) {
        self.sets[slot / WAYS].keys[slot % WAYS] = key;
    }

    fn full_at(&mut self, set: usize) -> &mut u32 {
        &mut self.sets[set].full_at
    }
}

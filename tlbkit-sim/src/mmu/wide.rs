//! Arrays of any other shape, in practice fully associative: 32 paging-structure entries, 64 to 96 first-level ones.
//!
//! A look-up first tries the way where the page was used last. LRU is a doubly linked list, so that noting a use costs
//! the same for 96 ways as for five.

use super::array::Displaced;
use super::config::Policy;
use super::epochs::Epochs;
use super::replace::{tree_touched, tree_victim};
use super::slots::Slots;

/// Guesses of one set.
const HINTS: usize = 256;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: u64,
    data: u64,
}

/// Neighbours in a list of ways: `newer` towards the most recently used.
#[derive(Clone, Copy, Debug)]
struct Link {
    newer: u8,
    older: u8,
}

/// What is known of a whole set.
#[derive(Clone, Debug)]
struct Set {
    newest: u8,
    oldest: u8,
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
    slots: Vec<Slot>,
    links: Vec<Link>,
    sets: Vec<Set>,
}

impl Wide {
    pub(super) fn new(policy: Policy, ways: usize) -> Self {
        Self { ways, policy, slots: Vec::new(), links: Vec::new(), sets: Vec::new() }
    }

    /// The data of `key`, which is noted as used.
    #[inline(always)]
    pub(super) fn lookup(&mut self, set: usize, key: u64) -> Option<u64> {
        let way = self.way_of(set, key)?;
        self.touch(set, way, key);
        Some(self.slots[set * self.ways + way].data)
    }

    /// The slot of `key`.
    pub(super) fn find(&self, set: usize, key: u64) -> Option<usize> {
        self.way_of(set, key).map(|way| set * self.ways + way)
    }

    #[inline(always)]
    fn way_of(&self, set: usize, key: u64) -> Option<usize> {
        let guess = usize::from(self.sets.get(set)?.hints[hint_of(key)]);
        if self.slots[set * self.ways + guess].key == key {
            return Some(guess);
        }
        self.search(set, key)
    }

    #[inline(never)]
    fn search(&self, set: usize, key: u64) -> Option<usize> {
        let slots = &self.slots[set * self.ways..(set + 1) * self.ways];
        // Emptying a slot clears half of its key; what is left equals no key.
        slots.iter().position(|slot| slot.key == key)
    }

    /// Puts an entry in; the array has `sets` sets.
    pub(super) fn fill(&mut self, sets: usize, set: usize, (key, data): (u64, u64), epochs: &mut Epochs) -> Displaced {
        if self.slots.is_empty() {
            self.allocate(sets);
        }
        let mut room = None;
        if self.sets[set].full_at != epochs.changes() {
            room = self.search_dead(set, key, data, epochs);
        }
        let (way, displaced) = room.unwrap_or_else(|| (self.victim(set), Displaced::Living));
        let slot = &mut self.slots[set * self.ways + way];
        epochs.note_exchange(displaced, slot.key as u32, &slot.data, key, data);
        *slot = Slot { key, data };
        self.touch(set, way, key);
        displaced
    }

    #[inline(always)]
    fn touch(&mut self, set: usize, way: usize, key: u64) {
        let state = &mut self.sets[set];
        state.hints[hint_of(key)] = way as u8;
        if self.policy == Policy::TreePlru {
            state.tree = tree_touched(state.tree, way, self.ways);
        } else if usize::from(state.newest) != way {
            self.move_to_front(set, way);
        }
    }

    fn victim(&self, set: usize) -> usize {
        match self.policy {
            Policy::TreePlru => tree_victim(self.sets[set].tree, self.ways),
            Policy::Lru | Policy::RotatingPlru4 => usize::from(self.sets[set].oldest),
        }
    }

    #[inline(always)]
    fn move_to_front(&mut self, set: usize, way: usize) {
        let links = &mut self.links[set * self.ways..(set + 1) * self.ways];
        let state = &mut self.sets[set];
        let Link { newer, older } = links[way];
        links[usize::from(newer)].older = older;
        if usize::from(state.oldest) == way {
            state.oldest = newer;
        } else {
            links[usize::from(older)].newer = newer;
        }
        links[way].older = state.newest;
        links[usize::from(state.newest)].newer = way as u8;
        state.newest = way as u8;
    }

    fn allocate(&mut self, sets: usize) {
        let last = (self.ways - 1) as u8;
        let hints = || Box::new([0; HINTS]);
        let set = || Set { newest: 0, oldest: last, full_at: 0, tree: 0, hints: hints() };
        let link = |way: usize| Link { newer: (way as u8).wrapping_sub(1), older: (way as u8).wrapping_add(1) };
        self.slots = vec![Slot::default(); sets * self.ways];
        self.links = (0..sets * self.ways).map(|slot| link(slot % self.ways)).collect();
        self.sets = (0..sets).map(|_| set()).collect();
    }
}

#[inline(always)]
const fn hint_of(key: u64) -> usize {
    let page = key >> 32;
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
        (self.slots[slot].key, self.slots[slot].data)
    }

    fn set_rest(&mut self, slot: usize, rest: u32) {
        let key = &mut self.slots[slot].key;
        *key = *key >> 32 << 32 | u64::from(rest);
    }

    fn full_at(&mut self, set: usize) -> &mut u32 {
        &mut self.sets[set].full_at
    }
}

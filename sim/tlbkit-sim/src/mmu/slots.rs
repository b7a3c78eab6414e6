//! What all arrays have in common: what a level asks of one, and slots that can be read, emptied and searched for the
//! dead.
//!
//! No default method here is on the path of a hit; each kind of array brings its own search and replacement.

use super::config::ArrayConfig;
use super::entry::{restamped, same_page, tag_of};
use super::epochs::{Displaced, Epochs};

/// Storage of entries: `sets` times `ways` slots, none before the first fill.
pub(super) trait Slots {
    /// Slots that exist.
    fn len(&self) -> usize;
    /// Slots of one set.
    fn ways(&self) -> usize;
    /// Key and data of a slot; the key is zero in an empty one.
    fn entry(&self, slot: usize) -> (u64, u64);
    /// Empties a slot, with zero, or gives the page in it another stamp.
    fn set_key(&mut self, slot: usize, key: u64);
    /// The change number at which all ways of a set were found alive.
    fn full_at(&mut self, set: usize) -> &mut u32;

    /// True if the slot holds an entry that translates.
    fn is_live(&self, slot: usize, epochs: &Epochs) -> bool {
        let (key, data) = self.entry(slot);
        key != 0 && epochs.is_live(key, data)
    }

    /// Empties a slot.
    fn clear(&mut self, slot: usize) {
        self.set_key(slot, 0);
        *self.full_at(slot / self.ways()) = 0;
    }

    /// The first way of `set` without a living entry; if there is none, the set is marked as full. A dead entry of the
    /// very page and tag that `key` and `data` are for is emptied, so that it is counted once.
    #[cold]
    fn search_dead(&mut self, set: usize, key: u64, data: u64, epochs: &Epochs) -> Option<(usize, Displaced)> {
        let base = set * self.ways();
        let (mut dead, mut displaced) = (None, Displaced::Nothing);
        for way in 0..self.ways() {
            if self.is_live(base + way, epochs) {
                continue;
            }
            dead = dead.or(Some(way));
            let (held, held_data) = self.entry(base + way);
            if held != 0 && same_page(held, key) && tag_of(held_data) == tag_of(data) {
                displaced = Displaced::FlushedSelf;
                self.set_key(base + way, 0);
            }
        }
        if dead.is_none() {
            *self.full_at(set) = epochs.changes();
        }
        dead.map(|way| (way, displaced))
    }

    /// Empties the living slots that `doomed` chooses by key and data, and says how many.
    fn remove_where(&mut self, epochs: &mut Epochs, doomed: &dyn Fn(u64, u64) -> bool) -> u32 {
        let mut lost = 0;
        for slot in 0..self.len() {
            let (key, data) = self.entry(slot);
            if self.is_live(slot, epochs) && doomed(key, data) {
                self.clear(slot);
                epochs.note_loss(data);
                lost += 1;
            }
        }
        lost
    }

    /// Empties dead slots: the first half of a renumbering.
    fn bury_dead(&mut self, epochs: &Epochs) {
        for slot in 0..self.len() {
            if !self.is_live(slot, epochs) {
                self.clear(slot);
            }
        }
    }

    /// Gives living entries the stamps that `epochs` has after a renumbering: the second half.
    fn restamp(&mut self, epochs: &Epochs) {
        for slot in 0..self.len() {
            let (key, data) = self.entry(slot);
            if key != 0 {
                self.set_key(slot, restamped(key, epochs.stamp_for(data)));
            }
        }
    }
}

/// What a level needs of an array.
pub(super) trait Entries {
    /// An empty array.
    fn new(config: &ArrayConfig) -> Self;
    /// An array for a kind that is not held: nothing is found in it, and nothing may be filled.
    fn absent() -> Self;
    /// The data of `key`, which is noted as used.
    fn lookup(&mut self, page: u64, key: u64) -> Option<u64>;
    /// The slot that holds `key`.
    fn find(&self, page: u64, key: u64) -> Option<usize>;
    /// Puts an entry in: into a dead way if the set has one, else where the policy says.
    fn fill(&mut self, page: u64, key: u64, data: u64, epochs: &mut Epochs) -> Displaced;
    /// The slots, for what is not on the path of a hit.
    fn slots(&self) -> &dyn Slots;
    /// The slots, to be changed.
    fn slots_mut(&mut self) -> &mut dyn Slots;

    /// Empties a slot that was found.
    fn remove(&mut self, slot: usize, epochs: &mut Epochs) {
        let slots = self.slots_mut();
        epochs.note_loss(slots.entry(slot).1);
        slots.clear(slot);
    }

    /// Keys and data of the living entries.
    fn living<'a>(&'a self, epochs: &'a Epochs) -> impl Iterator<Item = (u64, u64)> + 'a {
        let slots = self.slots();
        (0..slots.len()).filter(|&slot| slots.is_live(slot, epochs)).map(|slot| slots.entry(slot))
    }
}

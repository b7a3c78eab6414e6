//! What all arrays have in common: what a level asks of one, and slots that can be read, emptied and searched for the
//! dead.
//!
//! No default method here is on the path of a hit; each kind of array brings its own search and replacement.

use tlbkit_arch::random::GOLDEN;

use super::config::ArrayConfig;
use super::entry::{page_in, restamped, same_page, stamp_of, tag_of};
use super::epochs::{Displaced, Epochs};

/// Prints that are compared at once.
pub(super) const CHUNK: usize = 8;
/// One in each byte of a word.
const ONES: u64 = 0x0101_0101_0101_0101;

/// What of a key's page number is compared first: eight such prints in one step, and no branch for each. It depends on
/// all of the number, as a set holds pages that agree in their lowest bits.
#[inline(always)]
pub(super) const fn print_of(key: u64) -> u8 {
    (page_in(key).wrapping_mul(GOLDEN) >> 56) as u8
}

/// The print that is looked for, in each byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted(u64);

impl Wanted {
    #[inline(always)]
    pub(super) const fn new(key: u64) -> Self {
        Self(print_of(key) as u64 * ONES)
    }

    /// Where it is among these, and maybe above that where it is not.
    #[inline(always)]
    pub(super) const fn among(self, prints: [u8; CHUNK]) -> Agreeing {
        let differs = u64::from_le_bytes(prints) ^ self.0;
        Agreeing(differs.wrapping_sub(ONES) & !differs & (ONES << 7))
    }
}

/// Places of one chunk, a bit in the byte of each, the lowest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreeing(pub(super) u64);

impl Iterator for Agreeing {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let place = (self.0 != 0).then(|| self.0.trailing_zeros() / u8::BITS)?;
        self.0 &= self.0 - 1;
        Some(place as usize)
    }
}

/// The first way whose print is that of the key and that `is_wanted`.
#[inline(always)]
pub(super) fn find_way(prints: &[[u8; CHUNK]], key: u64, is_wanted: impl Fn(usize) -> bool) -> Option<usize> {
    let wanted = Wanted::new(key);
    let mut chunks = prints.iter().enumerate();
    chunks.find_map(|(chunk, prints)| {
        wanted.among(*prints).map(|place| chunk * CHUNK + place).find(|&way| is_wanted(way))
    })
}

/// True if the entry, a key and data, is there and translates.
#[inline(always)]
pub(super) fn translates((key, data): (u64, u64), epochs: &Epochs) -> bool {
    key != 0 && epochs.is_live(key, data)
}

/// No key has this stamp, and no empty slot.
pub(super) const NO_STAMP: u32 = u32::MAX;

/// The opposite, for one entry after the other: `living` is the stamp of the last one that was alive, and all of one
/// stamp are.
#[inline(always)]
pub(super) fn is_dead((key, data): (u64, u64), living: &mut u32, epochs: &Epochs) -> bool {
    if stamp_of(key) == *living {
        return false;
    }
    let is_dead = !translates((key, data), epochs);
    if !is_dead {
        *living = stamp_of(key);
    }
    is_dead
}

/// True if `held` is a dead entry of the page and the tag of `entry`: a flush took it.
#[inline(always)]
pub(super) fn is_former(held: (u64, u64), entry: (u64, u64), epochs: &Epochs) -> bool {
    held.0 != 0 && same_page(held.0, entry.0) && tag_of(held.1) == tag_of(entry.1) && !epochs.is_live(held.0, held.1)
}

/// Storage of entries: `sets` times `ways` slots, none before the first fill.
pub(super) trait Slots {
    /// Slots that exist.
    fn len(&self) -> usize;
    /// Key and data of a slot; the key is zero in an empty one.
    fn entry(&self, slot: usize) -> (u64, u64);
    /// Empties a slot, with zero, or gives the page in it another stamp.
    fn set_key(&mut self, slot: usize, key: u64);
    /// A slot of a set that may have been found full was emptied.
    fn note_emptied(&mut self, slot: usize);

    /// True if the slot holds an entry that translates.
    fn is_live(&self, slot: usize, epochs: &Epochs) -> bool {
        translates(self.entry(slot), epochs)
    }

    /// Empties a slot.
    fn clear(&mut self, slot: usize) {
        self.set_key(slot, 0);
        self.note_emptied(slot);
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

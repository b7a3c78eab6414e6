//! Which spaces a CPU's tags hold, and which tag to take for a new one.
//!
//! A slot says: "PCID slot + 1 holds translations of space `id`, flushed up to generation `g`". INV-8: PCID 0 is never
//! a slot's; kernel and user PCID differ in bit 11; a recycled slot is set to generation 0, which no space ever has, so
//! the load that follows must flush.
//!
//! A hint, indexed by the low bits of the id, makes finding a slot independent of its place: Linux scans, at about
//! seven instructions a slot.

use crate::address_space::{Generation, SpaceId};
use crate::hardware::Pcid;
use crate::sync::{Owned, OwnedByte};

/// Index of a slot: 0 ..= 14.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asid(pub(crate) u64);

/// Most slots that a CPU can have: in a table of 16 an index needs no check, and the last place holds what a search
/// looks for.
pub const MAX_SLOTS: usize = 15;

const HINTS: usize = 32;
/// In a hint: a slot whose space has this hint may be another than the one that it names. While it is not set, a space
/// that the hint does not know has no slot, and nothing need be searched.
const SHARED: u8 = 1 << 7;
/// In each hint of a CPU without tags, with [`SHARED`]: it has one slot, nothing to search, and its switches nothing to
/// do but to load.
const UNTAGGED: u8 = 1 << 6;
/// Room for 16 so that an index masked with 15 needs no check, and for what [`search`](Slots::search) looks for.
const ROOM: usize = 16;

impl Asid {
    /// The only slot of a CPU without tags.
    pub(crate) const ONLY: Self = Self(0);

    /// The tag of the kernel half.
    #[must_use]
    pub const fn pcid(self) -> Pcid {
        Pcid(self.0 as u16 + 1)
    }

    /// Index of the slot.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What stands at the hint of a space.
#[derive(Clone, Copy)]
pub(crate) struct Hint(u8);

impl Hint {
    /// A space that is not in the slot that it names has none.
    #[inline(always)]
    pub(crate) const fn is_sure(self) -> bool {
        self.0 & SHARED == 0
    }

    #[inline(always)]
    pub(crate) const fn is_untagged(self) -> bool {
        self.0 & UNTAGGED != 0
    }
}

/// One CPU's slots. Only their owner touches them, with interrupts off.
pub(crate) struct Slots {
    ids: [Owned; ROOM],
    generations: [Owned; ROOM],
    hints: [OwnedByte; HINTS],
    /// Every index once, the slot used last in the first place; see [`touch`](Self::touch).
    order: [OwnedByte; ROOM],
    next: OwnedByte,
    /// The highest slot in use.
    last: OwnedByte,
}

impl Slots {
    pub(crate) const fn new() -> Self {
        Self {
            ids: [const { Owned::new(0) }; ROOM],
            generations: [const { Owned::new(0) }; ROOM],
            hints: [const { OwnedByte::new(0) }; HINTS],
            order: [const { OwnedByte::new(0) }; ROOM],
            next: OwnedByte::new(0),
            last: OwnedByte::new(0),
        }
    }

    /// Forgets everything: this CPU has no tags.
    pub(crate) fn reset_untagged(&self) {
        self.reset(1);
        self.hints.iter().for_each(|hint| hint.set(SHARED | UNTAGGED));
    }

    /// Forgets everything: this CPU has no tags, and its switches have more to do than to load.
    pub(crate) fn reset_untagged_with_work(&self) {
        self.reset(1);
        self.hints.iter().for_each(|hint| hint.set(SHARED));
    }

    /// Forgets everything and uses `count` slots from now on.
    pub(crate) fn reset(&self, count: usize) {
        self.hints.iter().for_each(|hint| hint.set(0));
        let last = count - 1;
        for slot in 0..ROOM {
            self.ids[slot].set(0);
            self.generations[slot].set(0);
            // Slot 0 stands in the last place of those in use, so that it is taken first.
            self.order[slot].set(((last + ROOM - slot) % ROOM) as u8);
        }
        self.last.set(last as u8);
        self.next.set(0);
    }

    #[inline(always)]
    pub(crate) fn hint(&self, id: SpaceId) -> Hint {
        Hint(self.hints[id.0 as usize % HINTS].get())
    }

    /// The slot of `id`, if the hint knows it: five instructions, whatever its place.
    #[inline(always)]
    pub(crate) fn recall(&self, id: SpaceId) -> Option<Asid> {
        self.recall_by(self.hint(id), id)
    }

    /// The same by the hint of `id`, which was read before.
    #[inline(always)]
    pub(crate) fn recall_by(&self, hint: Hint, id: SpaceId) -> Option<Asid> {
        let slot = hint.0 % ROOM as u8;
        (self.ids[usize::from(slot)].get() == id.0).then_some(Asid(u64::from(slot)))
    }

    /// The slot of `id` where its hint names another.
    #[inline(always)]
    pub(crate) fn find(&self, id: SpaceId) -> Option<Asid> {
        if self.hint(id).is_sure() { None } else { self.search(id) }
    }

    #[inline(never)]
    pub(crate) fn search(&self, id: SpaceId) -> Option<Asid> {
        // Behind the last slot stands what is looked for, so that the search need not count.
        let end = (self.last.get() as usize + 1) % ROOM;
        self.ids[end].set(id.0);
        let slot = self.ids.iter().position(|held| held.get() == id.0).unwrap_or(end);
        self.ids[end].set(0);
        if slot == end {
            return None;
        }
        self.hints[id.0 as usize % HINTS].set(slot as u8 | SHARED);
        Some(Asid(slot as u64))
    }

    /// Takes the next slot in turn for `id`; what it held is gone (INV-8).
    #[inline(always)]
    pub(crate) fn take_in_turn(&self, id: SpaceId) -> Asid {
        let slot = self.next.get();
        self.next.set(if slot == self.last.get() { 0 } else { slot + 1 });
        self.assign(slot, id)
    }

    /// Takes the slot that was used longest ago for `id`; what it held is gone (INV-8).
    #[inline(always)]
    pub(crate) fn take_oldest(&self, id: SpaceId) -> Asid {
        let oldest = self.order[self.last.get() as usize % ROOM].get();
        self.assign(oldest, id)
    }

    #[inline(always)]
    fn assign(&self, slot: u8, id: SpaceId) -> Asid {
        let (index, hint) = (slot as usize % ROOM, &self.hints[id.0 as usize % HINTS]);
        let before = hint.get();
        // An empty slot looks like one of space 0; that costs a search in vain.
        let is_taken = (self.ids[before as usize % ROOM].get() ^ id.0).is_multiple_of(HINTS as u64);
        hint.set(slot | before & SHARED | if is_taken { SHARED } else { 0 });
        self.ids[index].set(id.0);
        self.generations[index].set(Generation::NEVER.0);
        Asid(u64::from(slot))
    }

    /// Gives the only slot of a CPU without tags to `id`, whose load drops what it held: it is current up to
    /// `generation` then. The hints stay: each names that slot.
    #[inline(always)]
    pub(crate) fn take_only(&self, id: SpaceId, generation: Generation) {
        self.ids[0].set(id.0);
        self.generations[0].set(generation.0);
    }

    /// The space in the only slot of a CPU without tags.
    #[inline(always)]
    pub(crate) fn only_id(&self) -> SpaceId {
        SpaceId(self.ids[0].get())
    }

    #[inline(always)]
    pub(crate) fn generation(&self, asid: Asid) -> Generation {
        Generation(self.generations[asid.0 as usize % ROOM].get())
    }

    #[inline(always)]
    pub(crate) fn set_generation(&self, asid: Asid, generation: Generation) {
        let slot = &self.generations[asid.0 as usize % ROOM];
        debug_assert!(slot.get() <= generation.0, "INV-3: a slot's generation never falls");
        slot.set(generation.0);
    }

    /// Makes the slot of `id` unusable, so that the next switch to it joins and flushes.
    pub(crate) fn forget(&self, id: SpaceId) {
        if let Some(asid) = self.recall(id).or_else(|| self.find(id)) {
            self.ids[asid.index()].set(0);
        }
    }

    /// Makes every slot but `kept` unusable: what a kernel-range flush owes the other tags under isolation.
    pub(crate) fn forget_others(&self, kept: Option<Asid>) {
        for slot in (0..=self.last.get() as usize).filter(|&s| kept.is_none_or(|k| k.index() != s)) {
            self.ids[slot].set(0);
        }
    }

    /// Records that `asid` is in use now: it goes to the first place, and those before it move on by one.
    #[inline(always)]
    pub(crate) fn touch(&self, asid: Asid) {
        let slot = asid.0 as u8;
        let mut moved = slot;
        for place in &self.order {
            let held = place.get();
            place.set(moved);
            if held == slot {
                return;
            }
            moved = held;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn slots(count: usize) -> Slots {
        let slots = Slots::new();
        slots.reset(count);
        slots
    }

    #[test]
    fn inv_8_a_recycled_slot_is_stale_and_never_pcid_0() {
        let slots = slots(2);
        for id in 1..=5 {
            let asid = slots.take_in_turn(SpaceId(id));
            assert_eq!(slots.generation(asid), Generation::NEVER);
            slots.set_generation(asid, Generation(7));
            assert_ne!(asid.pcid(), Pcid::KERNEL);
            assert_eq!(asid.pcid().user_half().0 ^ asid.pcid().0, Pcid::USER_BIT);
        }
        assert_eq!(slots.find(SpaceId(3)), None);
        assert!(slots.recall(SpaceId(5)).is_some());
    }

    #[test]
    fn a_hint_taken_by_another_space_is_found_by_search() {
        let slots = slots(3);
        let first = slots.take_in_turn(SpaceId(1));
        slots.take_in_turn(SpaceId(1 + HINTS as u64));
        assert_eq!(slots.recall(SpaceId(1)), None);
        assert_eq!(slots.find(SpaceId(1)), Some(first));
        assert_eq!(slots.recall(SpaceId(1)), Some(first));
    }

    #[test]
    fn an_id_never_matches_an_empty_slot() {
        let slots = slots(4);
        assert!((1..100).all(|id| slots.recall(SpaceId(id)).is_none() && slots.find(SpaceId(id)).is_none()));
    }

    #[test]
    fn the_oldest_is_recycled_first() {
        let slots = slots(3);
        for id in 1..=3 {
            let asid = slots.take_oldest(SpaceId(id));
            slots.touch(asid);
        }
        slots.touch(slots.recall(SpaceId(1)).unwrap());
        let taken = slots.take_oldest(SpaceId(4));
        assert_eq!(slots.find(SpaceId(2)), None);
        assert!(slots.recall(SpaceId(1)).is_some() && slots.recall(SpaceId(3)).is_some());
        assert!(taken.index() < 3);
    }

    #[test]
    fn a_search_leaves_nothing_behind_the_last_slot() {
        let slots = slots(MAX_SLOTS);
        assert_eq!(slots.search(SpaceId(7)), None);
        assert_eq!(slots.ids[MAX_SLOTS].get(), 0);
    }
}

//! A CPU's ASIDs: which spaces it keeps cached under a PCID, and which ASID to recycle for a new one.
//!
//! Each space has up to three numbers on a CPU. As in Linux each kind has its own name, because mixing them up is a
//! silent bug:
//! - the **ASID** ([`Asid`]) is an index in this CPU's table, 0 ..= 14. The hardware never sees it;
//! - the **kernel PCID** is ASID + 1: what CR3 holds in the kernel. PCID 0 never names a space (INV-8), so a forgotten
//!   "+ 1" shows at once;
//! - the **user PCID** is the kernel PCID with bit 11 set: what CR3 holds in user mode under page-table isolation.
//!
//! **The rule.** An entry of the table says: "under this ASID the TLB may hold translations of space `id`, and has been
//! flushed up to generation `g`". A recycled ASID starts at generation 0, which no space ever has, so the CR3 write
//! that follows must flush (INV-8). An id is never reused (INV-3), so an entry of a dead space is harmless.
//!
//! **Which ASID is recycled** by last use: the one that was used longest ago, unless spaces run in a ring that is
//! larger than the table. Last use would throw out just the space that runs next there, so that every switch flushes.
//! It shows in a run of switches to spaces that were forgotten a moment ago. From the [`RING_SEEN`]th on the space goes
//! that ran before the one that this CPU leaves: in a ring it is the one whose turn is furthest away.
//!
//! Finding an ASID does not depend on how many there are: a hint, indexed by the low bits of the id, says where to look
//! first. Linux scans its six at about seven instructions each.

use crate::hardware::Pcid;
use crate::space::{Generation, SpaceId};
use crate::sync::{Owned, OwnedByte};

/// Index in a CPU's table of recently used spaces: 0 ..= 14 (Linux: a dynamic ASID, 0 ..= 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asid(pub(crate) u64);

/// Most ASIDs that a CPU can have. In a table of 16 a masked index needs no bounds check, and the last place holds what
/// a search looks for.
pub const MAX_ASIDS: usize = 15;

const HINTS: usize = 32;
/// In a hint: several spaces share it, so a space that it does not lead to may have another ASID. While the bit is not
/// set, such a space has none, and nothing need be searched.
const SHARED: u8 = 1 << 7;
/// In every hint of a CPU without PCIDs, together with [`SHARED`].
const NO_PCID: u8 = 1 << 6;
/// How many spaces are remembered after their ASID was recycled. A ring is seen if it has up to that many spaces more
/// than there are ASIDs.
const FORGOTTEN: usize = 3;
/// So many switches in a row to a space that is among the [`FORGOTTEN`] are taken for a ring. Orders in which the
/// spaces that ran last are the likeliest to run next have such a row too seldom to matter (the tests below).
const RING_SEEN: u8 = 16;
/// Room for an index masked with 15, and for what [`search`](AsidTable::search) looks for.
const ROOM: usize = 16;

impl Asid {
    /// The only ASID of a CPU without PCIDs.
    pub(crate) const ONLY: Self = Self(0);

    /// The PCID of the kernel half.
    #[must_use]
    pub const fn pcid(self) -> Pcid {
        Pcid(self.0 as u16 + 1)
    }

    /// The index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the hint of a space says.
#[derive(Clone, Copy)]
pub(crate) struct Hint(u8);

impl Hint {
    /// True if a space to which the hint does not lead may have an ASID all the same.
    pub(crate) const fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    /// True on a CPU without PCIDs.
    pub(crate) const fn is_without_pcid(self) -> bool {
        self.0 & NO_PCID != 0
    }
}

/// One CPU's ASIDs. Only that CPU touches them, with interrupts off.
pub(crate) struct AsidTable {
    ids: [Owned; ROOM],
    generations: [Owned; ROOM],
    hints: [OwnedByte; HINTS],
    /// Every index once, the one used last in the first place; see [`touch`](Self::touch).
    order: [OwnedByte; ROOM],
    /// The low bytes of the ids whose ASIDs were recycled by last use, the last one in the first place. Whole ids would
    /// lengthen what a CPU has, and a wrong match decides nothing alone.
    forgotten: [OwnedByte; FORGOTTEN],
    /// How many recyclings in a row were for one of these, at most [`RING_SEEN`].
    returned: OwnedByte,
    next: OwnedByte,
    /// The highest index in use.
    last: OwnedByte,
}

impl AsidTable {
    /// The table of a CPU that was not brought up. It has no ASID, and each hint says that there may be one all the
    /// same: so a switch there takes the path that searches, which looks whether the CPU was brought up.
    pub(crate) const fn new() -> Self {
        Self {
            ids: [const { Owned::new(0) }; ROOM],
            generations: [const { Owned::new(0) }; ROOM],
            hints: [const { OwnedByte::new(SHARED) }; HINTS],
            order: [const { OwnedByte::new(0) }; ROOM],
            forgotten: [const { OwnedByte::new(0) }; FORGOTTEN],
            returned: OwnedByte::new(0),
            next: OwnedByte::new(0),
            last: OwnedByte::new(0),
        }
    }

    /// Forgets everything: this CPU has no PCIDs, and so one ASID.
    pub(crate) fn reset_without_pcid(&self) {
        self.reset(1);
        self.hints.iter().for_each(|hint| hint.set(SHARED | NO_PCID));
    }

    /// Forgets everything: this CPU goes offline, and its table is again a [`new`](Self::new) one.
    pub(crate) fn reset_offline(&self) {
        self.reset(1);
        self.hints.iter().for_each(|hint| hint.set(SHARED));
    }

    /// Forgets everything, and uses `count` ASIDs from now on.
    pub(crate) fn reset(&self, count: usize) {
        self.hints.iter().for_each(|hint| hint.set(0));
        let last = count - 1;
        for asid in 0..ROOM {
            self.ids[asid].set(0);
            self.generations[asid].set(0);
            // ASID 0 stands in the last place of those in use, so that it is recycled first.
            self.order[asid].set(((last + ROOM - asid) % ROOM) as u8);
        }
        self.forgotten.iter().for_each(|id| id.set(0));
        self.returned.set(0);
        self.last.set(last as u8);
        self.next.set(0);
    }

    #[inline(always)]
    pub(crate) fn hint(&self, id: SpaceId) -> Hint {
        Hint(self.hints[id.0 as usize % HINTS].get())
    }

    /// The ASID of `id`, if its `hint` leads there.
    #[inline(always)]
    pub(crate) fn recall(&self, hint: Hint, id: SpaceId) -> Option<Asid> {
        let asid = usize::from(hint.0) % ROOM;
        (self.ids[asid].get() == id.0).then_some(Asid(asid as u64))
    }

    /// The ASID of `id`, if it has one.
    fn find(&self, id: SpaceId) -> Option<Asid> {
        let hint = self.hint(id);
        self.recall(hint, id).or_else(|| if hint.is_shared() { self.search(id) } else { None })
    }

    /// Looks through the whole table for `id`, whose hint is shared and led to another space. If it is found, its hint
    /// leads there from now on.
    pub(crate) fn search(&self, id: SpaceId) -> Option<Asid> {
        // What is looked for stands behind the last ASID, so that the loop need not count.
        let end = (self.last.get() as usize + 1) % ROOM;
        self.ids[end].set(id.0);
        let asid = self.ids.iter().position(|held| held.get() == id.0).unwrap_or(end);
        self.ids[end].set(0);
        if asid == end {
            return None;
        }
        self.hints[id.0 as usize % HINTS].set(asid as u8 | SHARED);
        Some(Asid(asid as u64))
    }

    /// Recycles the next ASID in turn for `id`; whatever it named is forgotten (INV-8).
    #[inline(always)]
    pub(crate) fn recycle_in_turn(&self, id: SpaceId) -> Asid {
        let asid = self.next.get();
        self.next.set(if asid == self.last.get() { 0 } else { asid + 1 });
        self.assign(asid, id)
    }

    /// Recycles an ASID by last use for `id`, as stated above; whatever it named is forgotten (INV-8).
    #[inline(always)]
    pub(crate) fn recycle_by_use(&self, id: SpaceId) -> Asid {
        let returns = self.forgotten.iter().any(|forgotten| forgotten.get() == id.0 as u8);
        let returned = if returns { (self.returned.get() + 1).min(RING_SEEN) } else { 0 };
        self.returned.set(returned);
        let last = self.last.get();
        let place = if returned == RING_SEEN { last.min(1) } else { last };
        let asid = self.order[place as usize % ROOM].get();
        let mut moved = self.ids[asid as usize % ROOM].get() as u8;
        for forgotten in &self.forgotten {
            let held = forgotten.get();
            forgotten.set(moved);
            moved = held;
        }
        self.assign(asid, id)
    }

    #[inline(always)]
    fn assign(&self, asid: u8, id: SpaceId) -> Asid {
        let (index, hint) = (asid as usize % ROOM, &self.hints[id.0 as usize % HINTS]);
        let before = hint.get();
        // An unused ASID looks like one of space 0. That costs a search for nothing.
        let is_taken = (self.ids[before as usize % ROOM].get() ^ id.0).is_multiple_of(HINTS as u64);
        hint.set(asid | before & SHARED | if is_taken { SHARED } else { 0 });
        self.ids[index].set(id.0);
        self.generations[index].set(Generation::NEVER.0);
        Asid(u64::from(asid))
    }

    /// Gives the only ASID of a CPU without PCIDs to `id`. The CR3 write that follows drops all that it named, so it is
    /// current up to `generation` then. Every hint leads there already.
    pub(crate) fn assign_only(&self, id: SpaceId, generation: Generation) {
        self.ids[0].set(id.0);
        self.generations[0].set(generation.0);
    }

    #[inline(always)]
    pub(crate) fn generation(&self, asid: Asid) -> Generation {
        Generation(self.generations[asid.0 as usize % ROOM].get())
    }

    #[inline(always)]
    pub(crate) fn set_generation(&self, asid: Asid, generation: Generation) {
        let held = &self.generations[asid.0 as usize % ROOM];
        debug_assert!(held.get() <= generation.0, "INV-3: an ASID's generation never falls");
        held.set(generation.0);
    }

    /// Forgets the ASID of `id`, so that the next switch to it joins its CPU set and flushes.
    pub(crate) fn forget(&self, id: SpaceId) {
        if let Some(asid) = self.find(id) {
            self.ids[asid.index()].set(0);
        }
    }

    /// Forgets every ASID but `kept`: what a flush of kernel addresses owes the other PCIDs under isolation.
    pub(crate) fn forget_others(&self, kept: Option<Asid>) {
        for asid in (0..=self.last.get() as usize).filter(|&a| kept.is_none_or(|k| k.index() != a)) {
            self.ids[asid].set(0);
        }
    }

    /// Records that `asid` is in use now: it moves to the first place, and those before it move back by one.
    #[inline(always)]
    pub(crate) fn touch(&self, asid: Asid) {
        let used = asid.0 as u8;
        let mut moved = used;
        for place in &self.order {
            let held = place.get();
            place.set(moved);
            if held == used {
                return;
            }
            moved = held;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn table(count: usize) -> AsidTable {
        let table = AsidTable::new();
        table.reset(count);
        table
    }

    fn recalled(table: &AsidTable, id: SpaceId) -> Option<Asid> {
        table.recall(table.hint(id), id)
    }

    #[test]
    fn inv_8_a_recycled_asid_is_stale_and_never_pcid_0() {
        let table = table(2);
        for id in 1..=5 {
            let asid = table.recycle_in_turn(SpaceId(id));
            assert_eq!(table.generation(asid), Generation::NEVER);
            table.set_generation(asid, Generation(7));
            assert_ne!(asid.pcid(), Pcid::KERNEL);
            assert_eq!(asid.pcid().user_half().0 ^ asid.pcid().0, Pcid::USER_BIT);
        }
        assert_eq!(table.find(SpaceId(3)), None);
        assert!(recalled(&table, SpaceId(5)).is_some());
    }

    #[test]
    fn a_hint_taken_by_another_space_is_found_by_search() {
        let table = table(3);
        let first = table.recycle_in_turn(SpaceId(1));
        table.recycle_in_turn(SpaceId(1 + HINTS as u64));
        assert_eq!(recalled(&table, SpaceId(1)), None);
        assert_eq!(table.find(SpaceId(1)), Some(first));
        assert_eq!(recalled(&table, SpaceId(1)), Some(first));
    }

    #[test]
    fn an_id_never_matches_an_unused_asid() {
        let table = table(4);
        assert!((1..100).all(|id| recalled(&table, SpaceId(id)).is_none() && table.find(SpaceId(id)).is_none()));
    }

    #[test]
    fn the_oldest_is_recycled_first() {
        let table = table(3);
        for id in 1..=3 {
            let asid = table.recycle_by_use(SpaceId(id));
            table.touch(asid);
        }
        table.touch(recalled(&table, SpaceId(1)).unwrap());
        let taken = table.recycle_by_use(SpaceId(4));
        assert_eq!(table.find(SpaceId(2)), None);
        assert!(recalled(&table, SpaceId(1)).is_some() && recalled(&table, SpaceId(3)).is_some());
        assert!(taken.index() < 3);
    }

    /// How many of `order`'s switches flush on a CPU with six ASIDs.
    fn flushes(order: impl Iterator<Item = u64>) -> usize {
        let table = table(6);
        order
            .map(SpaceId)
            .filter(|&id| {
                let kept = table.find(id);
                table.touch(kept.unwrap_or_else(|| table.recycle_by_use(id)));
                kept.is_none()
            })
            .count()
    }

    /// The same if the ASID that was used longest ago is recycled whatever runs.
    fn flushes_by_last_use(order: impl Iterator<Item = u64>) -> usize {
        let mut kept = [0; 6];
        order
            .filter(|&id| {
                let place = kept.iter().position(|&held| held == id);
                kept[..=place.unwrap_or(5)].rotate_right(1);
                kept[0] = id;
                place.is_none()
            })
            .count()
    }

    fn ring(spaces: u64) -> impl Iterator<Item = u64> {
        (0..2000).map(move |turn| 1 + turn % spaces)
    }

    #[test]
    fn a_ring_larger_than_the_table_does_not_flush_at_each_switch() {
        // Belady's rule, which knows what comes, flushes at 17, 29 and 38 % of the switches.
        for (spaces, percent) in [(7, 21), (8, 35), (9, 44)] {
            assert_eq!(flushes_by_last_use(ring(spaces)), 2000);
            assert_eq!(flushes(ring(spaces)).div_ceil(20), percent, "a ring of {spaces}");
        }
        // One program, and after each time slice of it another one of eight.
        let daemons = || ring(8).flat_map(|daemon| [100, daemon]);
        assert!(2 * flushes(daemons()) < flushes_by_last_use(daemons()));
    }

    #[test]
    fn where_recent_spaces_are_the_likeliest_last_use_alone_decides() {
        let mut random = 1_u64;
        let skewed = [(); 2000].map(|()| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            1 + (random >> 60).min(random >> 56 & 15).min(random >> 52 & 15)
        });
        let pairs = (0..2000).map(|turn| 1 + turn % 2 + turn / 40 * 2);
        assert_eq!(flushes(skewed.into_iter()), flushes_by_last_use(skewed.into_iter()));
        assert_eq!(flushes(pairs.clone()), flushes_by_last_use(pairs));
    }

    #[test]
    fn a_search_leaves_nothing_behind_the_last_asid() {
        let table = table(MAX_ASIDS);
        assert_eq!(table.search(SpaceId(7)), None);
        assert_eq!(table.ids[MAX_ASIDS].get(), 0);
    }
}

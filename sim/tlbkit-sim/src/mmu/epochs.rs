//! Flushing in constant time: each tag's entries carry the stamp of the tag's present lifetime.
//!
//! Dropping all entries of a tag is forgetting its stamp; dropping those of all tags is raising a floor under which
//! every stamp is dead. The entries stay where they are and match nothing. Counts of what is alive are kept beside the
//! stamps, so a flush also knows how many entries it took without looking at one.

use super::entry::{GLOBAL, STAMP_MAX, stamp_of, tag_of};

/// What a fill displaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Displaced {
    /// Nothing that was alive.
    Nothing,
    /// Nothing that was alive, and the page itself had been here until a flush took it.
    FlushedSelf,
    /// A living entry.
    Living,
}

/// The lifetimes of all tags in one level of arrays.
#[derive(Clone, Debug)]
pub(super) struct Epochs {
    next: u32,
    floor: u32,
    changes: u32,
    global: Lifetime,
    tagged_live: u32,
    tags: Vec<Lifetime>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lifetime {
    stamp: u32,
    live: u32,
}

impl Epochs {
    pub(super) fn new() -> Self {
        let global = Lifetime { stamp: 1, live: 0 };
        Self { next: 2, floor: 0, changes: 1, global, tagged_live: 0, tags: Vec::new() }
    }

    /// Changes whenever entries died in bulk: a set that was full of living entries at this number still is.
    #[inline(always)]
    pub(super) fn changes(&self) -> u32 {
        self.changes
    }

    /// True if a stamp more would not fit into a key.
    pub(super) fn exhausted(&self) -> bool {
        self.next + 2 > STAMP_MAX
    }

    /// The stamp under which `tag` fills now; a tag whose entries were dropped begins a new lifetime.
    pub(super) fn stamp(&mut self, tag: u16) -> u32 {
        let index = usize::from(tag);
        if index >= self.tags.len() {
            self.tags.resize(index + 1, Lifetime::default());
        }
        if self.tags[index].stamp <= self.floor {
            self.tags[index] = Lifetime { stamp: self.next, live: 0 };
            self.next += 1;
        }
        self.tags[index].stamp
    }

    /// The stamp of `tag` if it may have entries.
    pub(super) fn living_stamp(&self, tag: u16) -> Option<u32> {
        (self.live(tag) > 0).then(|| self.tags[usize::from(tag)].stamp)
    }

    /// The stamp of global entries.
    #[inline(always)]
    pub(super) fn global_stamp(&self) -> u32 {
        self.global.stamp
    }

    /// Living entries of `tag`.
    pub(super) fn live(&self, tag: u16) -> u32 {
        self.tags.get(usize::from(tag)).filter(|life| life.stamp > self.floor).map_or(0, |life| life.live)
    }

    /// Living global entries.
    #[inline(always)]
    pub(super) fn live_globals(&self) -> u32 {
        self.global.live
    }

    /// Living entries of all tags and globals.
    pub(super) fn live_total(&self) -> u32 {
        self.tagged_live + self.global.live
    }

    /// True if the entry still translates.
    #[inline(always)]
    pub(super) fn is_live(&self, key: u64, data: u64) -> bool {
        let stamp = stamp_of(key);
        if data & GLOBAL != 0 {
            return stamp == self.global.stamp;
        }
        stamp > self.floor && self.tags[usize::from(tag_of(data))].stamp == stamp
    }

    /// One entry more.
    #[inline(always)]
    pub(super) fn note_fill(&mut self, data: u64) {
        if data & GLOBAL != 0 {
            self.global.live += 1;
        } else {
            self.tags[usize::from(tag_of(data))].live += 1;
            self.tagged_live += 1;
        }
    }

    /// An entry, key and data, takes the place of another. One for one under the same stamp, the usual case, leaves all
    /// counts as they are.
    #[inline(always)]
    pub(super) fn note_exchange(&mut self, displaced: Displaced, old: &(u64, u64), new: (u64, u64)) {
        if displaced == Displaced::Living {
            if stamp_of(old.0) == stamp_of(new.0) {
                return;
            }
            self.note_loss(old.1);
        }
        self.note_fill(new.1);
    }

    /// One living entry less.
    #[inline(always)]
    pub(super) fn note_loss(&mut self, data: u64) {
        if data & GLOBAL != 0 {
            self.global.live -= 1;
        } else {
            self.tags[usize::from(tag_of(data))].live -= 1;
            self.tagged_live -= 1;
        }
    }

    /// Drops the entries of one tag, not the globals, and says how many there were.
    pub(super) fn drop_tag(&mut self, tag: u16) -> u32 {
        let lost = self.live(tag);
        if lost > 0 {
            self.tags[usize::from(tag)] = Lifetime::default();
            self.tagged_live -= lost;
            self.changes = self.changes.wrapping_add(1).max(1);
        }
        lost
    }

    /// Drops the entries of all tags, not the globals.
    pub(super) fn drop_tagged(&mut self) -> u32 {
        let lost = self.tagged_live;
        if lost > 0 {
            self.floor = self.next - 1;
            self.tagged_live = 0;
            self.changes = self.changes.wrapping_add(1).max(1);
        }
        lost
    }

    /// Drops the globals.
    pub(super) fn drop_globals(&mut self) -> u32 {
        let lost = self.global.live;
        if lost > 0 {
            self.global = Lifetime { stamp: self.next, live: 0 };
            self.next += 1;
            self.changes = self.changes.wrapping_add(1).max(1);
        }
        lost
    }

    /// Hands out stamps from the beginning again. The caller has emptied dead slots and re-keys the others from the
    /// answer of [`Self::stamp_for`].
    pub(super) fn renumber(&mut self) {
        let mut next = 2;
        for life in &mut self.tags {
            if life.stamp <= self.floor || life.live == 0 {
                *life = Lifetime::default();
            } else {
                life.stamp = next;
                next += 1;
            }
        }
        self.global.stamp = 1;
        (self.next, self.floor) = (next, 0);
        self.changes = self.changes.wrapping_add(1).max(1);
    }

    /// The stamp that a living entry with this data carries.
    pub(super) fn stamp_for(&self, data: u64) -> u32 {
        if data & GLOBAL != 0 { self.global.stamp } else { self.tags[usize::from(tag_of(data))].stamp }
    }
}

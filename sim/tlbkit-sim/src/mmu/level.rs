//! Several arrays that share the lifetimes of tags: the first level, the second level, the paging-structure caches.
//!
//! Arrays of a level are chosen by *kind*: the page size in the two TLB levels, the table level in the third. An array
//! lies at the place of the smallest kind that it holds, so base pages need not ask where.

use tlbkit::VirtAddr;

use super::array::Array;
use super::config::ArrayConfig;
use super::entry::{GLOBAL, PageSize, Spot, span_of};
use super::epochs::{Displaced, Epochs};
use super::slots::Entries;

const KINDS: usize = PageSize::ALL.len();

/// Arrays, lifetimes, and the stamp of the loaded tag.
#[derive(Clone, Debug)]
pub(super) struct Level<A = Array> {
    /// By the smallest kind held.
    arrays: [A; KINDS],
    /// The place of each kind's array.
    places: [u8; KINDS],
    /// Bit per kind that an array holds.
    held: u8,
    /// An entry of another kind than the smallest was filled once: until then none need be looked for.
    has_larger: bool,
    epochs: Epochs,
    tag: u16,
    stamp: u32,
    recent: Recent,
}

/// The base page that was used last, of the loaded tag or a global one: what its set would say is known, and its entry
/// is the latest of the set already.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// All bits of the address above the page, so a page that matches is canonical too.
    page: u64,
    data: u64,
}

impl Recent {
    /// No page has this number.
    const NOTHING: Self = Self { page: u64::MAX, data: 0 };

    #[inline(always)]
    const fn page_of(va: VirtAddr) -> u64 {
        va.0 >> PageSize::Small.shift()
    }
}

/// Where an entry is.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryPlace {
    array: u8,
    slot: u32,
}

impl<A: Entries> Level<A> {
    pub(super) fn new(configs: &[ArrayConfig]) -> Self {
        let (mut arrays, mut places, mut held) = ([(); KINDS].map(|()| A::absent()), [0, 1, 2], 0_u8);
        for config in configs {
            let Some(&place) = config.holds.iter().min() else { continue };
            for &size in &config.holds {
                assert!(held >> size as u8 & 1 == 0, "one array per page size and level");
                held |= 1 << size as u8;
                places[size as usize] = place as u8;
            }
            arrays[place as usize] = A::new(config);
        }
        let mut epochs = Epochs::new();
        let stamp = epochs.stamp(0);
        Self { arrays, places, held, has_larger: false, epochs, tag: 0, stamp, recent: Recent::NOTHING }
    }

    /// True if an array of this level holds the kind.
    pub(super) fn holds(&self, kind: PageSize) -> bool {
        self.held >> kind as u8 & 1 == 1
    }

    pub(super) fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// True if an entry of another kind than the smallest was ever filled.
    #[inline(always)]
    pub(super) fn has_larger(&self) -> bool {
        self.has_larger
    }

    /// The data of the base page around `va` if it was remembered last.
    #[inline(always)]
    pub(super) fn lookup_again(&self, va: VirtAddr) -> Option<u64> {
        (self.recent.page == Recent::page_of(va)).then_some(self.recent.data)
    }

    /// The base page around `va`, with this data, was used last.
    #[inline(always)]
    pub(super) fn remember(&mut self, va: VirtAddr, data: u64) {
        self.recent = Recent { page: Recent::page_of(va), data };
    }

    /// The stamp under which an entry with this data lives.
    #[inline(always)]
    fn stamp_of(&self, data: u64) -> u32 {
        if data & GLOBAL == 0 { self.stamp } else { self.global_stamp() }
    }

    /// Out of line, so that the other stamp is not chosen by arithmetic.
    #[cold]
    fn global_stamp(&self) -> u32 {
        self.epochs.global_stamp()
    }

    /// The data of the page under the loaded tag, or else among the globals; noted as used.
    #[inline(always)]
    pub(super) fn lookup(&mut self, spot: Spot) -> Option<u64> {
        if let Some(data) = self.lookup_stamped(spot, self.stamp) {
            return Some(data);
        }
        if self.epochs.live_globals() == 0 { None } else { self.lookup_global(spot) }
    }

    #[cold]
    fn lookup_global(&mut self, spot: Spot) -> Option<u64> {
        self.lookup_stamped(spot, self.epochs.global_stamp())
    }

    #[inline(always)]
    fn lookup_stamped(&mut self, spot: Spot, stamp: u32) -> Option<u64> {
        let place = self.place_of(spot);
        self.arrays[place].lookup(spot.page, spot.key(stamp))
    }

    #[inline(always)]
    fn place_of(&self, spot: Spot) -> usize {
        match spot.kind() {
            0 => 0,
            larger => usize::from(self.places[larger]),
        }
    }

    /// Looks under one given tag, loaded or not, and not among the globals.
    pub(super) fn find_tagged(&self, spot: Spot, tag: u16) -> Option<EntryPlace> {
        self.find_stamped(spot, self.epochs.living_stamp(tag)?)
    }

    /// Looks among the globals only.
    pub(super) fn find_global(&self, spot: Spot) -> Option<EntryPlace> {
        if self.epochs.live_globals() == 0 {
            return None;
        }
        self.find_stamped(spot, self.epochs.global_stamp())
    }

    fn find_stamped(&self, spot: Spot, stamp: u32) -> Option<EntryPlace> {
        if spot.kind() > 0 && !self.has_larger {
            return None;
        }
        let array = self.place_of(spot);
        let slot = self.arrays[array].find(spot.page, spot.key(stamp))?;
        Some(EntryPlace { array: array as u8, slot: slot as u32 })
    }

    /// Puts an entry in under the loaded tag, or as a global if its data says so. The kind must be held.
    #[inline(always)]
    pub(super) fn fill(&mut self, spot: Spot, data: u64) -> Displaced {
        debug_assert!(self.held >> spot.kind() & 1 == 1, "an array holds the kind");
        self.has_larger |= spot.kind() > 0;
        let (place, key) = (self.place_of(spot), spot.key(self.stamp_of(data)));
        self.arrays[place].fill(spot.page, key, data, &mut self.epochs)
    }

    /// Takes an entry out.
    pub(super) fn remove(&mut self, place: EntryPlace) {
        self.recent = Recent::NOTHING;
        self.arrays[usize::from(place.array)].remove(place.slot as usize, &mut self.epochs);
    }

    /// Takes the entries of all sizes out that translate `va` under `tag`, and with `globals` also the global ones.
    pub(super) fn remove_page(&mut self, va: VirtAddr, tag: u16, globals: Globals) -> u32 {
        let mut lost = 0;
        for size in PageSize::ALL {
            let spot = Spot::of(va, size);
            if let Some(place) = self.find_tagged(spot, tag) {
                self.remove(place);
                lost += 1;
            }
            if globals == Globals::Too
                && let Some(place) = self.find_global(spot)
            {
                self.remove(place);
                lost += 1;
            }
        }
        lost
    }

    /// Takes out what `doomed` chooses by key and data.
    pub(super) fn remove_where(&mut self, doomed: impl Fn(u64, u64) -> bool) -> u32 {
        self.recent = Recent::NOTHING;
        let epochs = &mut self.epochs;
        self.arrays.iter_mut().map(|array| array.slots_mut().remove_where(epochs, &doomed)).sum()
    }

    /// True if a living entry overlaps base pages `first ..= last` and `wanted` accepts its data.
    pub(super) fn any_within(&self, first: u64, last: u64, wanted: impl Fn(u64) -> bool) -> bool {
        let overlaps = |key| {
            let (from, to) = span_of(key);
            from <= last && to >= first
        };
        self.living().any(|(key, data)| overlaps(key) && wanted(data))
    }

    /// Keys and data of the living entries.
    pub(super) fn living(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.arrays.iter().flat_map(|array| array.living(&self.epochs))
    }

    /// Makes `tag` the loaded one.
    pub(super) fn load(&mut self, tag: u16) {
        self.tag = tag;
        self.renew();
    }

    /// Drops the entries of one tag.
    pub(super) fn drop_tag(&mut self, tag: u16) -> u32 {
        let lost = self.epochs.drop_tag(tag);
        self.renew();
        lost
    }

    /// Drops the entries of all tags, and with `globals` the global ones too.
    pub(super) fn drop_all(&mut self, globals: Globals) -> u32 {
        let mut lost = self.epochs.drop_tagged();
        if globals == Globals::Too {
            lost += self.epochs.drop_globals();
        }
        self.renew();
        lost
    }

    /// Fetches the stamp of the loaded tag, which a flush may have ended.
    fn renew(&mut self) {
        self.recent = Recent::NOTHING;
        if self.epochs.exhausted() {
            self.arrays.iter_mut().for_each(|array| array.slots_mut().bury_dead(&self.epochs));
            self.epochs.renumber();
            self.arrays.iter_mut().for_each(|array| array.slots_mut().restamp(&self.epochs));
        }
        self.stamp = self.epochs.stamp(self.tag);
    }
}

/// Whether an operation covers global entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Globals {
    /// They stay.
    Stay,
    /// They go too.
    Too,
}

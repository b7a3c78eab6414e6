//! Says which pages of a space have a frame, and which frame that is. A program mostly touches neighbouring pages, so
//! 32 neighbours share an entry of the map.

use super::frames::Frame;
use std::collections::BTreeMap;
use std::ops::Range;

/// How many pages share an entry.
const GROUP: u64 = 32;
/// The number that stands for [`Frame::Borrowed`]. There are never so many frames.
const BORROWED: u32 = u32::MAX;

/// The frames of neighbouring pages.
#[derive(Clone)]
struct Group {
    /// A bit for each page that has a frame. At least one bit is set.
    present: u32,
    frames: [u32; GROUP as usize],
}

impl Group {
    const EMPTY: Self = Self { present: 0, frames: [0; GROUP as usize] };

    fn frame(&self, place: u32) -> Frame {
        match self.frames[place as usize] {
            BORROWED => Frame::Borrowed,
            number => Frame::Own(number),
        }
    }

    fn set(&mut self, place: u32, frame: Frame) {
        self.present |= 1 << place;
        self.frames[place as usize] = match frame {
            Frame::Borrowed => BORROWED,
            Frame::Own(number) => number,
        };
    }

    /// The pages whose bits are set in `present`, with their frames, if this is the group with this number.
    fn each(&self, number: u64, present: u32) -> impl Iterator<Item = (u64, Frame)> {
        bits(present).map(move |place| (number * GROUP + u64::from(place), self.frame(place)))
    }
}

/// The frames of the pages of one space.
#[derive(Default)]
pub(super) struct FrameMap {
    groups: BTreeMap<u64, Box<Group>>,
    pages: u64,
}

impl FrameMap {
    /// How many pages have a frame.
    pub(super) const fn count(&self) -> u64 {
        self.pages
    }

    pub(super) fn get(&self, page: u64) -> Option<Frame> {
        let group = self.groups.get(&(page / GROUP))?;
        let place = place_of(page);
        (group.present & 1 << place != 0).then(|| group.frame(place))
    }

    pub(super) fn contains(&self, page: u64) -> bool {
        self.get(page).is_some()
    }

    /// Gives the page this frame, and returns the one that it had.
    pub(super) fn insert(&mut self, page: u64, frame: Frame) -> Option<Frame> {
        let group = self.groups.entry(page / GROUP).or_insert_with(|| Box::new(Group::EMPTY));
        let place = place_of(page);
        let old = (group.present & 1 << place != 0).then(|| group.frame(place));
        self.pages += u64::from(old.is_none());
        group.set(place, frame);
        old
    }

    /// Gives a borrowed frame to each page of `range` that has none.
    pub(super) fn lend(&mut self, range: Range<u64>) {
        let mut first = range.start;
        while first < range.end {
            let end = (first - first % GROUP + GROUP).min(range.end);
            let group = self.groups.entry(first / GROUP).or_insert_with(|| Box::new(Group::EMPTY));
            let fresh = inside(first / GROUP, &(first..end)) & !group.present;
            bits(fresh).for_each(|place| group.set(place, Frame::Borrowed));
            self.pages += u64::from(fresh.count_ones());
            first = end;
        }
    }

    /// The pages in `range` that have a frame, in order, each with its frame.
    pub(super) fn each(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Frame)> {
        self.groups_in(range.clone())
            .flat_map(move |(number, group)| group.each(number, group.present & inside(number, &range)))
    }

    /// The range from the first page in `range` that has a frame to the last one. None if no page has one.
    pub(super) fn span(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let first = self.first(range)?;
        let present = |(number, group): (u64, &Group)| (number, group.present & inside(number, range));
        let last = self.groups_in(range.clone()).rev().map(present).find(|(_, present)| *present != 0);
        let (number, present) = last?;
        Some(first..number * GROUP + u64::from(u32::BITS - present.leading_zeros()))
    }

    /// Whether any page in `range` has a frame.
    pub(super) fn meets(&self, range: &Range<u64>) -> bool {
        self.first(range).is_some()
    }

    fn first(&self, range: &Range<u64>) -> Option<u64> {
        let present = |(number, group): (u64, &Group)| (number, group.present & inside(number, range));
        let (number, present) = self.groups_in(range.clone()).map(present).find(|(_, present)| *present != 0)?;
        Some(number * GROUP + u64::from(present.trailing_zeros()))
    }

    /// Takes the frames of the pages in `range` away, and hands each page with its frame to `give`, in order.
    pub(super) fn take(&mut self, range: &Range<u64>, mut give: impl FnMut(u64, Frame)) {
        let numbers: Vec<u64> = self.groups_in(range.clone()).map(|(number, _)| number).collect();
        for number in numbers {
            let group = self.groups.get_mut(&number).expect("it was there");
            let gone = group.present & inside(number, range);
            group.each(number, gone).for_each(|(page, frame)| give(page, frame));
            self.pages -= u64::from(gone.count_ones());
            group.present &= !gone;
            if group.present == 0 {
                self.groups.remove(&number);
            }
        }
    }

    /// The pages whose frames are the program's own, with these frames.
    pub(super) fn own(&self) -> Self {
        let mut own = Self::default();
        for (&number, group) in &self.groups {
            let is_own = |place: &u32| group.frame(*place) != Frame::Borrowed;
            let present = bits(group.present).filter(is_own).fold(0, |present, place| present | 1 << place);
            if present != 0 {
                own.groups.insert(number, Box::new(Group { present, ..**group }));
                own.pages += u64::from(present.count_ones());
            }
        }
        own
    }

    fn groups_in(&self, range: Range<u64>) -> impl DoubleEndedIterator<Item = (u64, &Group)> {
        let numbers = range.start / GROUP..range.end.div_ceil(GROUP).max(range.start / GROUP);
        self.groups.range(numbers).map(|(&number, group)| (number, &**group))
    }
}

const fn place_of(page: u64) -> u32 {
    (page % GROUP) as u32
}

/// The bits that the pages of `range` have in the group with this number.
fn inside(number: u64, range: &Range<u64>) -> u32 {
    let first = number * GROUP;
    let [low, high] = [range.start, range.end].map(|page| page.clamp(first, first + GROUP) - first);
    (below(high) & !below(low)) as u32
}

/// The bits of the first `pages` pages of a group.
const fn below(pages: u64) -> u64 {
    (1 << pages) - 1
}

/// The positions of the bits that are set, the lowest first.
fn bits(mut bits: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let place = (bits != 0).then(|| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        place
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map(
            steps in proptest::collection::vec((0u8..4, 0u64..300, 0u64..80), 0..40),
            first in 0u64..310,
            length in 0u64..310,
        ) {
            let (mut map, mut plain) = (FrameMap::default(), BTreeMap::new());
            for (number, (step, page, pages)) in steps.into_iter().enumerate() {
                let (range, own) = (page..page + pages, Frame::Own(number as u32));
                match step {
                    0 => prop_assert_eq!(map.insert(page, own), plain.insert(page, own)),
                    1 => {
                        map.lend(range.clone());
                        range.for_each(|page| _ = plain.entry(page).or_insert(Frame::Borrowed));
                    }
                    2 => {
                        let mut taken = Vec::new();
                        map.take(&range, |page, frame| taken.push((page, frame)));
                        let gone: Vec<_> = plain.range(range).map(|(&page, &frame)| (page, frame)).collect();
                        gone.iter().for_each(|(page, _)| _ = plain.remove(page));
                        prop_assert_eq!(taken, gone);
                    }
                    _ => prop_assert_eq!(map.get(page), plain.get(&page).copied()),
                }
            }
            let range = first..first + length;
            let inside: Vec<_> = plain.range(range.clone()).map(|(&page, &frame)| (page, frame)).collect();
            let span = inside.first().zip(inside.last()).map(|(first, last)| first.0..last.0 + 1);
            prop_assert_eq!(map.span(&range), span);
            prop_assert_eq!(map.meets(&range), !inside.is_empty());
            prop_assert_eq!(map.each(range).collect::<Vec<_>>(), inside);
            prop_assert_eq!(map.count(), plain.len() as u64);
            plain.retain(|_, frame| *frame != Frame::Borrowed);
            let own = map.own();
            prop_assert_eq!(own.count(), plain.len() as u64);
            prop_assert_eq!(own.each(0..u64::MAX).collect::<Vec<_>>(), plain.into_iter().collect::<Vec<_>>());
        }
    }
}

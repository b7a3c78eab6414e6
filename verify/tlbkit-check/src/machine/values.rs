//! A page holds what its owner wrote to it. Each store writes a number that no other store writes, which names the
//! space and the page; each load knows which number it must find, or at least whose.
//!
//! A frame that was given back holds none of them, and one that was given out again its new owner's: so a load through
//! a stale entry shows itself, and so does a frame that two spaces believe their own.

use std::ops::Range;

use super::memory::is_file_value;
use crate::digest::mix;

/// What one page of one space must hold; nothing if it cannot be known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    space: usize,
    va: u64,
    value: Option<u64>,
    /// Not stored to while its space is copied.
    is_settled: bool,
}

/// A call under way that changes what the pages in `range` of `space` hold.
struct Change {
    space: usize,
    range: Range<u64>,
    /// Pages that were mapped when it began, as far as that can be known.
    mapped: Vec<u64>,
    /// Whether the pages have been unmapped already: others were mapped in their place.
    has_unmapped: bool,
}

impl Change {
    fn is_for(&self, space: usize, range: &Range<u64>) -> bool {
        self.space == space && self.range == *range
    }

    fn overlaps(&self, space: usize, range: &Range<u64>) -> bool {
        self.space == space && self.range.start < range.end && range.start < self.range.end
    }

    fn digest(&self) -> u64 {
        let own = mix(self.range.start, self.space as u64 ^ self.range.end ^ u64::from(self.has_unmapped) << 63);
        self.mapped.iter().fold(own, |digest, &va| digest.wrapping_add(mix(va, own)))
    }
}

/// What all pages must hold.
#[derive(Default)]
pub(crate) struct Values {
    pages: Vec<Page>,
    changes: Vec<Change>,
    /// Addresses at which a space and its copies have the same frames.
    shared: Vec<Range<u64>>,
    /// Spaces of which copies are being made.
    copying: Vec<usize>,
    /// Copies that were made, and of what.
    copies: Vec<(usize, usize)>,
    /// Stores of each CPU so far.
    stores: Vec<u64>,
}

const SPACE_SHIFT: u32 = 56;
const PAGE_SHIFT: u32 = 21;
const CPU_SHIFT: u32 = 15;

/// The space and the page that a number names.
pub(crate) fn owner(value: u64) -> (Option<usize>, u64) {
    ((value >> SPACE_SHIFT).checked_sub(1).map(|space| space as usize), (value << 8 >> (8 + PAGE_SHIFT)) << 12)
}

impl Values {
    /// A number that no page has held.
    pub(crate) fn fresh(&mut self, cpu: usize, space: usize, va: u64) -> u64 {
        self.stores.resize(self.stores.len().max(cpu + 1), 0);
        self.stores[cpu] += 1;
        (space as u64 + 1) << SPACE_SHIFT | va >> 12 << PAGE_SHIFT | (cpu as u64) << CPU_SHIFT | self.stores[cpu]
    }

    fn is_changing(&self, space: usize, va: u64) -> bool {
        self.changes.iter().any(|change| change.space == space && change.range.contains(&va) && !change.has_unmapped)
    }

    /// A store to the page has reached memory.
    pub(crate) fn stored(&mut self, space: usize, va: u64, value: u64) {
        let is_shared = self.shared.iter().any(|range| range.contains(&va));
        let value = (!is_shared && !self.is_changing(space, va)).then_some(value);
        let page = Page { space, va, value, is_settled: !self.copying.contains(&space) };
        match self.pages.iter_mut().find(|page| (page.space, page.va) == (space, va)) {
            Some(known) => *known = page,
            None => self.pages.push(page),
        }
    }

    /// A call begins that changes what the pages of `space` in `range` hold.
    pub(crate) fn begin_change(&mut self, space: usize, range: &Range<u64>) {
        let is_in_range = |page: &Page| page.space == space && range.contains(&page.va);
        let mapped = self.pages.iter().filter(|page| is_in_range(page) && page.value.is_some());
        let mapped = mapped.map(|page| page.va).collect();
        self.pages.retain(|page| !is_in_range(page));
        // Which of two calls unmaps a page cannot be known.
        let others = self.changes.iter_mut().filter(|change| change.space == space);
        others.for_each(|change| change.mapped.retain(|va| !range.contains(va)));
        self.changes.push(Change { space, range: range.clone(), mapped, has_unmapped: false });
    }

    /// A call that changes what the pages in `range` hold has ended.
    pub(crate) fn end_change(&mut self, space: usize, range: &Range<u64>) {
        if let Some(at) = self.changes.iter().position(|change| change.is_for(space, range)) {
            self.changes.swap_remove(at);
        }
    }

    /// Pages were mapped in `range`, where none can have been any more. If there were some when the only call under way
    /// there began, that call has unmapped them: what is stored from now on stays.
    pub(crate) fn mapped(&mut self, space: usize, range: &Range<u64>) {
        let mut there = self.changes.iter_mut().filter(|change| change.overlaps(space, range));
        if let (Some(only), None) = (there.next(), there.next()) {
            only.has_unmapped |= only.mapped.iter().any(|va| range.contains(va));
        }
    }

    /// What is mapped in `range` is shared with copies.
    pub(crate) fn share(&mut self, range: Range<u64>) {
        self.pages.retain(|page| !range.contains(&page.va));
        self.shared.push(range);
    }

    /// A copy of `space` is being made.
    pub(crate) fn begin_copy(&mut self, space: usize) {
        if !self.copying.contains(&space) {
            self.pages.iter_mut().filter(|page| page.space == space).for_each(|page| page.is_settled = true);
        }
        self.copying.push(space);
    }

    /// A copy of the space was made. It holds the values of all pages that were not stored to meanwhile.
    pub(crate) fn end_copy(&mut self, space: usize, copy: usize) {
        if let Some(at) = self.copying.iter().position(|&copied| copied == space) {
            self.copying.swap_remove(at);
        }
        self.copies.push((copy, space));
        let settled: Vec<_> = self.pages.iter().filter(|page| page.space == space && page.is_settled).collect();
        let pages: Vec<_> = settled.into_iter().map(|page| Page { space: copy, ..*page }).collect();
        self.pages.extend(pages);
    }

    /// A digest of what all pages must hold.
    pub(crate) fn digest(&self) -> u64 {
        let changes = self.changes.iter().map(Change::digest);
        let changes = changes.fold(self.copying.len() as u64, u64::wrapping_add);
        self.pages.iter().fold(changes, |digest, page| {
            let value = page.value.map_or(u64::from(page.is_settled), |value| !value << 1 | u64::from(page.is_settled));
            digest.wrapping_add(mix(page.va ^ page.space as u64, value))
        })
    }

    /// What the page must hold, if that can be known.
    pub(crate) fn expected(&self, space: usize, va: u64) -> Option<u64> {
        let page = self.pages.iter().find(|page| (page.space, page.va) == (space, va))?;
        page.value.filter(|_| !self.is_changing(space, va))
    }

    /// The space itself, what it was copied from, what that was copied from ...
    fn ancestors(&self, space: usize) -> impl Iterator<Item = usize> + '_ {
        let parent = |&copy: &usize| self.copies.iter().find(|(of, _)| *of == copy).map(|&(_, space)| space);
        std::iter::successors(Some(space), parent)
    }

    /// True if a program may have left `value` at `va` for `space`, or nobody has stored there yet.
    pub(crate) fn may_hold(&self, space: usize, va: u64, value: u64) -> bool {
        if value == 0 || is_file_value(value) {
            return true;
        }
        let (writer, page) = owner(value);
        let is_shared = self.shared.iter().any(|range| range.contains(&va));
        let is_kin = |writer| {
            let is_older = self.ancestors(space).any(|older| older == writer);
            is_older || is_shared && self.ancestors(writer).last() == self.ancestors(space).last()
        };
        page == va && writer.is_some_and(is_kin)
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::POISON;
    use super::*;

    const PAGE: u64 = 0x40_1000;

    #[test]
    fn a_number_names_its_space_and_page_and_suits_no_other() {
        let mut values = Values::default();
        let (own, others) = (values.fresh(0, 0, PAGE), values.fresh(1, 1, PAGE));
        assert_eq!(owner(own), (Some(0), PAGE));
        assert!(values.may_hold(0, PAGE, own) && values.may_hold(0, PAGE, 0));
        let wrong = [(PAGE + 4096, own), (PAGE, others), (PAGE, POISON), (PAGE, 0x5_0067)];
        assert!(wrong.into_iter().all(|(va, value)| !values.may_hold(0, va, value)));
    }

    #[test]
    fn a_copy_holds_what_was_not_stored_to_while_it_was_made() {
        let mut values = Values::default();
        let [early, late] = [PAGE, PAGE + 4096].map(|va| (va, values.fresh(0, 0, va)));
        values.stored(0, early.0, early.1);
        values.begin_copy(0);
        values.stored(0, late.0, late.1);
        values.end_copy(0, 2);
        assert_eq!((values.expected(2, early.0), values.expected(2, late.0)), (Some(early.1), None));
        assert!(values.may_hold(2, late.0, late.1), "it may have been stored before the page was copied");
        let by_copy = values.fresh(0, 2, PAGE);
        assert!(!values.may_hold(0, PAGE, by_copy), "what the copy stores is its own");
        values.share(PAGE..PAGE + 4096);
        assert!(values.may_hold(0, PAGE, by_copy), "unless they share it");
    }

    /// A space whose page has been stored to, and what is stored to the page next.
    fn stored() -> (Values, Range<u64>, u64) {
        let mut values = Values::default();
        let [first, next] = [(); 2].map(|()| values.fresh(0, 0, PAGE));
        values.stored(0, PAGE, first);
        (values, PAGE..PAGE + 4096, next)
    }

    #[test]
    fn what_is_stored_where_others_were_mapped_stays_though_the_call_that_unmapped_them_goes_on() {
        let (mut values, page, value) = stored();
        values.begin_change(0, &page);
        values.mapped(0, &(page.end..page.end + 4096));
        values.stored(0, PAGE, value);
        assert_eq!(values.expected(0, PAGE), None, "it may be unmapped yet");
        values.mapped(0, &page);
        values.stored(0, PAGE, value);
        assert_eq!(values.expected(0, PAGE), Some(value));
        values.end_change(0, &page);
        assert_eq!(values.expected(0, PAGE), Some(value));
    }

    #[test]
    fn what_two_calls_or_one_that_found_no_page_have_unmapped_cannot_be_known() {
        let (mut values, page, value) = stored();
        values.begin_change(0, &page);
        values.begin_change(0, &page);
        values.mapped(0, &page);
        values.end_change(0, &page);
        values.mapped(0, &page);
        values.stored(0, PAGE, value);
        assert_eq!(values.expected(0, PAGE), None);
    }
}

//! A page holds what was written to it: each store writes a number of its own, each load knows which it must find.
//!
//! What a page holds is unknown while a call that changes it is under way, and after a store that raced with one.

use super::{Finding, Oracle, finding};
use crate::digest::mix;
use crate::machine::Machine;

/// What one page of one space must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    space: usize,
    va: u64,
    /// Nothing if it cannot be told.
    value: Option<u64>,
    /// Calls under way that change it.
    changing: u32,
}

/// What all pages must hold.
#[derive(Default)]
pub(crate) struct Values {
    pages: Vec<Page>,
    next: u64,
}

impl Values {
    fn page(&mut self, space: usize, va: u64) -> &mut Page {
        let index = self.pages.iter().position(|page| (page.space, page.va) == (space, va)).unwrap_or_else(|| {
            self.pages.push(Page { space, va, value: None, changing: 0 });
            self.pages.len() - 1
        });
        &mut self.pages[index]
    }

    /// A number that no page has held.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The page was stored to.
    pub(crate) fn stored(&mut self, space: usize, va: u64, value: u64) {
        let page = self.page(space, va);
        page.value = (page.changing == 0).then_some(value);
    }

    /// A call begins that changes the pages of `space` in `range`.
    pub(crate) fn begin_change(&mut self, space: usize, range: &std::ops::Range<u64>) {
        for page in self.pages.iter_mut().filter(|page| page.space == space && range.contains(&page.va)) {
            page.changing += 1;
            page.value = None;
        }
    }

    /// It has ended.
    pub(crate) fn end_change(&mut self, space: usize, range: &std::ops::Range<u64>) {
        for page in self.pages.iter_mut().filter(|page| page.space == space && range.contains(&page.va)) {
            page.changing = page.changing.saturating_sub(1);
        }
    }

    /// The child of a fork holds what its parent held.
    pub(crate) fn forked(&mut self, parent: usize, child: usize) {
        let copies: Vec<_> =
            self.pages.iter().filter(|page| page.space == parent && page.changing == 0).copied().collect();
        self.pages.extend(copies.into_iter().map(|page| Page { space: child, ..page }));
    }

    /// A digest of what all pages must hold.
    pub(crate) fn digest(&self) -> u64 {
        self.pages.iter().fold(self.next, |digest, page| {
            mix(mix(digest, page.va ^ page.space as u64), page.value.map_or(u64::from(page.changing), |value| !value))
        })
    }

    fn expected(&self, space: usize, va: u64) -> Option<u64> {
        self.pages.iter().find(|page| (page.space, page.va) == (space, va) && page.changing == 0)?.value
    }
}

/// The CPU that executes has loaded `value`.
pub(crate) fn check(machine: &Machine, space: usize, va: u64, value: u64) -> Option<Finding> {
    let expected = machine.values.expected(space, va)?;
    (value != expected).then(|| {
        let text = format!("space {space} reads {value:#x} at {va:#x}, where {expected:#x} was written");
        finding(machine, Oracle::Value, machine.current, text)
    })
}

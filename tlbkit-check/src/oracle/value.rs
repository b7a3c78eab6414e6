//! A page holds what was written to it: each store writes a number of its own, each load knows which it must find.
//!
//! What a page holds is unknown while a call that changes it is under way, and after a store that raced with one.

use std::ops::Range;

use super::{Finding, Oracle, finding};
use crate::digest::mix;
use crate::machine::Machine;

/// What one page of one space must hold; nothing if it cannot be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Page {
    space: usize,
    va: u64,
    value: Option<u64>,
}

/// What all pages must hold.
#[derive(Default)]
pub(crate) struct Values {
    pages: Vec<Page>,
    /// Calls under way that change pages of a space.
    changes: Vec<(usize, Range<u64>)>,
    next: u64,
}

impl Values {
    /// A number that no page has held.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn is_changing(&self, space: usize, va: u64) -> bool {
        self.changes.iter().any(|(changed, range)| *changed == space && range.contains(&va))
    }

    /// A store to the page has reached memory.
    pub(crate) fn stored(&mut self, space: usize, va: u64, value: u64) {
        let value = (!self.is_changing(space, va)).then_some(value);
        match self.pages.iter_mut().find(|page| (page.space, page.va) == (space, va)) {
            Some(page) => page.value = value,
            None => self.pages.push(Page { space, va, value }),
        }
    }

    /// A call begins that changes the pages of `space` in `range`.
    pub(crate) fn begin_change(&mut self, space: usize, range: &Range<u64>) {
        self.pages.retain(|page| page.space != space || !range.contains(&page.va));
        self.changes.push((space, range.clone()));
    }

    /// It has ended.
    pub(crate) fn end_change(&mut self, space: usize, range: &Range<u64>) {
        if let Some(at) = self.changes.iter().position(|(changed, of)| *changed == space && of == range) {
            self.changes.swap_remove(at);
        }
    }

    /// A digest of what all pages must hold.
    pub(crate) fn digest(&self) -> u64 {
        let changes = self.changes.iter().map(|(space, range)| mix(range.start, *space as u64 ^ range.end));
        let changes = changes.fold(self.next, u64::wrapping_add);
        self.pages.iter().fold(changes, |digest, page| {
            mix(mix(digest, page.va ^ page.space as u64), page.value.map_or(0, |value| !value))
        })
    }

    fn expected(&self, space: usize, va: u64) -> Option<u64> {
        let page = self.pages.iter().find(|page| (page.space, page.va) == (space, va))?;
        page.value.filter(|_| !self.is_changing(space, va))
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

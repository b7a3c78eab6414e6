//! Physical memory: frames with references, page tables as words, and a new epoch for a frame each time it is freed.
//!
//! A name of a frame has the frame's epoch. If the epochs differ, what is remembered was freed meanwhile,
//! even if the frame has been given out again.

use tlbkit::PhysAddr;

use crate::digest::mix;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Nobody's.
    Free,
    /// A page table.
    Table,
    /// A program's, or the kernel's data.
    Data,
}

#[derive(Clone, Copy)]
struct FrameState {
    is: Use,
    epoch: u32,
    references: u32,
    /// Index of its words, if it is a table.
    words: u32,
    /// The one word of a data frame that programs look at.
    value: u64,
}

/// A frame at one time of its life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FrameName {
    pub(crate) at: u64,
    pub(crate) epoch: u32,
}

type Words = [u64; 512];

pub(crate) struct Memory {
    frames: Vec<FrameState>,
    tables: Vec<Box<Words>>,
    free_tables: Vec<u32>,
    small: Vec<u32>,
    pairs: Vec<u32>,
    large: Vec<u32>,
    giant: Vec<u32>,
    /// The pages of [`CACHED_FILE`] that are in memory.
    cache: [Option<u64>; FILE_PAGES.end as usize - FILE_PAGES.start as usize],
    /// A digest of all words and of what the frames are: a sum, so that each change takes one step.
    digest: u64,
}

const ZERO_PAGE: u32 = 1;
const FILE_PAGES: std::ops::Range<u32> = 2..10;
const SMALL: std::ops::Range<u32> = 10..440;
const PAIRS: std::ops::Range<u32> = 440..512;
const FRAMES_OF_LARGE: u32 = 512;
const LARGE: std::ops::Range<u32> = 1..4;
/// Frames of 1 GiB, by their number among those: of each only its first base frame is looked at.
const GIANT: std::ops::Range<u32> = 1..3;
const GIANT_SHIFT: u8 = 30;
/// The first one's place.
const FIRST_GIANT: u32 = LARGE.end * FRAMES_OF_LARGE;
/// The file whose pages come and go. Of the other one all are there.
pub(crate) const CACHED_FILE: u32 = 1;
/// What a freed data frame holds: no program writes it.
pub(crate) const POISON: u64 = 0xdead_dead_dead_dead;

impl Memory {
    pub(crate) fn new() -> Self {
        let free = FrameState { is: Use::Free, epoch: 0, references: 0, words: 0, value: POISON };
        let mut memory = Self {
            frames: vec![free; (FIRST_GIANT + GIANT.end - GIANT.start) as usize],
            tables: Vec::with_capacity(32),
            free_tables: Vec::new(),
            small: SMALL.rev().collect(),
            pairs: PAIRS.step_by(2).collect(),
            large: LARGE.map(|n| n * FRAMES_OF_LARGE).collect(),
            giant: (FIRST_GIANT..).take(GIANT.len()).collect(),
            cache: [None; _],
            digest: 0,
        };
        for page in std::iter::once(ZERO_PAGE).chain(FILE_PAGES) {
            let value = if page == ZERO_PAGE { 0 } else { file_value(u64::from(page - FILE_PAGES.start)) };
            memory.frames[page as usize] = FrameState { is: Use::Data, references: 1, value, ..free };
        }
        memory
    }

    fn state(&self, at: u64) -> &FrameState {
        &self.frames[place(at)]
    }

    fn state_mut(&mut self, at: u64) -> &mut FrameState {
        &mut self.frames[place(at)]
    }

    /// Frames of 4 KiB that it has.
    pub(crate) const fn frames(&self) -> usize {
        FIRST_GIANT as usize
    }

    /// The frame's name now.
    pub(crate) fn name(&self, at: u64) -> FrameName {
        FrameName { at: at & !0xfff, epoch: self.state(at).epoch }
    }

    /// What the frame is, if it still is what was remembered.
    pub(crate) fn still(&self, name: FrameName) -> Option<Use> {
        let state = self.state(name.at);
        (state.epoch == name.epoch && state.is != Use::Free).then_some(state.is)
    }

    pub(crate) fn is_table(&self, at: u64) -> bool {
        self.state(at).is == Use::Table
    }

    /// The word at `at`: an entry of a table, or the frame's value.
    pub(crate) fn read(&self, at: u64) -> u64 {
        let state = self.state(at);
        match state.is {
            Use::Table => self.tables[state.words as usize][(at >> 3 & 511) as usize],
            _ => state.value,
        }
    }

    /// Writes a word and returns what it held.
    pub(crate) fn write(&mut self, at: u64, value: u64) -> u64 {
        let state = *self.state(at);
        let word = match state.is {
            Use::Table => &mut self.tables[state.words as usize][(at >> 3 & 511) as usize],
            _ => &mut self.state_mut(at).value,
        };
        let before = std::mem::replace(word, value);
        self.digest = self.digest.wrapping_sub(mix(at, before)).wrapping_add(mix(at, value));
        before
    }

    /// A digest of everything in it, and of the order in which frames will be given out.
    pub(crate) fn digest(&self) -> u64 {
        let free = [&self.small, &self.pairs, &self.large, &self.giant].into_iter().flatten();
        free.fold(self.digest, |digest, &frame| mix(digest, u64::from(frame)))
    }

    /// What cannot be undone by a write changes the digest for good.
    fn happened(&mut self, what: u64, at: u64) {
        self.digest = self.digest.wrapping_add(mix(what << 56, at));
    }

    /// The frame that is given out next.
    pub(crate) fn next_free(&self, shift: u8) -> Option<u64> {
        let list = match shift {
            12 => &self.small,
            13 => &self.pairs,
            GIANT_SHIFT => &self.giant,
            _ => &self.large,
        };
        list.last().map(|&place| address(place))
    }

    pub(crate) fn alloc(&mut self, shift: u8, is: Use) -> Option<u64> {
        let list = match shift {
            12 => &mut self.small,
            13 => &mut self.pairs,
            GIANT_SHIFT => &mut self.giant,
            _ => &mut self.large,
        };
        let first = list.pop()?;
        for frame in first..first + pages(shift) {
            let words = if is == Use::Table { self.new_table() } else { 0 };
            let state = &mut self.frames[frame as usize];
            *state = FrameState { is, references: u32::from(frame == first), words, value: 0, ..*state };
        }
        self.happened(1, u64::from(first));
        Some(address(first))
    }

    fn new_table(&mut self) -> u32 {
        if let Some(words) = self.free_tables.pop() {
            self.tables[words as usize].fill(0);
            return words;
        }
        self.tables.push(Box::new([0; 512]));
        (self.tables.len() - 1) as u32
    }

    /// Takes a frame back.
    pub(crate) fn free(&mut self, at: u64, shift: u8) {
        let first = place(at) as u32;
        self.happened(2, u64::from(first));
        for frame in first..first + pages(shift) {
            let state = &mut self.frames[frame as usize];
            if state.is == Use::Table {
                self.free_tables.push(state.words);
            }
            *state = FrameState { is: Use::Free, epoch: state.epoch + 1, references: 0, words: 0, value: POISON };
        }
        match shift {
            12 if SMALL.contains(&first) => self.small.push(first),
            // A piece of a large page that was split: never whole again.
            12 => {}
            13 => self.pairs.push(first),
            GIANT_SHIFT => self.giant.push(first),
            _ => self.large.push(first),
        }
    }

    pub(crate) fn copy(&mut self, from: u64, to: u64, shift: u8) {
        for n in 0..u64::from(pages(shift)) {
            self.state_mut(to + (n << 12)).value = self.state(from + (n << 12)).value;
        }
    }

    pub(crate) fn share(&mut self, at: u64) {
        self.happened(3, at);
        self.state_mut(at).references += 1;
    }

    /// True if that was the last reference.
    pub(crate) fn release(&mut self, at: u64) -> bool {
        self.happened(4, at);
        let references = &mut self.state_mut(at).references;
        *references = references.checked_sub(1).expect("a frame is put back once a reference");
        *references == 0
    }

    /// Frames that are somebody's.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (u64, Use)> {
        let used = self.frames.iter().enumerate().filter(|(_, state)| state.is != Use::Free);
        used.map(|(place, state)| (address(place as u32), state.is))
    }

    pub(crate) fn references(&self, at: u64) -> u32 {
        self.state(at).references
    }

    /// Makes base frames of a large one.
    pub(crate) fn split(&mut self, at: u64) {
        for n in 0..u64::from(FRAMES_OF_LARGE) {
            self.state_mut(at + (n << 12)).references = 1;
        }
    }

    /// The frame of the page of [`CACHED_FILE`], which is read if it is not there. If no frame is left it is the one of
    /// the other file, which holds the same.
    pub(crate) fn cached(&mut self, index: u64) -> PhysAddr {
        let slot = index as usize % self.cache.len();
        if let Some(at) = self.cache[slot] {
            return PhysAddr(at);
        }
        let Some(at) = self.alloc(12, Use::Data) else { return file_page(index) };
        self.write(at, file_value(index));
        self.cache[slot] = Some(at);
        self.happened(5 + slot as u64, at);
        PhysAddr(at)
    }

    /// Drops the pages of [`CACHED_FILE`] of whose frames, but for the cache's own reference, all are `taken`. The
    /// references of the cache pass to the caller.
    pub(crate) fn drop_cached(&mut self, taken: impl Fn(PhysAddr) -> usize) -> Vec<PhysAddr> {
        let mut dropped = Vec::new();
        for slot in 0..self.cache.len() {
            let is_unused = |at: &u64| self.references(*at) as usize == 1 + taken(PhysAddr(*at));
            if let Some(at) = self.cache[slot].filter(is_unused) {
                self.cache[slot] = None;
                self.happened(5 + self.cache.len() as u64 + slot as u64, at);
                dropped.push(PhysAddr(at));
            }
        }
        dropped
    }

    /// True if less than a few frames are left.
    pub(crate) fn is_low(&self) -> bool {
        self.small.len() < 16
    }
}

/// Base frames that are kept apart in a frame of that size.
const fn pages(shift: u8) -> u32 {
    if shift == GIANT_SHIFT { 1 } else { 1 << (shift - 12) }
}

/// Where the state of the frame at `at` stands.
const fn place(at: u64) -> usize {
    match at >> GIANT_SHIFT {
        0 => (at >> 12) as usize,
        giant => FIRST_GIANT as usize + giant as usize - GIANT.start as usize,
    }
}

/// The address of the frame whose state stands there.
const fn address(place: u32) -> u64 {
    match place.checked_sub(FIRST_GIANT) {
        None => (place as u64) << 12,
        Some(n) => ((GIANT.start + n) as u64) << GIANT_SHIFT,
    }
}

/// What a page of either file holds.
pub(crate) const fn file_value(index: u64) -> u64 {
    0xf11e_0000 + index % (FILE_PAGES.end - FILE_PAGES.start) as u64
}

/// True if a page of the file holds it.
pub(crate) fn is_file_value(value: u64) -> bool {
    (0..u64::from(FILE_PAGES.end - FILE_PAGES.start)).any(|index| file_value(index) == value)
}

/// The frame of the file's page.
pub(crate) const fn file_page(index: u64) -> PhysAddr {
    PhysAddr((FILE_PAGES.start as u64 + index % (FILE_PAGES.end - FILE_PAGES.start) as u64) << 12)
}

/// The frame of zeros.
pub(crate) const fn zero_page() -> PhysAddr {
    PhysAddr((ZERO_PAGE as u64) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_comes_back_has_another_name() {
        let mut memory = Memory::new();
        let at = memory.alloc(12, Use::Table).unwrap();
        let name = memory.name(at);
        memory.write(at + 8, 7);
        assert_eq!((memory.read(at + 8), memory.still(name)), (7, Some(Use::Table)));
        memory.free(at, 12);
        assert_eq!(memory.alloc(12, Use::Data), Some(at));
        assert_eq!((memory.still(name), memory.read(at)), (None, 0));
    }
}

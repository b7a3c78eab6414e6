//! What is mapped in one space, as page faults and system calls tell. Ranges are in numbers of base pages.

use super::frame_map::FrameMap;
use super::frames::{Frame, Frames};
use std::collections::BTreeMap;
use std::ops::Range;

/// How many base pages of a file Linux maps around a page that a read fault brings, if they are in memory: 64 KiB.
const FAULT_AROUND_PAGES: u64 = 16;
/// How many base pages a page table maps.
const TABLE: u64 = 512;
/// A mapping that a program asked for. Its first page is its key in [`Pages`], and `end` the page behind its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mapping {
    end: u64,
    backing: Backing,
}

/// What is behind a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Backing {
    /// Anonymous memory of this process.
    Private,
    /// Addresses that are reserved for the process, and may not be accessed yet.
    Reserved,
    /// A private mapping of a file, whose pages are copied when they are written.
    File,
    /// Shared memory, or a shared mapping of a file.
    Shared,
}

/// What is mapped in one space.
#[derive(Default)]
pub(super) struct Pages {
    mapped: FrameMap,
    mappings: BTreeMap<u64, Mapping>,
    /// End of the heap, in bytes.
    pub(super) brk: u64,
    /// Whether the space is older than the recording. Then more is mapped than is known here.
    is_older: bool,
    /// Whether its last thread has begun to end.
    is_ending: bool,
}

impl Pages {
    /// A space that is older than the recording.
    pub(super) fn older() -> Self {
        Self { is_older: true, ..Self::default() }
    }

    /// The program mapped `range`.
    pub(super) fn map(&mut self, range: Range<u64>, backing: Backing) {
        if range.is_empty() {
            return;
        }
        self.forget_mappings(&range);
        let (mut start, mut end) = (range.start, range.end);
        if backing == Backing::Private {
            // The kernel merges private mappings that are neighbours.
            let is_alike = |pages: &Self, page: u64| {
                pages.mapping(page).filter(|(_, backing)| *backing == Backing::Private).map(|(range, _)| range)
            };
            if let Some(before) = start.checked_sub(1).and_then(|page| is_alike(self, page)) {
                start = before.start;
            }
            if let Some(after) = is_alike(self, end) {
                self.mappings.remove(&after.start);
                end = after.end;
            }
        }
        self.mappings.insert(start, Mapping { end, backing });
    }

    /// The mapping `old` grows in place, up to `end`.
    pub(super) fn grow(&mut self, old: &Range<u64>, end: u64) {
        let backing = self.mapping(old.end - 1).map_or(Backing::Private, |(_, backing)| backing);
        self.map(old.end..end, backing);
    }

    /// Whether the page is reserved, and may not be accessed yet.
    pub(super) fn is_reserved(&self, page: u64) -> bool {
        self.mapping(page).is_some_and(|(_, backing)| backing == Backing::Reserved)
    }

    fn forget_mappings(&mut self, range: &Range<u64>) {
        let hit: Vec<u64> = self.mappings.range(..range.end).rev().map(|(&first, _)| first).collect();
        for first in hit {
            let old = self.mappings[&first];
            if old.end <= range.start {
                break;
            }
            self.mappings.remove(&first);
            if first < range.start {
                self.mappings.insert(first, Mapping { end: range.start, ..old });
            }
            if old.end > range.end {
                self.mappings.insert(range.end, old);
            }
        }
    }

    fn mapping(&self, page: u64) -> Option<(Range<u64>, Backing)> {
        let (&first, mapping) = self.mappings.range(..=page).next_back()?;
        (page < mapping.end).then_some((first..mapping.end, mapping.backing))
    }

    /// What is behind the page. None if no known mapping has it.
    pub(super) fn backing(&self, page: u64) -> Option<Backing> {
        self.mapping(page).map(|(_, backing)| backing)
    }

    /// Whether the page is shared memory, or of a shared mapping of a file.
    pub(super) fn is_shared(&self, page: u64) -> bool {
        self.mapping(page).is_some_and(|(_, backing)| backing == Backing::Shared)
    }

    /// A page that was not present is written.
    pub(super) fn first_store(&mut self, frames: &mut Frames, page: u64) {
        let frame = if self.is_shared(page) { Frame::Borrowed } else { frames.fresh() };
        self.put(frames, page, frame);
    }

    /// A page that was not present is read. The kernel also maps those of its neighbours that it has in memory.
    pub(super) fn first_load(&mut self, page: u64) {
        let window = page & !(FAULT_AROUND_PAGES - 1);
        let around = match self.mapping(page) {
            // As many pages as the window has, from its begin or that of the mapping, but none beyond the page table.
            Some((range, Backing::File | Backing::Shared)) => {
                let first = range.start.max(window);
                first..(first + FAULT_AROUND_PAGES).min(range.end).min((page | (TABLE - 1)) + 1)
            }
            // A read of anonymous memory maps the page of zeros.
            Some((_, Backing::Private | Backing::Reserved)) => page..page + 1,
            // The program and its loader, which exec maps without a system call.
            None => window..window + FAULT_AROUND_PAGES,
        };
        self.mapped.lend(around);
    }

    fn put(&mut self, frames: &mut Frames, page: u64, frame: Frame) {
        if let Some(old) = self.mapped.insert(page, frame) {
            frames.drop(old);
        }
    }

    /// A write to a page that is present but may not be written. True if the page got another frame, and so must be
    /// flushed.
    pub(super) fn store(&mut self, frames: &mut Frames, page: u64) -> bool {
        // A write to shared memory is for all to see, so the page is never copied. The fault was for its dirty bit.
        let is_copied = !self.is_shared(page) && self.mapped.get(page).is_none_or(|frame| frames.is_shared(frame));
        if is_copied {
            let frame = frames.fresh();
            self.put(frames, page, frame);
        }
        is_copied
    }

    /// Whether only the kernel's own record can tell if a write to the page makes a copy: it is not known what is
    /// mapped there, because the space is older than the trace, or all others that share the page are about to end.
    pub(super) fn is_store_in_doubt(&self, frames: &Frames, page: u64) -> bool {
        match self.mapped.get(page) {
            Some(frame) => frames.is_shared_in_doubt(frame),
            None => !self.is_known(&(page..page + 1)),
        }
    }

    /// The kernel's record has told that a write made a copy of the page. If it is not known what was mapped there,
    /// that stays so.
    pub(super) fn copied(&mut self, frames: &mut Frames, page: u64) {
        if self.mapped.contains(page) {
            let frame = frames.fresh();
            self.put(frames, page, frame);
        }
    }

    /// Whether the trace has shown everything that is mapped in `range`.
    pub(super) fn is_known(&self, range: &Range<u64>) -> bool {
        !self.is_older || self.mapping(range.start).is_some_and(|(mapping, _)| range.end <= mapping.end)
    }

    /// The range from the first to the last page in `range` that is present. It is all of `range` if that may have
    /// mappings which are older than the trace, and none if no page is present.
    pub(super) fn span(&self, range: &Range<u64>) -> Option<Range<u64>> {
        if !self.is_known(range) {
            return Some(range.clone());
        }
        self.mapped.span(range)
    }

    /// The range from the first to the last page in `range` whose entry changes when writes are forbidden or allowed.
    /// In a private mapping these are the pages of the program alone: a write to any other page is a fault before and
    /// after.
    pub(super) fn span_of_stores(&self, frames: &Frames, range: &Range<u64>) -> Option<Range<u64>> {
        if self.is_shared(range.start) || !self.is_known(range) {
            return self.span(range);
        }
        let mut pages = self.mapped.each(range.clone()).filter(|(_, frame)| !frames.is_shared(*frame));
        let first = pages.next()?.0;
        Some(first..pages.last().map_or(first, |(page, _)| page) + 1)
    }

    /// The ranges that the kernel flushes one after the other when it takes the pages of `range` away. It is one range,
    /// except that Linux flushes shared memory table by table, to be sure of the dirty bits.
    pub(super) fn zapped(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let Some(span) = self.span(range) else { return Vec::new() };
        if !self.is_shared(span.start) || !self.is_known(range) {
            return vec![span];
        }
        let mut pieces: Vec<Range<u64>> = Vec::new();
        for page in self.present(&span) {
            match pieces.last_mut() {
                Some(piece) if piece.start / TABLE == page / TABLE => piece.end = page + 1,
                _ => pieces.push(page..page + 1),
            }
        }
        pieces
    }

    /// The pages in `range` that are present.
    pub(super) fn present(&self, range: &Range<u64>) -> Vec<u64> {
        self.mapped.each(range.clone()).map(|(page, _)| page).collect()
    }

    /// Takes the pages in `range` away.
    pub(super) fn discard(&mut self, frames: &mut Frames, range: &Range<u64>) {
        self.mapped.take(range, |_, frame| frames.drop(frame));
    }

    /// The last thread of the space has begun to end.
    pub(super) fn begin_to_end(&mut self, frames: &mut Frames) {
        self.is_ending = true;
        self.mapped.each(0..u64::MAX).for_each(|(_, frame)| frames.begins_to_end(frame));
    }

    /// The space has ended, and gives up all its frames.
    pub(super) fn end(&mut self, frames: &mut Frames) {
        let drop = if self.is_ending { Frames::has_ended } else { Frames::drop };
        self.mapped.each(0..u64::MAX).for_each(|(_, frame)| drop(frames, frame));
        *self = Self { is_older: self.is_older, ..Self::default() };
    }

    /// Unmaps `range`, and takes its pages away. True if that leaves a page table without any use.
    pub(super) fn unmap(&mut self, frames: &mut Frames, range: &Range<u64>) -> bool {
        let tables = range.start >> 9..=(range.end - 1) >> 9;
        let had_table = |table: u64, pages: &Self| pages.mapped.meets(&(table << 9..(table + 1) << 9));
        let before: Vec<u64> = [*tables.start(), *tables.end()].into_iter().filter(|&t| had_table(t, self)).collect();
        let is_wide = tables.end() - tables.start() > 1 && self.span(range).is_some();
        self.discard(frames, range);
        self.forget_mappings(range);
        // It is not known what else a table maps of a space that is older than the trace. Mostly it maps something.
        let is_empty = |table: u64| !self.is_older && !had_table(table, self) && self.mappings_in(table) == 0;
        is_wide || before.iter().any(|&table| is_empty(table))
    }

    fn mappings_in(&self, table: u64) -> usize {
        let (first, end) = (table << 9, (table + 1) << 9);
        self.mappings.range(..end).rev().take_while(|(_, mapping)| mapping.end > first).count()
    }

    /// The space of a child that is forked. It shares the program's own pages until one of both writes to them.
    pub(super) fn fork(&self, frames: &mut Frames) -> Self {
        let mapped = self.mapped.own();
        mapped.each(0..u64::MAX).for_each(|(_, frame)| frames.share(frame));
        Self { mapped, mappings: self.mappings.clone(), brk: self.brk, is_older: self.is_older, is_ending: false }
    }

    /// Moves the pages of `from` to the range that begins at the page `to`, and takes away what was present there.
    pub(super) fn rename(&mut self, frames: &mut Frames, from: &Range<u64>, to: u64) {
        let mut moved: Vec<(u64, Frame)> = Vec::new();
        self.mapped.take(from, |page, frame| moved.push((page, frame)));
        self.discard(frames, &(to..to + (from.end - from.start)));
        moved.into_iter().for_each(|(page, frame)| _ = self.mapped.insert(page - from.start + to, frame));
    }

    /// How many pages may be mapped at most. `u64::MAX` if the space is older than the trace.
    pub(super) fn most(&self) -> u64 {
        if self.is_older { u64::MAX } else { self.mapped.count() }
    }
}

#[cfg(test)]
mod tests;

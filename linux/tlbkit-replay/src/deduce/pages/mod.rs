//! What is mapped in one space, as page faults and system calls tell. Ranges are in numbers of base pages.

use super::frame_map::FrameMap;
use super::frames::{Frame, Frames};
use crate::op::Pattern;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How many base pages of a file Linux maps around a page that a read fault brings, if they are in memory: 64 KiB.
const FAULT_AROUND_PAGES: u64 = 16;
/// How many base pages a page table maps, which is also the size of a huge page.
const TABLE: u64 = 512;
/// How many base pages glibc reserves for an arena of malloc: 64 MiB. It asks for twice as many to get aligned ones.
const ARENA: u64 = 16_384;

/// How many regions of 2 MiB a stack has at most: 128 GiB. The rest of a larger one is not noted as a stack.
const MAX_STACK_REGIONS: usize = 1 << 16;

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
    /// The numbers of the regions of 2 MiB that huge pages map.
    huge: BTreeSet<u64>,
    /// Pages that were given back while their addresses stayed mapped, and by which kind of revocation.
    given_back: BTreeMap<u64, Pattern>,
    /// How many pages of the program's own were unmapped and not asked for again since, and by which kind of revocation
    /// the last ones were.
    unmapped: Option<(u64, Pattern)>,
    /// The numbers of the blocks of 64 MiB that were reserved as glibc reserves its arenas.
    arenas: BTreeSet<u64>,
    /// The numbers of the regions of 2 MiB that stacks of threads reach into. Since 6.7 Linux gives these no huge
    /// pages.
    stacks: BTreeSet<u64>,
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

    /// The program reserves `range`, whose parts it will make accessible later.
    pub(super) fn reserve(&mut self, range: Range<u64>) {
        if [ARENA, 2 * ARENA].contains(&(range.end - range.start)) {
            self.arenas.extend(range.start.div_ceil(ARENA)..range.end / ARENA);
        }
        self.map(range, Backing::Reserved);
    }

    /// The program mapped `range` as the stack of a thread, which gets no huge pages.
    pub(super) fn never_huge(&mut self, range: &Range<u64>) {
        self.stacks.extend((range.start / TABLE..range.end.div_ceil(TABLE)).take(MAX_STACK_REGIONS));
    }

    /// Whether the page is reserved, and may not be accessed yet.
    pub(super) fn is_reserved(&self, page: u64) -> bool {
        self.mapping(page).is_some_and(|(_, backing)| backing == Backing::Reserved)
    }

    /// Whether the page lies in what looks like an arena of glibc.
    pub(super) fn is_in_arena(&self, page: u64) -> bool {
        self.arenas.contains(&(page / ARENA))
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

    /// Whether the page is of a file or shared, and so is no memory of an allocator.
    pub(super) fn is_of_file(&self, page: u64) -> bool {
        matches!(self.backing(page), Some(Backing::File | Backing::Shared))
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

    /// Takes the pages in `range` away, and returns those that were present.
    pub(super) fn discard(&mut self, frames: &mut Frames, range: &Range<u64>) -> Vec<u64> {
        let mut gone = Vec::new();
        let huge = &mut self.huge;
        self.mapped.take(range, |page, frame| {
            huge.remove(&(page / TABLE));
            frames.drop(frame);
            gone.push(page);
        });
        gone
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

    /// How many pages of `range` have frames of the program's own.
    pub(super) fn count_own(&self, range: &Range<u64>) -> u64 {
        self.mapped.each(range.clone()).filter(|(_, frame)| *frame != Frame::Borrowed).count() as u64
    }

    /// Notes that these pages were given back by a revocation of the kind `by`, while their addresses stayed mapped.
    pub(super) fn gave_back(&mut self, pages: impl IntoIterator<Item = u64>, by: Pattern) {
        self.given_back.extend(pages.into_iter().map(|page| (page, by)));
    }

    /// Notes that `pages` pages of the program's own were unmapped by a revocation of the kind `by`.
    pub(super) fn unmapped(&mut self, pages: u64, by: Pattern) {
        let before = self.unmapped.map_or(0, |(before, _)| before);
        self.unmapped = (before + pages > 0).then_some((before + pages, by));
    }

    /// The kind of the revocation without which this page, which a fault has just brought, would have been present.
    /// None if the page is used for the first time.
    pub(super) fn because(&mut self, page: u64) -> Option<Pattern> {
        if let Some(by) = self.given_back.remove(&page) {
            return Some(by);
        }
        let is_of_a_call = self.mapping(page).is_some_and(|(range, backing)| {
            backing == Backing::Private && range.end != self.brk.div_ceil(4096) && !self.is_in_arena(page)
        });
        let (pages, by) = self.unmapped.filter(|_| is_of_a_call)?;
        self.unmapped = (pages > 1).then_some((pages - 1, by));
        Some(by)
    }

    /// Unmaps `range`, and takes its pages away. True if that leaves a page table without any use.
    pub(super) fn unmap(&mut self, frames: &mut Frames, range: &Range<u64>) -> bool {
        let tables = range.start >> 9..=(range.end - 1) >> 9;
        let had_table = |table: u64, pages: &Self| pages.mapped.meets(&(table << 9..(table + 1) << 9));
        let before: Vec<u64> = [*tables.start(), *tables.end()].into_iter().filter(|&t| had_table(t, self)).collect();
        let is_wide = tables.end() - tables.start() > 1 && self.span(range).is_some();
        self.discard(frames, range);
        let forgotten: Vec<u64> = self.given_back.range(range.clone()).map(|(&page, _)| page).collect();
        forgotten.iter().for_each(|page| _ = self.given_back.remove(page));
        self.forget_mappings(range);
        let whole = range.start.div_ceil(TABLE)..(range.end / TABLE).max(range.start.div_ceil(TABLE));
        let stacks: Vec<u64> = self.stacks.range(whole).copied().collect();
        stacks.iter().for_each(|region| _ = self.stacks.remove(region));
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
        Self {
            mapped,
            mappings: self.mappings.clone(),
            brk: self.brk,
            huge: self.huge.clone(),
            given_back: BTreeMap::new(),
            unmapped: None,
            arenas: self.arenas.clone(),
            stacks: self.stacks.clone(),
            is_older: self.is_older,
            is_ending: false,
        }
    }

    /// Moves the pages of `from` to the range that begins at the page `to`, and takes away what was present there. A
    /// huge page stays one if the new place is aligned as the old one, and is split otherwise.
    pub(super) fn rename(&mut self, frames: &mut Frames, from: &Range<u64>, to: u64) {
        let mut moved: Vec<(u64, Frame)> = Vec::new();
        self.mapped.take(from, |page, frame| moved.push((page, frame)));
        let is_aligned = from.start.abs_diff(to).is_multiple_of(TABLE);
        let whole = from.start.div_ceil(TABLE)..from.end / TABLE;
        let huge: Vec<u64> = whole.filter(|region| is_aligned && self.huge.contains(region)).collect();
        moved.iter().for_each(|(page, _)| _ = self.huge.remove(&(page / TABLE)));
        self.discard(frames, &(to..to + (from.end - from.start)));
        moved.into_iter().for_each(|(page, frame)| _ = self.mapped.insert(page - from.start + to, frame));
        self.huge.extend(huge.into_iter().map(|region| (region * TABLE - from.start + to) / TABLE));
    }
}

#[cfg(test)]
mod tests;

impl Pages {
    /// How many pages may be mapped at most, a huge one counted as one. `u64::MAX` if the space is older than the
    /// trace.
    pub(in crate::deduce) fn most(&self) -> u64 {
        let (base, huge) = (self.mapped.count(), self.huge.len() as u64);
        if self.is_older { u64::MAX } else { base.saturating_sub(huge * (TABLE - 1)) }
    }

    /// The regions of 2 MiB in which `span` lies, as a range of base pages, if huge pages map all of them.
    pub(in crate::deduce) fn huge(&self, span: &Range<u64>) -> Option<Range<u64>> {
        let regions = span.start / TABLE..span.end.div_ceil(TABLE);
        let is_huge = regions.clone().all(|region| self.huge.contains(&region));
        is_huge.then_some(regions.start * TABLE..regions.end * TABLE)
    }

    /// Whether a huge page maps this page.
    pub(in crate::deduce) fn is_huge(&self, page: u64) -> bool {
        self.huge.contains(&(page / TABLE))
    }

    /// Whether a fault of this page can bring a huge page: its whole region belongs to one private mapping, is no
    /// stack, and has no page that is present.
    pub(in crate::deduce) fn has_room(&self, page: u64) -> bool {
        let first = page - page % TABLE;
        let region = first..first + TABLE;
        let is_within = |mapping: &Range<u64>| mapping.start <= region.start && region.end <= mapping.end;
        let is_private =
            self.mapping(page).is_some_and(|(range, backing)| backing == Backing::Private && is_within(&range));
        is_private && !self.stacks.contains(&(page / TABLE)) && !self.mapped.meets(&region)
    }

    /// A fault of this page brings a huge page of 2 MiB.
    pub(in crate::deduce) fn first_huge(&mut self, frames: &mut Frames, page: u64) {
        let first = page - page % TABLE;
        for page in first..first + TABLE {
            let frame = frames.fresh();
            self.put(frames, page, frame);
        }
        self.huge.insert(first / TABLE);
    }
}

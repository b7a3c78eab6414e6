//! ebizzy 0.3: threads that allocate a buffer, copy a chunk into it, search it, and free it. One unit is one record.
//!
//! A quirk of the program decides its working set: each thread's random state begins at 0 and is only ever
//! multiplied, so it stays 0. Every thread copies chunk 0 and searches key 0, and chunks 1 to 9 are never read. The
//! binary search for key 0 halves from word 32,768 down: 17 words, on 8 distinct pages. The ten words that share page
//! 0 are one access here; the TLB cannot tell them apart.
//!
//! What free does is the allocator's matter, and the whole difference between the four forms. The pages of each are
//! those of the real allocator: `tlbkit-sim` has a test that counts the faults of a record under glibc.

use crate::os::{Backing, Os, Part, Protection, read_expecting};
use crate::parameters::{MANY, MOST_TASKS};
use crate::pattern::{page_at, read_zeros};
use crate::team::{Rounds, crew};

/// How buffers come and go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocator {
    /// Option -m: each buffer is a separate mapping, unmapped by free.
    AlwaysMap,
    /// Default options, and an allocator whose threshold for mappings stays at its 128 KiB: each buffer is a mapping,
    /// with the allocator's header in front of it.
    MallocMaps,
    /// glibc up to 2.21, default options: the thread's arena, trimmed by madvise at each free.
    ArenaTrimmed,
    /// glibc since 2.22: the arena keeps its pages.
    ArenaKept,
}

parameters! {
    /// Parameters of ebizzy.
    pub struct Ebizzy {
        /// Threads; 0 for the program's default of two for each CPU
        threads = 0, 0..=MOST_TASKS;
        /// Chunks filled before the start; the program's default
        chunks = 10, 1..=4096;
        /// User cycles of one record beside its page accesses; derived: 22.6 to 24.3 us of user time a record
        /// (glibc commit c26efef979, i7-4770), its middle at 3.4 GHz; it contains the copy and the search
        record_cycles = 79_730, 0..=MANY;
        /// Records of each thread; 0 until the run is over
        rounds = 0, 0..=MANY;
        /// Every how many records fresh pages are read, expecting zero, before they are written; 0 never
        check_fresh = 0, 0..=MANY;
    }
}

/// Pages of a chunk: 64 Ki words of 8 bytes.
const CHUNK_PAGES: u64 = 128;
/// Pages of the search for key 0, in its order.
const SEARCHED_PAGES: [u64; 8] = [64, 32, 16, 8, 4, 2, 1, 0];
/// Pages that a buffer touches: the allocator's 16-byte header shifts it off the page grid, so that 128 pages' worth of
/// words straddle 129.
const BUFFER_PAGES: u64 = CHUNK_PAGES + 1;
/// Pages at the start of an arena that it keeps when it is trimmed: its own books, and above them the 128 KiB that
/// glibc leaves for the next request (`DEFAULT_TOP_PAD` in its sysdeps/generic/malloc-machine.h). The other 96 of a
/// buffer's pages are given back.
const KEPT_PAGES: u64 = 33;

/// Pages of the heap at whose start an arena lies: glibc reserves 64 MiB (`HEAP_MAX_SIZE` in its malloc/arena.c), so
/// the arenas of two threads share no page table.
const HEAP_PAGES: u64 = 1 << 14;

/// The word kept for page `page` of a chunk: its last, since words count up from 0 and the last is never 0.
const fn chunk_word(page: u64) -> u64 {
    page * 512 + 511
}

/// A word of the allocator's own, in the first page of an arena or of a mapping.
const BOOKS: u64 = 0xb00c;

impl Ebizzy {
    pub(crate) fn run(self, allocator: Allocator, part: Part, os: &dyn Os) {
        if part.role == 0 { self.start(os) } else { self.thread(allocator, part.arg, os) }
    }

    fn start(self, os: &dyn Os) {
        let first_chunk = fill_chunk(os);
        (1..self.chunks).for_each(|_| _ = fill_chunk(os));
        let threads = if self.threads == 0 { 2 * os.cpus() } else { self.threads as u32 };
        crew(os, 1, threads + 1, &|role| os.thread(Part::new(role, first_chunk)), &mut || ());
    }

    fn thread(self, allocator: Allocator, chunk: u64, os: &dyn Os) {
        let mut arena = None;
        let mut rounds = Rounds::new(self.rounds);
        while let Some(round) = rounds.next(os) {
            match allocator {
                Allocator::AlwaysMap => self.mapped_record(chunk, round, os),
                // The first free raises the threshold above which malloc maps, so later buffers come from the arena.
                Allocator::ArenaTrimmed | Allocator::ArenaKept if round > 0 => {
                    let arena = *arena.get_or_insert_with(|| new_arena(os));
                    self.arena_record(allocator, chunk, arena, round, os);
                }
                _ => self.malloc_mapped_record(chunk, round, os),
            }
            os.compute(self.record_cycles);
            os.count(1);
        }
    }

    fn mapped_record(self, chunk: u64, round: u64, os: &dyn Os) {
        let buffer = os.map(CHUNK_PAGES, Backing::AnonPrivate, Protection::ReadWrite);
        if self.checks_fresh(round) {
            read_zeros(os, buffer, CHUNK_PAGES);
        }
        copy(os, chunk, buffer);
        search(os, buffer);
        os.unmap(buffer, CHUNK_PAGES);
    }

    /// As a mapping of malloc's, which begins with its header.
    fn malloc_mapped_record(self, chunk: u64, round: u64, os: &dyn Os) {
        let mapping = os.map(BUFFER_PAGES, Backing::AnonPrivate, Protection::ReadWrite);
        if self.checks_fresh(round) {
            read_zeros(os, mapping, BUFFER_PAGES);
        }
        fill_behind_header(os, chunk, mapping);
        os.unmap(mapping, BUFFER_PAGES);
    }

    fn arena_record(self, allocator: Allocator, chunk: u64, arena: u64, round: u64, os: &dyn Os) {
        let (trimmed, pages) = (page_at(arena, KEPT_PAGES), BUFFER_PAGES - KEPT_PAGES);
        if self.checks_fresh(round) && allocator == Allocator::ArenaTrimmed {
            read_zeros(os, trimmed, pages);
        }
        fill_behind_header(os, chunk, arena);
        if allocator == Allocator::ArenaTrimmed {
            os.dontneed(trimmed, pages);
        }
    }

    fn checks_fresh(self, round: u64) -> bool {
        self.check_fresh != 0 && round.is_multiple_of(self.check_fresh)
    }
}

fn new_arena(os: &dyn Os) -> u64 {
    os.map(HEAP_PAGES, Backing::AnonPrivate, Protection::ReadWrite)
}

fn fill_chunk(os: &dyn Os) -> u64 {
    let chunk = os.map(CHUNK_PAGES, Backing::AnonPrivate, Protection::ReadWrite);
    (0..CHUNK_PAGES).for_each(|page| os.write(page_at(chunk, page), chunk_word(page)));
    chunk
}

/// Fills and searches a buffer that a header shifts, so that the last word of each of its pages lies in the next one.
fn fill_behind_header(os: &dyn Os, chunk: u64, start: u64) {
    os.write(start, BOOKS);
    let buffer = page_at(start, 1);
    copy(os, chunk, buffer);
    search(os, buffer);
}

fn copy(os: &dyn Os, chunk: u64, buffer: u64) {
    for page in 0..CHUNK_PAGES {
        read_expecting(os, page_at(chunk, page), chunk_word(page));
        os.write(page_at(buffer, page), chunk_word(page));
    }
}

fn search(os: &dyn Os, buffer: u64) {
    SEARCHED_PAGES.iter().for_each(|page| read_expecting(os, page_at(buffer, *page), chunk_word(*page)));
}

//! Physical memory: table frames as the 512 entries that they are, data frames as the one word that is checked.
//!
//! Two ranges of addresses, so that an address says which of the two it is. Nothing here takes simulated time: see
//! `memory`.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;

use tlbkit::{PhysAddr, Sharers};
use tlbkit_pmap::{Frame, Memory, Purpose};
use tlbkit_workloads::pattern::file_pattern;

use crate::mmu::Tables;

const TABLE_BASE: u64 = 1 << 40;
const DATA_BASE: u64 = 1 << 32;
const FRAME_SHIFT: u32 = 12;
const PAIR_SHIFT: u8 = 13;
const LARGE_SHIFT: u8 = 21;
/// Base frames of a large one.
const LARGE_FRAMES: usize = 512;
/// Data frames that there may be: 64 GiB.
const MOST_DATA_FRAMES: usize = 1 << 24;
/// The same, as users are told.
pub(super) const MOST_DATA_GIB: usize = MOST_DATA_FRAMES >> (30 - FRAME_SHIFT);

/// The sharers of so many tables, from a cache line's boundary on.
#[repr(align(64))]
struct SharersOfSome([Sharers; TABLES_TOGETHER]);

const TABLES_TOGETHER: usize = 1024;
/// Tables whose sharers are known, at most: 4 GiB of tables.
const MOST_SHARED_TABLES: usize = 1 << 20;

type Table = Box<[Cell<u64>; 512]>;

/// All frames.
pub(crate) struct Phys {
    tables: RefCell<Vec<Table>>,
    table_references: RefCell<Vec<u32>>,
    /// Made when they are first asked for.
    sharers: Box<[OnceCell<Box<SharersOfSome>>]>,
    free_tables: RefCell<Vec<usize>>,
    free_pairs: RefCell<Vec<usize>>,
    data: RefCell<Vec<DataFrame>>,
    free_data: RefCell<Vec<usize>>,
    free_large: RefCell<Vec<usize>>,
    files: RefCell<BTreeMap<(u32, u64), PhysAddr>>,
    pressure: Pressure,
}

/// Whether the kernel is short of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pressure {
    /// There is enough.
    #[default]
    None,
    /// Page tables should come back at once.
    Low,
}

#[derive(Clone, Copy, Default)]
struct DataFrame {
    word: u64,
    references: u32,
}

impl Phys {
    pub(crate) fn new(pressure: Pressure) -> Self {
        let zero = DataFrame { word: 0, references: 1 };
        // The data vector begins with one aligned large frame's worth, of which the first is the page of zeros.
        let mut data = vec![DataFrame::default(); LARGE_FRAMES];
        data[0] = zero;
        Self {
            tables: RefCell::default(),
            table_references: RefCell::default(),
            sharers: (0..MOST_SHARED_TABLES / TABLES_TOGETHER).map(|_| OnceCell::new()).collect(),
            free_tables: RefCell::default(),
            free_pairs: RefCell::default(),
            data: RefCell::new(data),
            free_data: RefCell::new((1..LARGE_FRAMES).rev().collect()),
            free_large: RefCell::default(),
            files: RefCell::default(),
            pressure,
        }
    }

    /// The word of the data page at `at`.
    #[inline]
    pub(crate) fn word(&self, at: PhysAddr) -> u64 {
        self.data.borrow()[data_index(at)].word
    }

    /// Changes the word of the data page at `at`.
    #[inline]
    pub(crate) fn set_word(&self, at: PhysAddr, word: u64) {
        self.data.borrow_mut()[data_index(at)].word = word;
    }

    /// The frame that holds page `index` of `file`, read when it is first asked for; nothing if no frame is left for
    /// it.
    pub(super) fn page_of_file(&self, file: u32, index: u64) -> Option<PhysAddr> {
        if let Some(&at) = self.files.borrow().get(&(file, index)) {
            return Some(at);
        }
        let at = self.alloc_data(1)?;
        self.set_word(at, file_pattern(file, index));
        self.files.borrow_mut().insert((file, index), at);
        Some(at)
    }

    /// Drops a page of a file to whose frame there are so many `references`, its own among them. That one passes to
    /// the caller.
    pub(super) fn drop_page(&self, page: (u32, u64), references: u32) -> Option<PhysAddr> {
        let at = *self.files.borrow().get(&page)?;
        if self.references(at) != references {
            return None;
        }
        self.files.borrow_mut().remove(&page)
    }

    /// True if the page is in memory.
    pub(super) fn has_page(&self, page: (u32, u64)) -> bool {
        self.files.borrow().contains_key(&page)
    }

    /// Frames in use: tables, data.
    pub(crate) fn used(&self) -> (usize, usize) {
        let data = self.data.borrow().iter().filter(|data| data.references > 0).count();
        let tables = self.table_references.borrow().iter().filter(|&&references| references > 0).count();
        (tables, data)
    }

    #[inline]
    fn entry<R>(&self, at: PhysAddr, body: impl FnOnce(&Cell<u64>) -> R) -> R {
        let tables = self.tables.borrow();
        let offset = at.0 - TABLE_BASE;
        body(&tables[(offset >> FRAME_SHIFT) as usize][(offset as usize & 0xfff) / 8])
    }

    /// How many entries of a table are empty one after the other, from `at` on. It looks at `most` entries at most.
    pub(crate) fn count_empty(&self, at: PhysAddr, most: u64) -> u64 {
        let tables = self.tables.borrow();
        let offset = at.0 - TABLE_BASE;
        let entries = tables[(offset >> FRAME_SHIFT) as usize].iter().skip((offset as usize & 0xfff) / 8);
        entries.take(most as usize).take_while(|entry| entry.get() == 0).count() as u64
    }

    fn alloc_tables(&self, frames: usize) -> PhysAddr {
        let free = if frames == 2 { &self.free_pairs } else { &self.free_tables };
        let reused = free.borrow_mut().pop();
        let index = reused.unwrap_or_else(|| self.grow_tables(frames));
        for at in index..index + frames {
            self.tables.borrow()[at].iter().for_each(|entry| entry.set(0));
        }
        if let Some(some) = self.sharers.get(index / TABLES_TOGETHER).and_then(OnceCell::get) {
            some.0[index % TABLES_TOGETHER].clear();
        }
        self.table_references.borrow_mut()[index] = 1;
        PhysAddr(TABLE_BASE + ((index as u64) << FRAME_SHIFT))
    }

    fn grow_tables(&self, frames: usize) -> usize {
        let mut tables = self.tables.borrow_mut();
        if !tables.len().is_multiple_of(frames) {
            self.free_tables.borrow_mut().push(tables.len());
            tables.push(empty_table());
        }
        let index = tables.len();
        (0..frames).for_each(|_| tables.push(empty_table()));
        self.table_references.borrow_mut().resize(tables.len(), 0);
        index
    }

    fn alloc_data(&self, frames: usize) -> Option<PhysAddr> {
        let reused = if frames == 1 { self.free_data.borrow_mut().pop() } else { self.free_large.borrow_mut().pop() };
        let index = match reused {
            Some(index) => index,
            None => self.grow_data(frames)?,
        };
        let mut data = self.data.borrow_mut();
        data[index..index + frames].fill(DataFrame::default());
        data[index].references = 1;
        Some(PhysAddr(DATA_BASE + ((index as u64) << FRAME_SHIFT)))
    }

    /// Memory grows by large frames, so that one is always aligned.
    fn grow_data(&self, frames: usize) -> Option<usize> {
        let mut data = self.data.borrow_mut();
        let index = data.len();
        if index == MOST_DATA_FRAMES {
            return None;
        }
        data.resize(index + LARGE_FRAMES, DataFrame::default());
        if frames == 1 {
            self.free_data.borrow_mut().extend((index + 1..index + LARGE_FRAMES).rev());
        }
        Some(index)
    }

    fn count<R>(&self, at: PhysAddr, body: impl FnOnce(&mut u32) -> R) -> R {
        if is_table(at) {
            body(&mut self.table_references.borrow_mut()[((at.0 - TABLE_BASE) >> FRAME_SHIFT) as usize])
        } else {
            body(&mut self.data.borrow_mut()[data_index(at)].references)
        }
    }
}

fn empty_table() -> Table {
    Box::new([const { Cell::new(0) }; 512])
}

/// True if the address is one of a page table.
#[inline]
pub(crate) fn is_table(at: PhysAddr) -> bool {
    at.0 >= TABLE_BASE
}

#[inline]
fn data_index(at: PhysAddr) -> usize {
    ((at.0 - DATA_BASE) >> FRAME_SHIFT) as usize
}

impl Tables for Phys {
    #[inline]
    fn read(&self, pa: PhysAddr) -> u64 {
        self.entry(pa, Cell::get)
    }

    fn set_accessed_dirty(&self, pa: PhysAddr, bits: u64) {
        self.entry(pa, |entry| entry.set(entry.get() | bits));
    }
}

impl Memory for Phys {
    #[inline]
    fn load(&self, at: PhysAddr) -> u64 {
        if is_table(at) { self.read(at) } else { self.word(at) }
    }

    fn store(&self, at: PhysAddr, value: u64) {
        self.swap(at, value);
    }

    fn swap(&self, at: PhysAddr, value: u64) -> u64 {
        if is_table(at) {
            self.entry(at, |entry| entry.replace(value))
        } else {
            std::mem::replace(&mut self.data.borrow_mut()[data_index(at)].word, value)
        }
    }

    fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<u64, u64> {
        let found = self.load(at);
        if found == current { Ok(self.swap(at, new)) } else { Err(found) }
    }

    fn copy(&self, from: PhysAddr, to: PhysAddr, shift: u8) {
        let (from, to) = (data_index(from), data_index(to));
        let mut data = self.data.borrow_mut();
        for at in 0..frames_of(shift) {
            data[to + at].word = data[from + at].word;
        }
    }

    fn alloc(&self, shift: u8, purpose: Purpose) -> Option<Frame> {
        let at = match purpose {
            Purpose::Table => Some(self.alloc_tables(frames_of(shift))),
            Purpose::Data | Purpose::Copy => self.alloc_data(frames_of(shift)),
        };
        at.map(|at| Frame { at, shift })
    }

    fn free(&self, frame: Frame) {
        let free = match (is_table(frame.at), frame.shift) {
            (true, PAIR_SHIFT) => &self.free_pairs,
            (true, _) => &self.free_tables,
            (false, LARGE_SHIFT) => &self.free_large,
            (false, _) => &self.free_data,
        };
        let base = if is_table(frame.at) { TABLE_BASE } else { DATA_BASE };
        free.borrow_mut().push(((frame.at.0 - base) >> FRAME_SHIFT) as usize);
    }

    fn is_low(&self) -> bool {
        self.pressure == Pressure::Low
    }

    fn share(&self, at: PhysAddr) {
        self.count(at, |references| *references += 1);
    }

    fn release(&self, at: PhysAddr) -> bool {
        self.count(at, |references| {
            assert!(*references > 0, "{at:?} released once too often");
            *references -= 1;
            *references == 0
        })
    }

    fn references(&self, at: PhysAddr) -> u32 {
        self.count(at, |references| *references)
    }

    fn sharers(&self, table: PhysAddr) -> Option<&Sharers> {
        let index = ((table.0 - TABLE_BASE) >> FRAME_SHIFT) as usize;
        let make = || Box::new(SharersOfSome(std::array::from_fn(|_| Sharers::new())));
        let some = self.sharers.get(index / TABLES_TOGETHER)?.get_or_init(make);
        Some(&some.0[index % TABLES_TOGETHER])
    }

    fn split(&self, at: PhysAddr) {
        let first = data_index(at);
        let mut data = self.data.borrow_mut();
        data[first..first + LARGE_FRAMES].iter_mut().for_each(|piece| piece.references = 1);
    }

    fn file_page(&self, file: u32, index: u64) -> PhysAddr {
        self.page_of_file(file, index).expect("only the kernel's memory can end a run that has no frame left")
    }

    fn zero_page(&self) -> PhysAddr {
        PhysAddr(DATA_BASE)
    }
}

const fn frames_of(shift: u8) -> usize {
    1 << (shift as u32 - FRAME_SHIFT)
}

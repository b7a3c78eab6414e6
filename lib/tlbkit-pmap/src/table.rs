//! Walks of the four page-table levels: find a leaf, allocate the tables on the way to one, unhook empty tables.

use crate::memory::{Frame, Memory, Purpose};
use crate::pte;
use core::ops::Range;
use tlbkit::{Isolation, PhysAddr, Stride, VirtAddr};
use tlbkit_arch::addr::{TABLE_ENTRIES, TOP_LEVEL};
use tlbkit_arch::{Pte, entry_at, span_shift, span_start};

/// The first address above the user half.
pub const USER_END: u64 = 1 << 47;

/// The first address after `va` that a different entry of `level` maps, like `pmd_addr_end`.
pub(crate) const fn next_span(va: u64, level: u32) -> u64 {
    tlbkit_arch::next(VirtAddr(va), level).0
}

/// A top-level table. Under page-table isolation (PTI) it is followed by the top-level table of the user half.
#[derive(Clone, Copy)]
pub(crate) struct Root {
    pub(crate) at: PhysAddr,
    pub(crate) isolation: Isolation,
}

impl Root {
    /// log2 of its bytes, as [`Frame`] has it.
    pub(crate) fn shift(self) -> u8 {
        if self.isolation == Isolation::On { 13 } else { 12 }
    }
}

/// A page-table entry: where it lies, what it held when it was read, and its level.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) at: PhysAddr,
    pub(crate) pte: Pte,
    pub(crate) level: u32,
}

impl Entry {
    pub(crate) const fn stride(self) -> Stride {
        tlbkit_arch::stride(self.level)
    }

    pub(crate) const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// log2 of the bytes that it maps, as [`Frame`] has it.
    pub(crate) const fn shift(self) -> u8 {
        span_shift(self.level) as u8
    }
}

/// Where a walk ends.
pub(crate) enum Found {
    /// At a leaf that is not empty.
    Leaf(Entry),
    /// At an empty entry of this level.
    Hole(u32),
}

/// Walks to `va`.
pub(crate) fn find(mem: &impl Memory, root: Root, va: u64) -> Found {
    ended(walk(mem, root, va))
}

/// What a walk finds that ends at `at`, an entry of the last level.
pub(crate) fn find_at(mem: &impl Memory, at: PhysAddr) -> Found {
    ended(leaf(mem, at))
}

fn ended(last: Entry) -> Found {
    if last.pte.is_empty() { Found::Hole(last.level) } else { Found::Leaf(last) }
}

/// The entry of the last level at `at`.
pub(crate) fn leaf(mem: &impl Memory, at: PhysAddr) -> Entry {
    Entry { at, pte: Pte(mem.load(at)), level: 1 }
}

/// The entry at which the walk to `va` ends: a leaf, or an empty entry of any level.
fn walk(mem: &impl Memory, root: Root, va: u64) -> Entry {
    let mut table = root.at;
    let mut level = TOP_LEVEL;
    loop {
        let at = entry_at(table, VirtAddr(va), level);
        let pte = Pte(mem.load(at));
        if level == 1 || pte.is_empty() || pte.has(Pte::LARGE) {
            return Entry { at, pte, level };
        }
        table = pte.frame();
        level -= 1;
    }
}

/// Where the entry lies that names the last-level table of `va`, if the tables above it are there.
pub(crate) fn directory_entry(mem: &impl Memory, root: Root, va: u64) -> Option<PhysAddr> {
    let mut table = root.at;
    for level in (3..=TOP_LEVEL).rev() {
        let pte = Pte(mem.load(entry_at(table, VirtAddr(va), level)));
        if pte.is_empty() {
            return None;
        }
        table = pte.frame();
    }
    Some(entry_at(table, VirtAddr(va), 2))
}

/// The last-level table of `va`, in a tree without large pages.
pub(crate) fn last_table(mem: &impl Memory, root: Root, va: u64) -> Option<PhysAddr> {
    let pte = Pte(mem.load(directory_entry(mem, root, va)?));
    (!pte.is_empty()).then(|| pte.frame())
}

/// The first leaf in `range`, and the first address of the range that it maps.
pub(crate) fn first_leaf(mem: &impl Memory, root: Root, range: Range<u64>) -> Option<(u64, Entry)> {
    let mut va = range.start;
    while va < range.end {
        let last = walk(mem, root, va);
        if !last.pte.is_empty() {
            return Some((va, last));
        }
        va = next_span(va, last.level);
        if va < range.end {
            va += pass_empty(mem, last, range.end - va, TOP_LEVEL + 1 - last.level);
        }
    }
    None
}

/// Skips the empty entries that follow `empty` in its table, for up to `bytes` bytes, each accounted for as `loads`
/// loads. Returns how many bytes were skipped, which is more than `bytes` if the last entry extends beyond.
fn pass_empty(mem: &impl Memory, empty: Entry, bytes: u64, loads: u32) -> u64 {
    let behind = TABLE_ENTRIES - 1 - empty.at.0 % (8 * TABLE_ENTRIES) / 8;
    let most = behind.min(bytes.div_ceil(empty.bytes()));
    empty.bytes() * mem.pass_empty(PhysAddr(empty.at.0 + 8), most, loads)
}

/// True if `range` contains a large page. Linux 3.x did this walk before it flushed page by page.
pub(crate) fn has_large_page(mem: &impl Memory, root: Root, range: Range<u64>) -> bool {
    let mut va = range.start;
    while va < range.end {
        let level = match find(mem, root, va) {
            Found::Leaf(entry) if entry.level == 2 => return true,
            Found::Leaf(_) => 2,
            Found::Hole(level) => level,
        };
        va = next_span(va, level.max(2));
    }
    false
}

/// The entry of `va` at level `leaf` (1 or 2), and how many page-table pages were allocated on the way to it.
///
/// The walk stops early at a 2 MiB page that already maps `va`. `None` if memory is exhausted.
pub(crate) fn create(mem: &impl Memory, root: Root, va: u64, leaf: u32) -> Option<(Entry, u32)> {
    let mut table = root.at;
    let mut level = TOP_LEVEL;
    let mut made = 0;
    loop {
        let at = entry_at(table, VirtAddr(va), level);
        let mut pte = Pte(mem.load(at));
        if level == leaf || pte.has(Pte::LARGE) {
            return Some((Entry { at, pte, level }, made));
        }
        if pte.is_empty() {
            pte = Pte::new(mem.alloc(12, Purpose::Table)?.at, table_bits(va));
            set_inner(mem, root, at, level, pte);
            made += 1;
        }
        table = pte.frame();
        level -= 1;
    }
}

const fn table_bits(va: u64) -> u64 {
    if VirtAddr(va).is_kernel() { pte::TABLE & !Pte::USER } else { pte::TABLE }
}

/// Writes an entry that points to a table. A top-level entry is written in both halves under page-table isolation,
/// since the user half maps the same user addresses.
fn set_inner(mem: &impl Memory, root: Root, at: PhysAddr, level: u32, pte: Pte) {
    // The user half first: code that finds the kernel half's entry present relies on both.
    if level == TOP_LEVEL && root.isolation == Isolation::On {
        mem.store(PhysAddr(at.0 + 4096), pte.0);
    }
    mem.store(at, pte.0);
}

/// Unhooks the tables below `root` that overlap `range` and map only addresses for which `is_unused` returns true,
/// lowest level first, and passes each to `take` with its first address, like `free_pgtables`. Their leaves must be
/// empty.
pub(crate) fn unhook_tables(
    mem: &impl Memory,
    root: Root,
    range: Range<u64>,
    is_unused: &impl Fn(Range<u64>) -> bool,
    take: &mut impl FnMut(u64, Frame),
) {
    unhook_below(mem, root, (root.at, TOP_LEVEL), range, (2, is_unused), take);
}

/// Unhooks the tables below `root` that are above the last level, and passes each to `take`.
pub(crate) fn unhook_directories(mem: &impl Memory, root: Root, take: &mut impl FnMut(Frame)) {
    unhook_below(mem, root, (root.at, TOP_LEVEL), 0..USER_END, (3, &|_| true), &mut |_, frame| take(frame));
}

fn unhook_below(
    mem: &impl Memory,
    root: Root,
    (table, level): (PhysAddr, u32),
    range: Range<u64>,
    (last, is_unused): (u32, &impl Fn(Range<u64>) -> bool),
    take: &mut impl FnMut(u64, Frame),
) {
    let mut va = span_start(VirtAddr(range.start), level).0;
    while va < range.end {
        let span = va..next_span(va, level);
        let at = entry_at(table, VirtAddr(va), level);
        let pte = Pte(mem.load(at));
        va = span.end;
        if pte.is_empty() {
            va += pass_empty(mem, Entry { at, pte, level }, range.end.saturating_sub(va), 1);
            continue;
        }
        if pte.has(Pte::LARGE) {
            continue;
        }
        let unused = is_unused(span.clone());
        if level > last {
            // An unused table is unhooked together with every table below it, including those that an earlier operation
            // left in place.
            let below = range.start.max(span.start)..range.end.min(span.end);
            let below = if unused { span.clone() } else { below };
            unhook_below(mem, root, (pte.frame(), level - 1), below, (last, is_unused), take);
        }
        if unused {
            set_inner(mem, root, at, level, Pte::EMPTY);
            take(span.start, Frame { at: pte.frame(), shift: 12 });
        }
    }
}

/// A new top-level table that shares the kernel half of `kernel_root`.
pub(crate) fn new_root(mem: &impl Memory, kernel_root: PhysAddr, isolation: Isolation) -> Option<Frame> {
    let frame = mem.alloc(Root { at: kernel_root, isolation }.shift(), Purpose::Table)?;
    for index in TABLE_ENTRIES / 2..TABLE_ENTRIES {
        let entry = mem.load(PhysAddr(kernel_root.0 + 8 * index));
        if entry != 0 {
            mem.store(PhysAddr(frame.at.0 + 8 * index), entry);
        }
    }
    Some(frame)
}

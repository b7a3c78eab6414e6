//! Walking four levels of tables: finding a leaf, making the way to one, and taking tables out.

use crate::memory::{Frame, Memory, Purpose};
use crate::pte;
use core::ops::Range;
use tlbkit::{Isolation, PhysAddr, Stride, VirtAddr};
use tlbkit_arch::addr::{TABLE_ENTRIES, TOP_LEVEL};
use tlbkit_arch::{Pte, entry_at, span_shift, span_start};

/// First address above the user half.
pub const USER_END: u64 = 1 << 47;

/// The first address after `va` that another entry of `level` covers.
pub(crate) const fn next(va: u64, level: u32) -> u64 {
    tlbkit_arch::next(VirtAddr(va), level).0
}

/// A top-level table and whether a user half lies beside it.
#[derive(Clone, Copy)]
pub(crate) struct Root {
    pub(crate) at: PhysAddr,
    pub(crate) isolation: Isolation,
}

/// A leaf entry: where it is and what it held.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) at: PhysAddr,
    pub(crate) pte: Pte,
    pub(crate) level: u32,
}

impl Slot {
    pub(crate) const fn stride(self) -> Stride {
        tlbkit_arch::stride(self.level)
    }

    pub(crate) const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// log2 of its bytes, as a frame has it.
    pub(crate) const fn shift(self) -> u8 {
        span_shift(self.level) as u8
    }
}

/// What a walk ends at.
pub(crate) enum Found {
    /// A leaf that owns or maps something.
    Leaf(Slot),
    /// An empty entry of this level: nothing is mapped in all that it covers.
    Hole(u32),
}

/// Walks to `va`.
pub(crate) fn find(mem: &impl Memory, root: Root, va: u64) -> Found {
    let last = walk(mem, root, va);
    if last.pte.is_empty() { Found::Hole(last.level) } else { Found::Leaf(last) }
}

/// The entry at which the way to `va` ends: a leaf, or an empty one.
fn walk(mem: &impl Memory, root: Root, va: u64) -> Slot {
    let mut table = root.at;
    let mut level = TOP_LEVEL;
    loop {
        let at = entry_at(table, VirtAddr(va), level);
        let pte = Pte(mem.load(at));
        if level == 1 || pte.is_empty() || pte.has(Pte::LARGE) {
            return Slot { at, pte, level };
        }
        table = pte.frame();
        level -= 1;
    }
}

/// The first leaf in `range`, and the address at which it was met.
pub(crate) fn first_leaf(mem: &impl Memory, root: Root, range: Range<u64>) -> Option<(u64, Slot)> {
    let mut va = range.start;
    while va < range.end {
        let last = walk(mem, root, va);
        if !last.pte.is_empty() {
            return Some((va, last));
        }
        va = next(va, last.level);
        if va < range.end {
            va += pass_empty(mem, last, range.end - va, TOP_LEVEL + 1 - last.level);
        }
    }
    None
}

/// Passes over the empty entries of a table that follow on one, for the next `bytes` at the most, each as if by `loads`
/// loads. Returns the bytes that they cover: more than asked for where the last of them reaches beyond.
fn pass_empty(mem: &impl Memory, empty: Slot, bytes: u64, loads: u32) -> u64 {
    let behind = TABLE_ENTRIES - 1 - empty.at.0 % (8 * TABLE_ENTRIES) / 8;
    let most = behind.min(bytes.div_ceil(empty.bytes()));
    empty.bytes() * mem.pass_empty(PhysAddr(empty.at.0 + 8), most, loads)
}

/// True if a large page lies in `range`: the walk that Linux 3.x made before it flushed page by page.
pub(crate) fn has_large_page(mem: &impl Memory, root: Root, range: Range<u64>) -> bool {
    let mut va = range.start;
    while va < range.end {
        let level = match find(mem, root, va) {
            Found::Leaf(slot) if slot.level == 2 => return true,
            Found::Leaf(_) => 2,
            Found::Hole(level) => level,
        };
        va = next(va, level.max(2));
    }
    false
}

/// The leaf entry of `va` at `leaf` (1 or 2), with the tables on the way to it, and how many of those are new.
///
/// Stops early at a 2 MiB page that already covers `va`. Nothing if memory is exhausted.
pub(crate) fn create(mem: &impl Memory, root: Root, va: u64, leaf: u32) -> Option<(Slot, u32)> {
    let mut table = root.at;
    let mut level = TOP_LEVEL;
    let mut made = 0;
    loop {
        let at = entry_at(table, VirtAddr(va), level);
        let mut pte = Pte(mem.load(at));
        if level == leaf || pte.has(Pte::LARGE) {
            return Some((Slot { at, pte, level }, made));
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

/// Writes an inner entry; one of the top level in both halves, since the user half translates the same user addresses.
fn set_inner(mem: &impl Memory, root: Root, at: PhysAddr, level: u32, pte: Pte) {
    // The user half first: who finds the other one filled relies on both.
    if level == TOP_LEVEL && root.isolation == Isolation::On {
        mem.store(PhysAddr(at.0 + 4096), pte.0);
    }
    mem.store(at, pte.0);
}

/// Takes out the tables below `root` that lie wholly or partly in `range` and cover only what `is_unused` says is
/// unused, lowest level first, and hands each with its first address to `take`. Their leaves must be empty.
pub(crate) fn take_tables(
    mem: &impl Memory,
    root: Root,
    range: Range<u64>,
    is_unused: &impl Fn(Range<u64>) -> bool,
    take: &mut impl FnMut(u64, Frame),
) {
    take_below(mem, root, (root.at, TOP_LEVEL), range, is_unused, take);
}

fn take_below(
    mem: &impl Memory,
    root: Root,
    (table, level): (PhysAddr, u32),
    range: Range<u64>,
    is_unused: &impl Fn(Range<u64>) -> bool,
    take: &mut impl FnMut(u64, Frame),
) {
    let mut va = span_start(VirtAddr(range.start), level).0;
    while va < range.end {
        let span = va..next(va, level);
        let at = entry_at(table, VirtAddr(va), level);
        let pte = Pte(mem.load(at));
        va = span.end;
        if pte.is_empty() {
            va += pass_empty(mem, Slot { at, pte, level }, range.end.saturating_sub(va), 1);
            continue;
        }
        if pte.has(Pte::LARGE) {
            continue;
        }
        let unused = is_unused(span.clone());
        if level > 2 {
            // An unused table goes with all below it, also what an earlier emptying left for later.
            let below = range.start.max(span.start)..range.end.min(span.end);
            let below = if unused { span.clone() } else { below };
            take_below(mem, root, (pte.frame(), level - 1), below, is_unused, take);
        }
        if unused {
            set_inner(mem, root, at, level, Pte::EMPTY);
            take(span.start, Frame { at: pte.frame(), shift: 12 });
        }
    }
}

/// A new top-level table that shares the kernel half of `kernel_root`.
pub(crate) fn new_root(mem: &impl Memory, kernel_root: PhysAddr, isolation: Isolation) -> Option<Frame> {
    let shift = if isolation == Isolation::On { 13 } else { 12 };
    let frame = mem.alloc(shift, Purpose::Table)?;
    for index in TABLE_ENTRIES / 2..TABLE_ENTRIES {
        let entry = mem.load(PhysAddr(kernel_root.0 + 8 * index));
        if entry != 0 {
            mem.store(PhysAddr(frame.at.0 + 8 * index), entry);
        }
    }
    Some(frame)
}

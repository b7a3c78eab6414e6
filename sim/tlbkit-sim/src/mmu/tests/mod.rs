//! Tests of the translation hardware against hand-made tables and against a slow model that cannot be misread.

mod flush;
mod limits;
mod model;
mod table;
mod walks;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use tlbkit::{Cr3, Pcid, PhysAddr, VirtAddr};
use tlbkit_arch::{Pte, index};

use super::{Access, ArrayConfig, Cost, Fault, Hit, Mmu, MmuConfig, Overlap, PageSize, PathCaches, Privilege, Tables};

const PRESENT: u64 = Pte::PRESENT;
const WRITE: u64 = Pte::WRITE;
const USER: u64 = Pte::USER;
const ACCESSED: u64 = Pte::ACCESSED;
const DIRTY: u64 = Pte::DIRTY;
const PAGE: u64 = Pte::LARGE;
const GLOBAL: u64 = Pte::GLOBAL;
const NO_EXECUTE: u64 = Pte::NO_EXECUTE;
/// What most pages of these tests have.
const OPEN: u64 = PRESENT | WRITE | USER;

/// Where the builder puts tables.
const TABLES: u64 = 1 << 40;

/// Sparse physical memory with a table builder.
#[derive(Default)]
struct Memory {
    words: RefCell<BTreeMap<u64, u64>>,
    tables: Cell<u64>,
}

impl Tables for Memory {
    fn read(&self, pa: PhysAddr) -> u64 {
        self.get(pa.0)
    }

    fn set_accessed_dirty(&self, pa: PhysAddr, bits: u64) {
        self.set(pa.0, self.get(pa.0) | bits);
    }
}

impl Memory {
    fn get(&self, at: u64) -> u64 {
        self.words.borrow().get(&at).copied().unwrap_or(0)
    }

    fn set(&self, at: u64, value: u64) {
        self.words.borrow_mut().insert(at, value);
    }

    /// The table below the entry at `at`, made if there is none.
    fn table_below(&self, at: u64) -> u64 {
        if self.get(at) == 0 {
            self.tables.set(self.tables.get() + 1);
            self.set(at, (TABLES + 4096 * self.tables.get()) | OPEN);
        }
        Pte(self.get(at)).frame().0
    }

    /// Where the entry of `va` in the table of `level` is, tables above it made as needed.
    fn entry_at(&self, root: u64, levels: u32, va: u64, level: u32) -> u64 {
        let mut table = root;
        for above in (level + 1..=levels).rev() {
            table = self.table_below(table + 8 * index(VirtAddr(va), above));
        }
        table + 8 * index(VirtAddr(va), level)
    }

    fn map(&self, root: u64, va: u64, pa: u64, size: PageSize, flags: u64) {
        let level = size as u32 + 1;
        let page = if level > 1 { PAGE } else { 0 };
        self.set(self.entry_at(root, 4, va, level), pa | flags | page);
    }
}

/// Two levels large enough that nothing is lost for want of room.
fn roomy() -> MmuConfig {
    let all = PageSize::ALL;
    let (l1, stlb) = (ArrayConfig::lru(&all, 64, 16), ArrayConfig::lru(&all, 256, 16));
    MmuConfig::counting(vec![l1], vec![stlb], PathCaches { pml4e: 16, pdpte: 16, pde: 64 })
}

fn load(mmu: &mut Mmu, root: u64, pcid: u16) {
    mmu.write_cr3(Cr3::keeping(PhysAddr(root), Pcid(pcid)));
}

fn access(mmu: &mut Mmu, memory: &Memory, va: u64, access: Access, mode: Privilege) -> Result<Hit, Fault> {
    mmu.translate(VirtAddr(va), access, mode, Overlap::Dependent, memory)
}

/// A user load that must succeed.
fn read(mmu: &mut Mmu, memory: &Memory, va: u64) -> (u64, Cost) {
    let hit = access(mmu, memory, va, Access::Read, Privilege::User).expect("mapped");
    (hit.pa.0, hit.cost)
}

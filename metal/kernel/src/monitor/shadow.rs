//! The tables that the hardware walks while the guest runs. The kernel's image, the direct map and the APIC are always
//! there; every other slot of the top level is filled page by page from the software TLB, and emptied whenever that
//! TLB may have lost something.

use core::cell::UnsafeCell;

use spin::Once;
use tlbkit::{Cr3, Pcid, PhysAddr, Stride, VirtAddr};
use tlbkit_arch::Pte;

use super::tlb::TlbEntry;
use crate::layout::{APIC_PHYS, APIC_WINDOW, DIRECT, IMAGE};
use crate::memory::UNCACHED;

/// Tables below the top level; when they are used up, all start again.
const POOL: usize = 32;
const INNER: u64 = Pte::PRESENT | Pte::WRITE | Pte::USER;
const LARGE_BYTES: u64 = Stride::Page2M.bytes();

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Table([u64; 512]);

const EMPTY: Table = Table([0; 512]);

const fn index(va: u64, level: u32) -> usize {
    tlbkit_arch::index(VirtAddr(va), level) as usize
}

/// Slots of the top level that are never emptied.
const FIXED: [usize; 2] = [index(DIRECT, 4), index(IMAGE, 4)];

fn physical(table: &Table) -> u64 {
    core::ptr::from_ref(table) as u64 - IMAGE
}

/// What all CPUs share: the first GiB of memory, seen from both of the kernel's slots, and the APIC.
struct Shared {
    memory: Table,
    apic: Table,
    direct_map: Table,
    image: Table,
}

struct SharedCell(UnsafeCell<Shared>);

// SAFETY: written once, below, and then only read.
unsafe impl Sync for SharedCell {}

static SHARED: SharedCell =
    SharedCell(UnsafeCell::new(Shared { memory: EMPTY, apic: EMPTY, direct_map: EMPTY, image: EMPTY }));
static READY: Once<&'static Shared> = Once::new();

fn shared() -> &'static Shared {
    READY.call_once(|| {
        // SAFETY: nothing else uses it before this has run.
        let shared = unsafe { &mut *SHARED.0.get() };
        for (at, entry) in (0..).step_by(LARGE_BYTES as usize).zip(&mut shared.memory.0) {
            *entry = at | INNER | Pte::LARGE;
        }
        shared.apic.0[index(APIC_WINDOW, 2)] = APIC_PHYS | INNER | Pte::LARGE | UNCACHED;
        shared.direct_map.0[index(DIRECT, 3)] = physical(&shared.memory) | INNER;
        shared.image.0[index(IMAGE, 3)] = physical(&shared.memory) | INNER;
        shared.image.0[index(APIC_WINDOW, 3)] = physical(&shared.apic) | INNER;
        shared
    })
}

/// The tables of one CPU.
pub(super) struct Shadow {
    top: Table,
    pool: [Table; POOL],
    used: usize,
    has_kernel_pages: bool,
}

impl Shadow {
    pub(super) const fn new() -> Self {
        Self { top: EMPTY, pool: [EMPTY; POOL], used: 0, has_kernel_pages: false }
    }

    /// Makes the hardware walk these tables.
    pub(super) fn start(&mut self) {
        let shared = shared();
        self.top.0[index(DIRECT, 4)] = physical(&shared.direct_map) | INNER;
        self.top.0[index(IMAGE, 4)] = physical(&shared.image) | INNER;
        self.load();
    }

    fn load(&self) {
        // SAFETY: ring 0; the fixed slots map all that the monitor and the guest's kernel use.
        unsafe { tlbkit_x86::write_cr3(Cr3::flushing(PhysAddr(physical(&self.top)), Pcid::KERNEL)) }
    }

    /// True if the hardware's tables for `va` come from the software TLB.
    pub(super) fn has(va: u64) -> bool {
        !FIXED.contains(&index(va, 4))
    }

    /// Forgets every page.
    pub(super) fn empty(&mut self) {
        if self.used == 0 {
            return;
        }
        for (n, entry) in self.top.0.iter_mut().enumerate() {
            if !FIXED.contains(&n) {
                *entry = 0;
            }
        }
        self.used = 0;
        self.has_kernel_pages = false;
        self.load();
    }

    /// Forgets at least the pages that programs may not use.
    pub(super) fn empty_kernel_pages(&mut self) {
        if self.has_kernel_pages {
            self.empty();
        }
    }

    /// Maps the base page that `entry` has for `va`. A store through a clean entry must fault, to set the D bit.
    pub(super) fn map(&mut self, va: u64, entry: &TlbEntry) {
        if self.used + 3 > POOL {
            self.empty();
        }
        self.has_kernel_pages |= !entry.rights.is_user;
        let write = if entry.rights.may_write && entry.is_dirty { Pte::WRITE } else { 0 };
        let mut table = &raw mut self.top;
        for level in [4, 3, 2] {
            // SAFETY: one of our own tables: the top, or one of the pool that an entry made here leads to.
            let entry = unsafe { &mut (*table).0[index(va, level)] };
            if *entry == 0 {
                self.pool[self.used] = EMPTY;
                *entry = physical(&self.pool[self.used]) | INNER;
                self.used += 1;
            }
            table = ((*entry & !0xfff) + IMAGE) as *mut Table;
        }
        // SAFETY: as above; ring 0.
        unsafe {
            (*table).0[index(va, 1)] = entry.target(va).0 | Pte::PRESENT | Pte::USER | Pte::NO_EXECUTE | write;
            tlbkit_x86::invlpg(VirtAddr(va));
        }
    }
}

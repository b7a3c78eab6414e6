//! The kernel's upper half beside the windows of `tlbkit-pmap`: direct map, image, APIC.
//!
//! Programs run code of the image in ring 3, so its text and constants carry the user bit, as do their stacks.

use tlbkit::{Isolation, PhysAddr, Stride, VirtAddr};
use tlbkit_arch::addr::TOP_LEVEL;
use tlbkit_arch::{Pte, entry_at};
use tlbkit_pmap::{Memory, Purpose};

use super::frames::{FRAME_BYTES, Ram};
use crate::layout::{APIC_PHYS, APIC_WINDOW, DIRECT, DIRECT_BYTES, IMAGE};

/// The write-through and cache-disable bits of an entry: the data caches hold nothing of the page.
pub(crate) const UNCACHED: u64 = 1 << 3 | 1 << 4;
const LARGE_BYTES: u64 = Stride::Page2M.bytes();
const TOUCHED: u64 = Pte::PRESENT | Pte::ACCESSED | Pte::DIRTY;
const INNER: u64 = Pte::PRESENT | Pte::WRITE | Pte::USER | Pte::ACCESSED;

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_start: u8;
    static __rodata_end: u8;
    static __data_start: u8;
    static __user_start: u8;
    static __user_end: u8;
    static __image_end: u8;
}

macro_rules! address {
    ($symbol:ident) => {
        (&raw const $symbol) as u64
    };
}

/// Fills `root`. Under isolation nothing is global: a global entry of the kernel would survive into user mode.
pub(super) fn map(root: PhysAddr, isolation: Isolation) {
    let global = if isolation == Isolation::On { 0 } else { Pte::GLOBAL };
    let data = TOUCHED | Pte::WRITE | Pte::NO_EXECUTE | global;
    for at in (0..DIRECT_BYTES).step_by(LARGE_BYTES as usize) {
        set(root, DIRECT + at, 2, Pte::new(PhysAddr(at), data | Pte::LARGE));
    }
    let user = Pte::USER;
    for (start, end, bits) in [
        (address!(__text_start), address!(__text_end), TOUCHED | user | global),
        (address!(__rodata_start), address!(__rodata_end), TOUCHED | user | Pte::NO_EXECUTE | global),
        (address!(__data_start), address!(__user_start), data),
        (address!(__user_start), address!(__user_end), data | user),
        (address!(__user_end), address!(__image_end), data),
    ] {
        for va in (start & !0xfff..end).step_by(FRAME_BYTES as usize) {
            set(root, va, 1, Pte::new(PhysAddr(va - IMAGE), bits));
        }
    }
    set(root, APIC_WINDOW, 1, Pte::new(PhysAddr(APIC_PHYS), data | UNCACHED));
}

/// Writes one leaf of `level`.
fn set(root: PhysAddr, va: u64, level: u32, pte: Pte) {
    Ram.store(slot(root, va, level), pte.0);
}

/// Where the entry of a base page stands.
pub(super) fn entry(root: PhysAddr, va: u64) -> PhysAddr {
    slot(root, va, 1)
}

/// Where the entry of `level` stands, with the tables on the way to it.
fn slot(root: PhysAddr, va: u64, level: u32) -> PhysAddr {
    let mut table = root;
    for above in (level + 1..=TOP_LEVEL).rev() {
        let slot = entry_at(table, VirtAddr(va), above);
        if Ram.load(slot) == 0 {
            let frame = Ram.alloc(12, Purpose::Table).expect("memory for the kernel's own tables");
            Ram.store(slot, frame.at.0 | INNER);
        }
        table = Pte(Ram.load(slot)).frame();
    }
    entry_at(table, VirtAddr(va), level)
}

//! A kernel on OSTD, the same with OSTD's own TLB code and with tlbkit: it checks values for `seconds=`, or counts
//! instructions, each of which the emulator's clock takes for 2^`shift=` nanoseconds.
#![no_std]
#![no_main]

extern crate alloc;

mod counts;
mod sched;
mod stress;
mod tests;

use core::alloc::Layout;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, Ordering};

use alloc::sync::Arc;
use osdk_frame_allocator::FrameAllocator;
use osdk_heap_allocator::{HeapAllocator, type_from_layout};
use ostd::arch::device::io_port::WriteOnlyAccess;
use ostd::boot::smp::register_ap_entry;
use ostd::cpu_local_cell;
use ostd::io::IoPort;
use ostd::mm::frame::GlobalFrameAllocator;
use ostd::mm::heap::SlotInfo;
use ostd::mm::vm_space::VmSpace;
use ostd::mm::{CachePolicy, Frame, FrameAllocOptions, PAGE_SIZE, Paddr, PageFlags, PageProperty, UFrame, Vaddr, VmIo};
use ostd::power::{ExitCode, inject_poweroff_handler, poweroff};
use ostd::prelude::println;
use ostd::task::disable_preempt;

#[ostd::global_frame_allocator]
static FRAMES: Poisoning = Poisoning(FrameAllocator);

/// What stands in a frame that was freed.
const POISON: u64 = u64::MAX;

/// Writes into each frame that is freed, so that a read through a stale translation is noticed.
struct Poisoning(FrameAllocator);

cpu_local_cell! {
    static IS_POISONED: bool = false;
}

impl GlobalFrameAllocator for Poisoning {
    fn alloc(&self, layout: Layout) -> Option<Paddr> {
        self.0.alloc(layout)
    }

    fn dealloc(&self, at: Paddr, bytes: usize) {
        let _irqs = ostd::irq::disable_local();
        if bytes == PAGE_SIZE
            && !IS_POISONED.load()
            && let Ok(frame) = Frame::from_unused(at, ())
        {
            frame.write_val(0, &POISON).expect("a frame has a first word");
            IS_POISONED.store(true);
            drop(frame); // which comes here again
            IS_POISONED.store(false);
        } else {
            self.0.dealloc(at, bytes);
        }
    }

    fn add_free_memory(&self, at: Paddr, bytes: usize) {
        self.0.add_free_memory(at, bytes);
    }
}

#[ostd::global_heap_allocator]
static HEAP: HeapAllocator = HeapAllocator;

#[ostd::global_heap_allocator_slot_map]
const fn slot_of(layout: Layout) -> Option<SlotInfo> {
    type_from_layout(layout)
}

/// Who fails first is told alone.
static FAILED: AtomicU32 = AtomicU32::new(0);

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if FAILED.fetch_add(1, Ordering::Relaxed) > 0 {
        loop {
            core::hint::spin_loop();
        }
    }
    if cfg!(ktest) {
        tests::end(info);
    }
    println!("{{\"test\":\"panic\",\"why\":\"{}\"}}", info.message());
    poweroff(ExitCode::Failure)
}

#[cfg_attr(not(ktest), ostd::main)]
#[cfg_attr(ktest, ostd::ktest::main)]
fn main() {
    inject_poweroff_handler(end_bochs);
    // A fault of an access to user memory is for the code that made the access.
    ostd::arch::trap::inject_user_page_fault_handler(|_| Err(()));
    let line = &ostd::boot::boot_info().kernel_cmdline;
    let number = |name| argument(line, name).and_then(|text| text.parse().ok());
    if cfg!(ktest) {
        return tests::begin(number("from=").unwrap_or(0) as usize);
    }
    match number("shift=") {
        Some(shift) => counts::begin(shift as u32),
        None => stress::begin(number("seconds=").unwrap_or(10), number("seed=").unwrap_or(1)),
    }
    register_ap_entry(|| {});
}

/// Ends the machine where OSTD has no way of its own to, which it has in QEMU alone.
fn end_bochs(_: ExitCode) {
    const BOCHS_EXIT: u16 = 0x8900;
    if let Ok(port) = IoPort::<u8, WriteOnlyAccess>::acquire(BOCHS_EXIT) {
        b"Shutdown".iter().for_each(|&letter| port.write(letter));
    }
}

fn argument<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name))
}

/// A page that a program may read and write.
fn read_write() -> PageProperty {
    PageProperty::new_user(PageFlags::RW, CachePolicy::Writeback)
}

/// A frame whose first word is `tag`.
fn frame(tag: u64) -> UFrame {
    let frame = FrameAllocOptions::new().zeroed(false).alloc_frame().expect("the machine has memory");
    frame.write_val(0, &tag).expect("a frame has a first word");
    frame.write_val(8, &0u64).expect("a frame has a second word");
    frame.into()
}

/// Maps `pages` new frames from `va` on.
fn map(space: &Arc<VmSpace>, va: Vaddr, pages: usize, tag: impl Fn(usize) -> u64) {
    let guard = disable_preempt();
    let mut cursor = space.cursor_mut(&guard, &(va..va + pages * PAGE_SIZE)).expect("the range is a program's");
    for page in 0..pages {
        cursor.map(frame(tag(page)), read_write());
    }
}

//! What page tables need of physical memory: words of table frames, frames, and how often each is referenced.

use tlbkit::PhysAddr;

/// One reference to a frame of `1 << shift` bytes. Not `Copy`, not `Clone`: dropping a reference twice does not
/// compile.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame {
    /// Physical address of its first byte.
    pub at: PhysAddr,
    /// log2 of its size.
    pub shift: u8,
}

/// What a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A page table: 512 entries, zeroed; twice as many when asked for with a shift of 13.
    Table,
    /// Data of a program, zeroed.
    Data,
    /// Data of a program that is [copied](Memory::copy) to the frame, all of it, before anybody else can reach it: what
    /// it held before is left there.
    Copy,
}

/// Physical memory. The simulated machine's walker reads the same words.
///
/// Every frame has a count of references. [`alloc`](Self::alloc) starts it at one; a page-table entry owns one, unless
/// it is marked [`ZERO`](crate::pte::ZERO).
///
/// Tables are found without a lock, so words are read and written as x86-64 does it: a load is at least an Acquire and
/// a store at least a Release, exchanges are both. A frame is zeroed before [`alloc`](Self::alloc) returns.
pub trait Memory {
    /// Reads a page-table entry, or the checked word of a data frame.
    fn load(&self, at: PhysAddr) -> u64;
    /// Writes one.
    fn store(&self, at: PhysAddr, value: u64);
    /// Exchanges one atomically: the only right way to take an entry whose A and D bits count (C-41).
    fn swap(&self, at: PhysAddr, value: u64) -> u64;
    /// Replaces one if it is still `current`.
    ///
    /// # Errors
    /// The value found instead.
    fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<u64, u64>;
    /// Copies a data frame of `1 << shift` bytes.
    fn copy(&self, from: PhysAddr, to: PhysAddr, shift: u8);
    /// A frame of `1 << shift` bytes, zeroed unless it is for a [`Copy`](Purpose::Copy) (12, 21, or 13 for the two
    /// halves of an isolated root), aligned to its size, referenced once; or nothing if memory is exhausted.
    fn alloc(&self, shift: u8, purpose: Purpose) -> Option<Frame>;
    /// Takes back a frame whose last reference has been released.
    fn free(&self, frame: Frame);
    /// True if the kernel wants freed page tables back at once rather than at destroy.
    fn is_low(&self) -> bool;
    /// Adds a reference to the frame that begins at `at`.
    fn share(&self, at: PhysAddr);
    /// Drops a reference to the frame that begins at `at`; true if it was the last.
    fn release(&self, at: PhysAddr) -> bool;
    /// References to the frame that begins at `at`. A holder that reads 1 is alone, and stays so while it holds it.
    fn references(&self, at: PhysAddr) -> u32;
    /// Makes 512 base frames, referenced once each, of the 2 MiB data frame at `at`, whose only reference the caller
    /// has.
    fn split(&self, at: PhysAddr);
    /// The frame of the page cache that holds page `index` of `file`. The cache keeps a reference of its own; the
    /// caller shares the frame before it maps it.
    fn file_page(&self, file: u32, index: u64) -> PhysAddr;
    /// The one base frame of zeros, never written, never freed, not counted.
    fn zero_page(&self) -> PhysAddr;

    /// Base pages that a load's fault in a mapping of a file maps at once, where nothing is mapped yet: those of the
    /// aligned window around it, as all of a file is in memory. A power of two, at most 512, so that the window lies in
    /// one page table; 1 maps the page alone.
    fn fault_around(&self) -> u64 {
        1
    }

    /// Passes over empty entries of a table, from `at` on and `most` at the most, and says over how many: each as if by
    /// `loads` loads on the way to it. For a memory in which loads take time and nobody acts meanwhile. Others pass
    /// over none: each entry is then walked to.
    fn pass_empty(&self, at: PhysAddr, most: u64, loads: u32) -> u64 {
        let _ = (at, most, loads);
        0
    }

    /// Drops a reference and frees the frame if it was the last. Only for what no CPU can reach any more (INV-1).
    fn put(&self, frame: Frame) {
        if self.release(frame.at) {
            self.free(frame);
        }
    }
}

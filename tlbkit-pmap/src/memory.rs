//! What page tables need of physical memory: words of table frames, and frames.

use tlbkit::PhysAddr;

/// A frame of `1 << shift` bytes (12 or 21), owned. Not `Copy`, not `Clone`: freeing it twice does not compile.
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
    /// A page table: 512 entries, zeroed.
    Table,
    /// Data of a program, zeroed.
    Data,
}

/// Physical memory. The simulated machine's walker reads the same words.
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
    /// A zeroed frame, or nothing if memory is exhausted.
    fn alloc(&self, shift: u8, purpose: Purpose) -> Option<Frame>;
    /// Takes a frame back.
    fn free(&self, frame: Frame);
    /// True if the kernel wants freed page tables back at once rather than at destroy.
    fn is_low(&self) -> bool;
}

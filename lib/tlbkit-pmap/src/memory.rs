//! The interface to physical memory: page-table entries, frames and their reference counts.

use tlbkit::{PhysAddr, Sharers};

/// One reference to a frame of `1 << shift` bytes. It is neither `Copy` nor `Clone`, so that code which puts a
/// reference twice does not compile.
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
    /// A page-table page: 512 zeroed entries, or 1024 with a shift of 13.
    Table,
    /// A page of a program, zeroed.
    Data,
    /// A page of a program that is about to be overwritten as a whole by a [copy](Memory::copy), before anything else
    /// can reach it. It is not zeroed.
    Copy,
}

/// Physical memory.
///
/// Every frame has a reference count. [`alloc`](Self::alloc) starts it at one. A page-table entry owns one reference,
/// unless it is marked [`ZERO`](crate::pte::ZERO).
///
/// Page tables are walked without a lock, so entries must be accessed with the ordering that x86-64 gives: a load is at
/// least an Acquire, a store at least a Release, and an exchange both. A frame is zeroed before [`alloc`](Self::alloc)
/// returns.
pub trait Memory {
    /// Reads the page-table entry at `at`, or a word of a data frame.
    fn load(&self, at: PhysAddr) -> u64;
    /// Writes it.
    fn store(&self, at: PhysAddr, value: u64);
    /// Exchanges it atomically, like `ptep_get_and_clear`: a load followed by a store would lose an A or D bit that a
    /// CPU sets in between (C-41).
    fn swap(&self, at: PhysAddr, value: u64) -> u64;
    /// Replaces it if it still is `current`.
    ///
    /// # Errors
    /// The value that was found instead.
    fn compare_exchange(&self, at: PhysAddr, current: u64, new: u64) -> Result<u64, u64>;
    /// Copies a data frame of `1 << shift` bytes.
    fn copy(&self, from: PhysAddr, to: PhysAddr, shift: u8);
    /// A frame of `1 << shift` bytes, aligned to its size, with one reference; `None` if memory is exhausted. The shift
    /// is 12, 21, or 13 for a root under page-table isolation, whose user half is its second page. The frame is zeroed
    /// unless it is for a [`Copy`](Purpose::Copy).
    fn alloc(&self, shift: u8, purpose: Purpose) -> Option<Frame>;
    /// Frees a frame whose last reference has been released.
    fn free(&self, frame: Frame);
    /// True if memory is so low that page tables are to be freed at once rather than when the space is destroyed.
    fn is_low(&self) -> bool;
    /// Adds a reference to the frame that begins at `at`.
    fn share(&self, at: PhysAddr);
    /// Drops a reference to the frame that begins at `at`. True if it was the last one.
    fn release(&self, at: PhysAddr) -> bool;
    /// The number of references to the frame that begins at `at`. A holder that reads 1 is the only one, and remains so
    /// as long as it does not share the frame.
    fn references(&self, at: PhysAddr) -> u32;
    /// Splits the 2 MiB data frame at `at`, to which the caller owns the only reference, into 512 base frames with one
    /// reference each.
    fn split(&self, at: PhysAddr);
    /// The page-cache frame of page `index` of `file`. The page cache keeps its own reference; the caller adds one with
    /// [`share`](Self::share) before it maps the frame.
    fn file_page(&self, file: u32, index: u64) -> PhysAddr;
    /// The zero page: never written, never freed, not reference-counted.
    fn zero_page(&self) -> PhysAddr;

    /// How many base pages a read fault in a file mapping maps around the faulting address, as Linux'
    /// `fault_around_bytes` does, where nothing is mapped yet. The window is aligned to its size. All pages of a file
    /// count as cached. A power of two, at most 512, so that the window lies in one page-table page; 1 maps only the
    /// page itself.
    fn fault_around(&self) -> u64 {
        1
    }

    /// Which CPUs' directories name the last-level table at `table`: kept beside the frame, as its reference count is,
    /// and [cleared](Sharers::clear) by [`alloc`](Self::alloc). Asked only for spaces whose CPUs have
    /// [directories of their own](crate::Vm::give_directories), and always answered for these.
    fn sharers(&self, table: PhysAddr) -> Option<&Sharers> {
        let _ = table;
        None
    }

    /// `root` was made for a CPU that has [directories of its own](crate::Vm::give_directories) in the space whose
    /// table is `space`, and no CPU has loaded it yet: for a kernel that keeps more in it than the kernel half, such as
    /// the way into the kernel in the user half under isolation.
    fn adopt_root(&self, root: PhysAddr, space: PhysAddr) {
        let _ = (root, space);
    }

    /// True if code of the kernel reads page tables with interrupts off and takes no lock, as fast GUP does (C-23): a
    /// flush that frees tables then interrupts each CPU that runs the space, whatever would reach it otherwise
    /// ([`TlbGather::interrupt_walkers`](tlbkit::TlbGather::interrupt_walkers)).
    fn has_lockless_walkers(&self) -> bool {
        false
    }

    /// Skips up to `most` empty entries from `at` on, and returns how many were skipped; each is accounted for as the
    /// `loads` loads of a walk to it. For a simulated memory, in which a load takes time and no other CPU acts
    /// meanwhile. By default none is skipped, and the caller walks to each entry.
    fn pass_empty(&self, at: PhysAddr, most: u64, loads: u32) -> u64 {
        let _ = (at, most, loads);
        0
    }

    /// Drops a reference, and frees the frame if it was the last one. Only for frames that no CPU can reach any more
    /// (INV-1).
    fn put(&self, frame: Frame) {
        if self.release(frame.at) {
            self.free(frame);
        }
    }
}

//! What the simulated kernel does that a policy of the protocol says nothing of.

use tlbkit::KernelFlushes;

use super::mmap_lock::MmapLockWaits;
use crate::code::{Code, Sweep};
use crate::multiprocessor::ParavirtualFlush;

/// How a kernel reads the pages of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileReads {
    /// Through its map of all memory, as Linux does on 64-bit machines: nothing is mapped for it.
    #[default]
    DirectMap,
    /// Through windows of its own addresses, mapped and unmapped for each piece, as NetBSD's buffer cache does.
    Windows,
}

/// Who takes a per-VMA lock, the lock of a single region, in place of the mmap lock, which is that of all regions of a
/// space. A change of regions takes the mmap lock in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PerVmaLocks {
    /// Nobody: there are no such locks.
    #[default]
    Absent,
    /// Page faults: Linux since 6.4.
    ForFaults,
    /// Page faults, and calls that give pages back and keep the regions: Linux since 6.17.
    ForFaultsAndSweeps,
}

/// Which lock a call or a fault asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockWanted {
    /// The mmap lock, to change regions.
    MmapWrite,
    /// The mmap lock, to leave the regions as they are.
    MmapRead,
    /// The lock of the region in which `pages` pages from `va` on lie, to leave it as it is. If they lie in several
    /// regions, the mmap lock.
    VmaRead { va: u64, pages: u64 },
}

impl PerVmaLocks {
    /// Which lock a fault at `va` asks for.
    pub(super) fn wanted_by_fault(self, va: u64) -> LockWanted {
        match self {
            Self::Absent => LockWanted::MmapRead,
            Self::ForFaults | Self::ForFaultsAndSweeps => LockWanted::VmaRead { va, pages: 1 },
        }
    }

    /// Which lock a call asks for that gives back `pages` pages from `va` on.
    pub(super) fn wanted_by_sweep(self, va: u64, pages: u64) -> LockWanted {
        match self {
            Self::Absent | Self::ForFaults => LockWanted::MmapRead,
            Self::ForFaultsAndSweeps => LockWanted::VmaRead { va, pages },
        }
    }
}

/// The kernel of a run, as far as kernels differ in more than their policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelSettings {
    /// Whose instructions the run is charged with, and whose lines tell other CPUs.
    pub code: Code,
    /// How it reads files.
    pub file_reads: FileReads,
    /// Base pages of a file that a load's fault maps at once: a power of two, at most 512.
    pub fault_around: u64,
    /// Who takes a per-VMA lock.
    pub per_vma_locks: PerVmaLocks,
    /// How tasks wait for the mmap lock.
    pub mmap_lock_waits: MmapLockWaits,
    /// What becomes of a CPU's new pages before the kernel sweeps a range, if it differs there from the kernel of
    /// `code`.
    pub sweep: Option<Sweep>,
    /// When flushes of kernel addresses reach a CPU that runs a program.
    pub kernel_flushes: KernelFlushes,
    /// Whether the host of a guest flushes the CPUs that it has taken away.
    pub paravirtual_flush: ParavirtualFlush,
}

impl Default for KernelSettings {
    fn default() -> Self {
        Self {
            code: Code::TLBKIT,
            file_reads: FileReads::default(),
            fault_around: 1,
            per_vma_locks: PerVmaLocks::default(),
            mmap_lock_waits: MmapLockWaits::default(),
            sweep: None,
            kernel_flushes: KernelFlushes::AtOnce,
            paravirtual_flush: ParavirtualFlush::Off,
        }
    }
}

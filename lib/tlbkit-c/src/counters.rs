//! Counters, read one by one.

use tlbkit::{CpuStats, SIZES};

use crate::machine::{Need, enter};
use crate::status::{Status, report};
use crate::storage::{MachineStorage, put};
use crate::words::{place_of, reason_of};

/// # Safety
/// The crate's contract for `machine`.
unsafe fn stats(machine: *const MachineStorage, cpu: u32) -> Result<&'static CpuStats, Status> {
    // SAFETY: the contract.
    unsafe { enter(machine, cpu, Need::Online) }?.cpu().stats().ok_or(Status::NotCounted)
}

/// Writes into `count` how many flushes of CPU `cpu` had this `enum tlbkit_reason` and `enum tlbkit_place`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_count(
    machine: *const MachineStorage,
    cpu: u32,
    reason: u32,
    place: u32,
    count: *mut u64,
) -> Status {
    report(|| {
        let (reason, place) = (reason_of(reason)?, place_of(place)?);
        // SAFETY: the crate's contract.
        unsafe { put(count, stats(machine, cpu)?.events(reason, place)) }
    })
}

/// Flushes of one size.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeCount {
    /// How many.
    pub samples: u64,
    /// Cycles of their local halves.
    pub cycles: u64,
}

/// Writes into `count` how many flushes of CPU `cpu` were of `pages` pages, 1 to 512; 0 for flushes of everything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_count_size(
    machine: *const MachineStorage,
    cpu: u32,
    pages: u32,
    count: *mut SizeCount,
) -> Status {
    report(|| {
        let row = Some(pages as usize).filter(|pages| *pages <= SIZES).ok_or(Status::BadValue)?;
        // SAFETY: the crate's contract.
        let found = unsafe { stats(machine, cpu) }?.size(row);
        // SAFETY: the crate's contract.
        unsafe { put(count, SizeCount { samples: found.samples, cycles: found.cycles }) }
    })
}

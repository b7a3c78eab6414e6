//! What only the policies of older kernels need: counters of flushes, and Linux 3.x' `tlb_flushall_shift` rule.

use tlbkit::{CpuStats, Place, SIZES};

use crate::gather::open;
use crate::machine::{Need, enter};
use crate::status::{Status, status_of};
use crate::storage::{GatherStorage, MachineStorage, write_to};
use crate::values::reason_of;

fn place_of(place: u32) -> Result<Place, Status> {
    Place::ALL.get(place as usize).copied().ok_or(Status::BadValue)
}

/// # Safety
/// The crate's contract for `machine`.
unsafe fn stats(machine: *const MachineStorage, cpu: u32) -> Result<&'static CpuStats, Status> {
    // SAFETY: the contract.
    unsafe { enter(machine, cpu, Need::Elsewhere) }?.cpu().stats().ok_or(Status::NotCounted)
}

/// Writes to `count` how many flushes of CPU `cpu` had this `enum tlbkit_reason` and `enum tlbkit_place`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_count(
    machine: *const MachineStorage,
    cpu: u32,
    reason: u32,
    place: u32,
    count: *mut u64,
) -> Status {
    status_of(|| {
        let (reason, place) = (reason_of(reason)?, place_of(place)?);
        // SAFETY: the crate's contract.
        unsafe { write_to(count, stats(machine, cpu)?.events(reason, place)) }
    })
}

/// The flushes of one size.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeCount {
    /// Their number.
    pub samples: u64,
    /// The cycles that their local parts took.
    pub cycles: u64,
}

/// Writes to `count` how many flushes of CPU `cpu` were of `pages` pages, from 1 to 512; 0 stands for full flushes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_count_size(
    machine: *const MachineStorage,
    cpu: u32,
    pages: u32,
    count: *mut SizeCount,
) -> Status {
    status_of(|| {
        let row = Some(pages as usize).filter(|pages| *pages <= SIZES).ok_or(Status::BadValue)?;
        // SAFETY: the crate's contract.
        let found = unsafe { stats(machine, cpu) }?.size(row);
        // SAFETY: the crate's contract.
        unsafe { write_to(count, SizeCount { samples: found.samples, cycles: found.cycles }) }
    })
}

/// Sets the number of mapped pages of the space, which the `tlb_flushall_shift` rule needs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_active_pages(gather: *mut GatherStorage, pages: u64) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        unsafe { open(gather) }?.inner.set_active_pages(pages);
        Ok(())
    })
}

/// True if the policy wants the page tables to be searched for large pages before the flush. If the caller finds one,
/// it calls `tlbkit_gather_everything`. False on misuse.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_wants_walk(gather: *mut GatherStorage, cpu: u32) -> bool {
    // SAFETY: the crate's contract.
    let Ok(gather) = (unsafe { open(gather) }) else { return false };
    gather.enter(cpu, Need::Online).is_ok_and(|percpu| gather.inner.wants_large_page_walk(percpu.cpu()))
}

//! Spaces: how they are made and how they end.

use core::sync::atomic::{AtomicU64, Ordering};

use tlbkit::{AddressSpace, Destroyed, PhysAddr, SpaceToken};

use crate::machine::{Machine, Need, enter};
use crate::space::{Space, tlbkit_set_words};
use crate::status::{Status, report};
use crate::storage::{MachineStorage, Marked, SpaceStorage, check, put, zeroed};

/// Makes a space for the page tables at `root`; under isolation the user half's top-level table is one page above.
/// `set` has at least `tlbkit_set_words` words, which the call sets to zero. Both belong to the space until
/// `tlbkit_space_destroy` gives it back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_init(
    space: *mut SpaceStorage,
    machine: *const MachineStorage,
    root: u64,
    set: *mut u64,
    set_words: usize,
) -> Status {
    // SAFETY: the crate's contract.
    report(|| unsafe { init(space, machine, root, set, set_words) })
}

/// # Safety
/// The crate's contract for every pointer.
unsafe fn init(
    space: *mut SpaceStorage,
    machine: *const MachineStorage,
    root: u64,
    set: *mut u64,
    set_words: usize,
) -> Result<(), Status> {
    check(space)?;
    // SAFETY: the contract.
    let machine = unsafe { Machine::find(machine) }?;
    if set_words < tlbkit_set_words(machine.cpu_count) {
        return Err(Status::TooSmall);
    }
    if !root.is_multiple_of(tlbkit::PAGE_BYTES) {
        return Err(Status::BadValue);
    }
    // SAFETY: the contract; 'static is the space's life, which ends by its own mark.
    let set = unsafe { zeroed(set, set_words) }?;
    let inner = AddressSpace::new(machine.tlb.fresh_id(), SpaceToken(space as u64), PhysAddr(root), set);
    // SAFETY: the contract.
    unsafe { Space::make(space, Space { mark: AtomicU64::new(0), inner }) }
}

/// Ends a space that no task runs any more, interrupting the CPUs that hold it lazily. `may_free` becomes true if its
/// tables can be freed now; otherwise when `last_lazy_reference` names it. Interrupts on; not from a CPU that runs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_destroy(
    machine: *const MachineStorage,
    cpu: u32,
    space: *mut SpaceStorage,
    may_free: *mut bool,
) -> Status {
    report(|| {
        check(may_free)?;
        // SAFETY: the crate's contract.
        let (door, space) = unsafe { (enter(machine, cpu, Need::MayWait)?, Space::find(space)?) };
        if door.cpu().is_running(&space.inner) {
            return Err(Status::SpaceRunsHere);
        }
        // Release: an end is an end for all who look; partner is the Acquire in `find`.
        space.mark.store(0, Ordering::Release);
        let ended = door.cpu().destroy(&space.inner);
        // SAFETY: the crate's contract.
        unsafe { put(may_free, ended == Destroyed::Now) }
    })
}

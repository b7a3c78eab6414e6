//! Spaces: how they are made and how they end.

use tlbkit::{AddressSpace, Destroyed, LazyReferences, SpaceToken};

use crate::machine::{Machine, Need, enter};
use crate::mark::Mark;
use crate::status::{Status, report};
use crate::storage::{MachineStorage, Marked, Space, SpaceStorage, check, put, root_at, zeroed};

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
    let root = root_at(root)?;
    // SAFETY: the contract; 'static is the space's life, which ends by its own mark.
    let set = unsafe { zeroed(set, set_words) }?;
    let inner = AddressSpace::new(machine.tlb.fresh_id(), SpaceToken(space as u64), root, set);
    // SAFETY: the contract.
    unsafe { Space::make(space, Space { mark: Mark::none(), inner }) }.map(drop)
}

/// Ends a space that no task runs any more; that another CPU runs it is told to the hook. This CPU leaves it if it
/// holds it lazily. `may_free` becomes true if the space and its tables can be freed now; otherwise another CPU holds
/// it lazily, and they can be freed when `last_lazy_reference` names it, which may be before this call returns. Where
/// the policy says `lazy_refs=shot-down`, and only there, such CPUs are interrupted, and `may_free` is always true.
/// Interrupts on; not from a CPU that runs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_destroy(
    machine: *const MachineStorage,
    cpu: u32,
    space: *mut SpaceStorage,
    may_free: *mut bool,
) -> Status {
    // SAFETY: the crate's contract.
    report(|| unsafe { end(machine, cpu, space, may_free, Need::MayWait) })
}

/// The same with interrupts on or off, and under locks that no switch takes: it interrupts nobody and waits for nobody
/// but a CPU in the middle of a switch. Not from an NMI, not in `last_lazy_reference`, and not where the policy says
/// `lazy_refs=shot-down`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_destroy_later(
    machine: *const MachineStorage,
    cpu: u32,
    space: *mut SpaceStorage,
    may_free: *mut bool,
) -> Status {
    // SAFETY: the crate's contract.
    report(|| unsafe { end(machine, cpu, space, may_free, Need::Online) })
}

/// # Safety
/// The crate's contract for every pointer.
unsafe fn end(
    machine: *const MachineStorage,
    cpu: u32,
    space: *mut SpaceStorage,
    may_free: *mut bool,
    need: Need,
) -> Result<(), Status> {
    check(may_free)?;
    // SAFETY: the contract.
    let (door, space) = unsafe { (enter(machine, cpu, need)?, Space::find(space)?) };
    let is_shot_down = door.cpu().tlb().policy().lazy_references == LazyReferences::ShotDown;
    if is_shot_down && need == Need::Online {
        return Err(Status::ShotDown);
    }
    if cfg!(feature = "checked") && door.cpu().is_running(&space.inner) {
        return Err(Status::SpaceRunsHere);
    }
    space.mark.clear();
    let ended = door.cpu().destroy(&space.inner);
    let stayed = door.assert_stayed();
    // SAFETY: the contract.
    unsafe { put(may_free, stayed.is_ok() && ended == Destroyed::Now) }?;
    stayed
}

/// Words that a space needs for the set of its CPUs.
#[unsafe(no_mangle)]
pub const extern "C" fn tlbkit_set_words(cpus: u32) -> usize {
    AddressSpace::set_words(cpus as usize)
}

/// The space's name, never used again; 0 if it was never made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_id(space: *const SpaceStorage) -> u64 {
    // SAFETY: the crate's contract.
    unsafe { Space::find(space) }.map_or(0, |space| space.inner.id().number())
}

/// How many revocations the space has seen, plus one; 0 if it was never made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_generation(space: *const SpaceStorage) -> u64 {
    // SAFETY: the crate's contract.
    unsafe { Space::find(space) }.map_or(0, |space| space.inner.generation().number())
}

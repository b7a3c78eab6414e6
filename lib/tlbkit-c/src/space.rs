//! Spaces: initialization, destruction, and what can be queried.

use tlbkit::{AddressSpace, Destroyed, LazyReferences, SpaceToken};

use crate::machine::{Machine, Need, enter};
use crate::mark::Mark;
use crate::status::{Status, status_of};
use crate::storage::{
    MachineStorage, Marked, Space, SpaceStorage, check_pointer, checked_root, write_to, zeroed_words,
};

/// Initializes a space for the page tables at `root`. Under page-table isolation, the top-level table of the user half
/// is the next page. `set` has at least `tlbkit_set_words` words, which the call zeroes: it becomes the CPU set of the
/// space, like `mm_cpumask`. The struct and `set` must stay in place until the space may be freed: see
/// `tlbkit_space_destroy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_init(
    space: *mut SpaceStorage,
    machine: *const MachineStorage,
    root: u64,
    set: *mut u64,
    set_words: usize,
) -> Status {
    // SAFETY: the crate's contract.
    status_of(|| unsafe { init(space, machine, root, set, set_words) })
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
    check_pointer(space)?;
    // SAFETY: the contract.
    let machine = unsafe { Machine::find(machine) }?;
    if set_words < tlbkit_set_words(machine.cpu_count) {
        return Err(Status::TooSmall);
    }
    let root = checked_root(root)?;
    // SAFETY: the contract; 'static stands for the life of the space, the end of which its mark records.
    let set = unsafe { zeroed_words(set, set_words) }?;
    let inner = AddressSpace::new(machine.tlb.fresh_id(), SpaceToken(space as u64), root, set);
    // SAFETY: the contract.
    unsafe { Space::init(space, Space { mark: Mark::none(), inner }) }.map(drop)
}

/// Destroys a space that no task runs any more. If another CPU still runs it, the panic hook is called. If this CPU
/// holds it in lazy TLB mode, it leaves it. `may_free` becomes true if the space and its page tables can be freed now.
/// Otherwise another CPU holds it lazily, and they can be freed once `last_lazy_reference` is called with it, which may
/// be before this call returns. Under the policy `lazy_refs=shot-down`, and only then, such CPUs are interrupted
/// instead, and `may_free` is always true. Interrupts on; not on a CPU that runs the space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_destroy(
    machine: *const MachineStorage,
    cpu: u32,
    space: *mut SpaceStorage,
    may_free: *mut bool,
) -> Status {
    // SAFETY: the crate's contract.
    status_of(|| unsafe { end(machine, cpu, space, may_free, Need::MayWait) })
}

/// As `tlbkit_space_destroy`, but with interrupts on or off, and with locks held, provided that no context switch takes
/// them: it interrupts no CPU, and waits only for a CPU in the middle of a switch. Not in an NMI, not in
/// `last_lazy_reference`, and not under the policy `lazy_refs=shot-down`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_destroy_later(
    machine: *const MachineStorage,
    cpu: u32,
    space: *mut SpaceStorage,
    may_free: *mut bool,
) -> Status {
    // SAFETY: the crate's contract.
    status_of(|| unsafe { end(machine, cpu, space, may_free, Need::Online) })
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
    check_pointer(may_free)?;
    // SAFETY: the contract.
    let (percpu, space) = unsafe { (enter(machine, cpu, need)?, Space::find(space)?) };
    let is_shot_down = percpu.cpu().tlb().policy().lazy_references == LazyReferences::ShotDown;
    if is_shot_down && need == Need::Online {
        return Err(Status::ShotDown);
    }
    if cfg!(feature = "checked") && percpu.cpu().is_running(&space.inner) {
        return Err(Status::SpaceRunsHere);
    }
    space.mark.clear();
    let ended = percpu.cpu().destroy(&space.inner);
    let stayed = percpu.assert_stayed();
    // SAFETY: the contract.
    unsafe { write_to(may_free, stayed.is_ok() && ended == Destroyed::Now) }?;
    stayed
}

/// Gives the space a PCID that all CPUs share, so that INVLPGB reaches it everywhere, like `use_global_asid`. The
/// policy does so by itself for a space whose flush has interrupted enough CPUs; a kernel that knows earlier asks. It
/// keeps the PCID until `tlbkit_space_destroy`. `pcid` becomes that PCID, or 0 if it has none: if the machine has no
/// INVLPGB, if the policy says `broadcast=off`, or if all are taken. Interrupts on.
#[cfg(feature = "broadcast")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_share_pcid(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
    pcid: *mut u32,
) -> Status {
    status_of(|| {
        check_pointer(pcid)?;
        // SAFETY: the crate's contract.
        let (percpu, space) = unsafe { (enter(machine, cpu, Need::MayWait)?, Space::find(space)?) };
        let shared = percpu.cpu().share_pcid(&space.inner).map_or(0, |pcid| u32::from(pcid.0));
        // SAFETY: the crate's contract.
        unsafe { write_to(pcid, shared) }?;
        percpu.assert_stayed()
    })
}

/// The number of words of a space's CPU set.
#[unsafe(no_mangle)]
pub const extern "C" fn tlbkit_set_words(cpus: u32) -> usize {
    AddressSpace::set_words(cpus as usize)
}

/// The id of the space, which is never reused, like `context.ctx_id`. 0 if it was not initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_id(space: *const SpaceStorage) -> u64 {
    // SAFETY: the crate's contract.
    unsafe { Space::find(space) }.map_or(0, |space| space.inner.id().number())
}

/// The generation of the space, like `context.tlb_gen`: one more than the number of revocations so far. 0 if it was not
/// initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_space_generation(space: *const SpaceStorage) -> u64 {
    // SAFETY: the crate's contract.
    unsafe { Space::find(space) }.map_or(0, |space| space.inner.generation().number())
}

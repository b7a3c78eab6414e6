//! Upper page tables of each CPU's own, as RadixVM and numaPTE have them: a flush interrupts only CPUs that have walked
//! to a table. The rule is at the head of `flush/sharers.rs` of the protocol.

use tlbkit::{IrqsOff, Reach, Sharers};

use crate::gather::{open, release_frames};
use crate::machine::{Need, enter};
use crate::status::{Status, status_of};
use crate::storage::{
    GatherStorage, MachineStorage, Marked, ReachStorage, SharersStorage, Space, SpaceStorage, check_pointer, write_to,
};

/// The sharers behind a pointer from C: words of zeros are those of a table that no directory names.
///
/// # Safety
/// The crate's contract.
unsafe fn sharers_of<'a>(sharers: *const SharersStorage) -> Result<&'a Sharers, Status> {
    check_pointer(sharers)?;
    // SAFETY: not null, aligned, and as large; any words are sharers.
    Ok(unsafe { &*sharers.cast::<Sharers>() })
}

/// # Safety
/// The crate's contract.
unsafe fn reach_of<'a>(reach: *mut ReachStorage) -> Result<&'a mut Reach, Status> {
    check_pointer(reach)?;
    // SAFETY: not null, aligned, and as large; any words are a reach; nothing else uses it meanwhile.
    Ok(unsafe { &mut *reach.cast::<Reach>() })
}

/// This CPU is about to store an entry for the last-level table of these sharers in a directory of its own, under the
/// lock of that table. A kernel keeps one `struct tlbkit_sharers` for each such table; all zeros is that of a new one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_sharers_hook(
    machine: *const MachineStorage,
    cpu: u32,
    sharers: *const SharersStorage,
) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract, for both.
        let (percpu, sharers) = unsafe { (enter(machine, cpu, Need::Online)?, sharers_of(sharers)?) };
        sharers.hook(percpu.cpu().id());
        Ok(())
    })
}

/// No directory names the table any more, and what was cached of it has been flushed; or its frame is a new table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_sharers_clear(sharers: *const SharersStorage) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        unsafe { sharers_of(sharers) }?.clear();
        Ok(())
    })
}

/// Writes false to `may_include` if `cpu`, which may be any, has not hooked the table: then its directory does not name
/// it. Under the lock under which CPUs do that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_sharers_may_include(
    sharers: *const SharersStorage,
    cpu: u32,
    may_include: *mut bool,
) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let found = unsafe { sharers_of(sharers) }?.may_include(tlbkit::CpuId(cpu));
        // SAFETY: as above.
        unsafe { write_to(may_include, found) }
    })
}

/// Begins a reach: nothing is recorded yet, so it names nobody.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_reach_begin(reach: *mut ReachStorage) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        *unsafe { reach_of(reach) }? = Reach::NOBODY;
        Ok(())
    })
}

/// Has the reach name every CPU: something was recorded that lies below no table whose sharers are known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_reach_everybody(reach: *mut ReachStorage) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        *unsafe { reach_of(reach) }? = Reach::EVERYBODY;
        Ok(())
    })
}

/// Adds the sharers of a table, below which something was recorded: after the last of its entries was changed, or, if
/// the table itself was taken out, after the directories of its sharers no longer name it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_reach_add(reach: *mut ReachStorage, sharers: *const SharersStorage) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract, for both.
        let (reach, sharers) = unsafe { (reach_of(reach)?, sharers_of(sharers)?) };
        reach.add(sharers);
        Ok(())
    })
}

/// As `tlbkit_gather_finish`, and interrupts only CPUs that `reach` names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_finish_within(
    gather: *mut GatherStorage,
    cpu: u32,
    reach: *const ReachStorage,
) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract, for both.
        let (gather, reach) = unsafe { (open(gather)?, *reach_of(reach.cast_mut())?) };
        let percpu = gather.enter(cpu, Need::MayWait)?;
        gather.mark.clear();
        // SAFETY: the mark is cleared, so it is never read again.
        let inner = unsafe { core::ptr::read(&gather.inner) };
        let held = inner.flush_within(percpu.cpu(), reach).into_frames();
        percpu.assert_stayed()?; // otherwise the frames may still be in use, so they are leaked
        release_frames(&held);
        Ok(())
    })
}

/// `root_here` of the table names other top-level tables for `space` than before: each CPU that has the space loaded
/// loads what it names there, with all that is cached of the space flushed, or does so when it runs the space next.
/// When this returns, no CPU walks what was there before. Interrupts on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_reload_roots(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract, for both.
        let (percpu, space) = unsafe { (enter(machine, cpu, Need::MayWait)?, Space::find(space)?) };
        percpu.cpu().reload_roots(&space.inner);
        percpu.assert_stayed()
    })
}

/// `root_here` names another top-level table on this CPU, which runs the space, than a moment ago, and the one before
/// mapped nothing of the user half: loads it, and flushes nothing. Interrupts have been off since before it changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_reload_root_here(
    machine: *const MachineStorage,
    cpu: u32,
    space: *const SpaceStorage,
) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract, for both.
        let (percpu, space) = unsafe { (enter(machine, cpu, Need::IrqsOff)?, Space::find(space)?) };
        if cfg!(feature = "checked") && !percpu.cpu().is_running(&space.inner) {
            return Err(Status::BadValue);
        }
        percpu.cpu().reload_root_here(&space.inner, &IrqsOff::assume());
        Ok(())
    })
}

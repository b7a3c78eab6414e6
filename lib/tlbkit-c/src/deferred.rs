//! Flush at reuse, Linux' LUF: a batch that is closed without a flush, and flushed when its frames are needed. The rule
//! is at the head of `flush/defer.rs` of the protocol; which pages may be deferred is the kernel's to see to.

use tlbkit::{Deferred, GracePeriods, IrqsOff, Passed};

use crate::batch::{Batch, release_held};
use crate::gather::HeldFrames;
use crate::machine::{Machine, Need};
use crate::mark::Mark;
use crate::status::{Status, status_of};
use crate::storage::{BatchStorage, GracePeriodsStorage, MachineStorage, Marked, PassedStorage, check_pointer};
use crate::values::reason_of;

/// What a `struct tlbkit_grace_periods` holds.
#[repr(C)]
struct Periods {
    mark: Mark,
    machine: &'static Machine,
    inner: GracePeriods<'static>,
}

// SAFETY: `repr(C)`, with the mark first; made below, and never ended.
unsafe impl Marked for Periods {
    type Storage = GracePeriodsStorage;
    const MARK: u64 = 0x746c_626b_6974_4750;
}

/// What a `struct tlbkit_batch` holds once it is deferred, under another mark.
#[repr(C)]
struct Closed {
    mark: Mark,
    machine: &'static Machine,
    inner: Deferred<HeldFrames>,
    /// Frames that still fit, and frames that are held.
    room: u32,
    held: u32,
}

// SAFETY: `repr(C)`, with the mark first; deferred and flushed below.
unsafe impl Marked for Closed {
    type Storage = BatchStorage;
    const MARK: u64 = 0x746c_626b_6974_4445;
}

impl Closed {
    /// Takes a deferred batch out of C's memory, which holds none from then on.
    ///
    /// # Safety
    /// The crate's contract; it was found, and nothing reads it afterwards.
    unsafe fn take(&self) -> Deferred<HeldFrames> {
        self.mark.clear();
        // SAFETY: the mark is cleared, so it is never read again.
        unsafe { core::ptr::read(&self.inner) }
    }
}

/// Initializes the grace periods of a machine. `passed` has one element per possible CPU, which belong to it for ever.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_grace_periods_init(
    periods: *mut GracePeriodsStorage,
    machine: *const MachineStorage,
    passed: *mut PassedStorage,
    passed_count: u32,
) -> Status {
    status_of(|| {
        check_pointer(passed)?;
        // SAFETY: the crate's contract.
        let machine = unsafe { Machine::find::<'static>(machine) }?;
        if passed_count < machine.cpu_count {
            return Err(Status::TooSmall);
        }
        let (first, count) = (passed.cast::<Passed>(), passed_count as usize);
        // SAFETY: so many elements in C's memory, as large as `assert_fits` has found.
        (0..count).for_each(|index| unsafe { first.add(index).write(Passed::new()) });
        // SAFETY: just written; nothing else uses them.
        let passed = unsafe { core::slice::from_raw_parts(first, count) };
        let made = Periods { mark: Mark::none(), machine, inner: GracePeriods::new(passed) };
        // SAFETY: the crate's contract.
        unsafe { Periods::init(periods, made) }.map(drop)
    })
}

/// This CPU flushes what it runs, unless that is current, so that no deferred batch asks it. At each tick, in each
/// switch, or after each answer: the more often, the fewer CPUs are interrupted. Interrupts off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_pass(periods: *const GracePeriodsStorage, cpu: u32) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let periods = unsafe { Periods::find(periods) }?;
        let percpu = periods.machine.enter(cpu, Need::IrqsOff)?;
        periods.inner.pass(percpu.cpu(), &IrqsOff::assume());
        Ok(())
    })
}

/// Closes a batch without a flush: it interrupts nobody, and other CPUs may go on reading what was recorded. Only for
/// pages that could only be read, are clean, and of which nothing is written anywhere until `tlbkit_deferred_flush` has
/// returned: neither into the frames nor, by a call or another mapping, into the file. A fault that maps a writable
/// page where an entry was found cleared calls `tlbkit_drain` first, under the lock of the page table.
///
/// From here on the struct takes `tlbkit_deferred_fold` and `tlbkit_deferred_flush` alone. One that is never flushed
/// leaks its frames. `TLBKIT_STATUS_BAD_VALUE` if a page-table page was recorded: then it stays open. Interrupts on or
/// off, preemption off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_defer(
    batch: *mut BatchStorage,
    cpu: u32,
    periods: *const GracePeriodsStorage,
) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract, for both.
        let (open, periods) = unsafe { (Batch::find(batch)?, Periods::find(periods)?) };
        let percpu = periods.machine.enter(cpu, Need::Online)?;
        if open.inner.has_tables() {
            return Err(Status::BadValue);
        }
        let held = (open.capacity - open.room) as u32;
        let room = u32::try_from(open.room).unwrap_or(u32::MAX);
        // SAFETY: `init` below replaces the mark by another one, and nothing reads the batch before that.
        let Batch { machine, inner, .. } = unsafe { core::ptr::read(open) };
        let inner = inner.defer(percpu.cpu(), &periods.inner);
        // SAFETY: as above.
        unsafe { Closed::init(batch, Closed { mark: Mark::none(), machine, inner, room, held }) }.map(drop)
    })
}

/// Folds the deferred batch `other` into another one, so that one flush serves both, and ends it: its frames move into
/// the array of `batch`. `TLBKIT_STATUS_GATHER_FULL` if they do not fit there: then nothing was done. Interrupts on or
/// off, preemption off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_deferred_fold(batch: *mut BatchStorage, cpu: u32, other: *mut BatchStorage) -> Status {
    status_of(|| {
        if core::ptr::eq(batch, other) {
            return Err(Status::BadValue);
        }
        // SAFETY: the crate's contract, for both.
        let (found, more) = unsafe { (Closed::find(batch)?, Closed::find(other)?) };
        let percpu = found.machine.enter(cpu, Need::Online)?;
        let room = found.room.checked_sub(more.held).ok_or(Status::GatherFull)?;
        // SAFETY: as above; nothing else uses either, and the reference that `find` returned is gone.
        let into = unsafe { &mut *batch.cast::<Closed>() };
        (into.room, into.held) = (room, into.held + more.held);
        // SAFETY: found above.
        into.inner.fold(percpu.cpu(), unsafe { more.take() });
        Ok(())
    })
}

/// Flushes what was deferred, on the CPUs that have not passed since it was closed, then calls `release` for each
/// frame, and ends the batch. On any CPU. Interrupts on, preemption off, and no lock held that a CPU may wait for with
/// interrupts off. On an error the batch stays deferred, except for `TLBKIT_STATUS_WRONG_CPU` after the flush: then it
/// has ended, and its frames are leaked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_deferred_flush(
    batch: *mut BatchStorage,
    cpu: u32,
    periods: *const GracePeriodsStorage,
    reason: u32,
) -> Status {
    status_of(|| {
        let why = reason_of(reason)?;
        // SAFETY: the crate's contract, for both.
        let (found, periods) = unsafe { (Closed::find(batch)?, Periods::find(periods)?) };
        let percpu = found.machine.enter(cpu, Need::MayWait)?;
        // SAFETY: found above.
        let held = unsafe { found.take() }.flush(percpu.cpu(), &periods.inner, why).into_frames();
        percpu.assert_stayed()?; // otherwise the frames may still be in use, so they are leaked
        release_held(&held);
        Ok(())
    })
}

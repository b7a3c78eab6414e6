//! The batch in C: pages of many spaces go in, one flush, and frames come out by a call of the kernel's only after it.

use tlbkit::{Reason, TlbBatch};

use crate::gather::{Frames, Held, frames_of, release};
use crate::machine::{Door, Machine, Need, enter};
use crate::mark::Mark;
use crate::status::{Status, report};
use crate::storage::Space;
use crate::storage::{BatchStorage, MachineStorage, Marked, SpaceStorage};
use crate::values::reason_of;

/// What a `struct tlbkit_batch` holds.
#[repr(C)]
struct Batch {
    mark: Mark,
    machine: &'static Machine,
    inner: TlbBatch<Held>,
    room: usize,
}

// SAFETY: `repr(C)`, the mark first; begun and finished below.
unsafe impl Marked for Batch {
    type Storage = BatchStorage;
    const MARK: u64 = 0x746c_626b_6974_4241;
}

/// An open batch.
///
/// # Safety
/// The crate's contract; nobody else uses the batch while the reference lives.
unsafe fn open<'a>(batch: *mut BatchStorage) -> Result<&'a mut Batch, Status> {
    // SAFETY: the contract.
    unsafe { Batch::find(batch) }?;
    // SAFETY: as above, and the reference that `find` returned is gone.
    Ok(unsafe { &mut *batch.cast::<Batch>() })
}

impl Batch {
    /// Names a space, and keeps a frame if there is one.
    fn name(&mut self, cpu: u32, space: &Space, frame: Option<u64>) -> Result<(), Status> {
        let door = self.machine.door(cpu, Need::Online)?;
        if frame.is_some() {
            self.take_room()?;
        }
        self.inner.revoke(door.cpu(), &space.inner);
        frame.into_iter().for_each(|frame| self.inner.hold(frame));
        Ok(())
    }

    /// Flushes what was named, frees what is held, and is empty then.
    #[inline(never)]
    fn flush(&mut self, door: &Door, why: Reason) -> Result<(), Status> {
        let (mut stayed, mut room) = (Ok(()), 0);
        self.inner.flush_and_reuse(door.cpu(), why, |held| {
            stayed = door.assert_stayed();
            if stayed.is_ok() && !held.is_empty() {
                release_held(held); // else they may be in use, and are lost
            }
            room = held.empty();
        });
        self.room = room;
        stayed
    }

    fn take_room(&mut self) -> Result<(), Status> {
        self.room = self.room.checked_sub(1).ok_or(Status::GatherFull)?;
        Ok(())
    }
}

/// Flushes an open batch. `first` is done to it when all that the caller gave is known to be right.
///
/// # Safety
/// As [`open`].
#[inline(always)]
unsafe fn flush(batch: *mut BatchStorage, cpu: u32, reason: u32, first: impl FnOnce(&mut Batch)) -> Result<(), Status> {
    let why = reason_of(reason)?;
    // SAFETY: the contract.
    let batch = unsafe { open(batch) }?;
    let door = batch.machine.door(cpu, Need::MayWait)?;
    first(batch);
    batch.flush(door, why)
}

/// Out of line: most batches hold nothing.
#[inline(never)]
fn release_held(held: &Held) {
    release(held);
}

/// Begins an empty batch, for any number of spaces. `frames` may be NULL if nothing will be held; it is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_begin(
    batch: *mut BatchStorage,
    machine: *const MachineStorage,
    frames: *const Frames,
) -> Status {
    report(|| {
        // SAFETY: the crate's contract, for both.
        let (machine, frames) = unsafe { (Machine::find::<'static>(machine)?, frames_of(frames)?) };
        let inner = TlbBatch::new(Held::new(frames));
        let begun = Batch { mark: Mark::none(), machine, inner, room: frames.capacity };
        // SAFETY: as above.
        unsafe { Batch::make(batch, begun) }.map(drop)
    })
}

/// Names translations of a space that were revoked, where no frame is freed or another mapping of it is still to come.
/// The page tables have been changed, and their locks are still held. Interrupts on or off, preemption off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_revoke(batch: *mut BatchStorage, cpu: u32, space: *const SpaceStorage) -> Status {
    // SAFETY: the crate's contract, for both.
    report(|| unsafe { open(batch)?.name(cpu, Space::find(space)?, None) })
}

/// Names a translation of a space, whose entry has been cleared, and gives the batch the frame that the entry named.
/// The lock of its page table is still held. `TLBKIT_STATUS_GATHER_FULL` if there is no room: nothing was named, and
/// the frame is still the caller's. Interrupts on or off, preemption off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_unmap(
    batch: *mut BatchStorage,
    cpu: u32,
    space: *const SpaceStorage,
    frame: u64,
) -> Status {
    // SAFETY: the crate's contract, for both.
    report(|| unsafe { open(batch)?.name(cpu, Space::find(space)?, Some(frame)) })
}

/// Names all that lay below a page-table page of a space that has been taken out, and gives the batch that page: CPUs
/// that hold the space lazily are asked as well. Otherwise as `tlbkit_batch_unmap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_unmap_table(
    batch: *mut BatchStorage,
    cpu: u32,
    space: *const SpaceStorage,
    frame: u64,
) -> Status {
    report(|| {
        // SAFETY: the crate's contract, for both.
        let (batch, space) = unsafe { (open(batch)?, Space::find(space)?) };
        let door = batch.machine.door(cpu, Need::Online)?;
        batch.take_room()?;
        batch.inner.unmap_table(door.cpu(), &space.inner, frame);
        Ok(())
    })
}

/// Gives the batch a frame that several spaces mapped. If nothing is named in this batch, before or after, the flush is
/// one of everything on every CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_hold(batch: *mut BatchStorage, frame: u64) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let batch = unsafe { open(batch) }?;
        batch.take_room()?;
        batch.inner.hold(frame);
        Ok(())
    })
}

/// Flushes everywhere what was named, asking each CPU once, then calls `release` for each frame. The batch is empty
/// then and stays open: for a kernel that keeps one for each task. On the CPU that named or on another. Interrupts on,
/// preemption off, no lock held that a CPU may wait for with its interrupts off. On an error nothing was done, but for
/// `TLBKIT_STATUS_WRONG_CPU` after the flush: its frames are lost then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_flush(batch: *mut BatchStorage, cpu: u32, reason: u32) -> Status {
    // SAFETY: the crate's contract.
    report(|| unsafe { flush(batch, cpu, reason, |_| ()) })
}

/// The same, and ends the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_finish(batch: *mut BatchStorage, cpu: u32, reason: u32) -> Status {
    // SAFETY: the crate's contract.
    report(|| unsafe { flush(batch, cpu, reason, |batch| batch.mark.clear()) })
}

/// Flushes what batches owe to a space, everywhere: for whoever finds an entry gone and goes on without a flush of its
/// own, before another frame is mapped there. `tlbkit_gather_finish` does so by itself. Interrupts on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_drain(machine: *const MachineStorage, cpu: u32, space: *const SpaceStorage) -> Status {
    report(|| {
        // SAFETY: the crate's contract, for both.
        let (door, space) = unsafe { (enter(machine, cpu, Need::MayWait)?, Space::find(space)?) };
        door.cpu().drain(&space.inner);
        door.assert_stayed()
    })
}

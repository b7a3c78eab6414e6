//! The batch, Linux' `arch_tlbflush_unmap_batch`: pages of many spaces, one flush, and only then their frames are
//! freed, by calling the kernel.

use tlbkit::{Reason, TlbBatch};

use crate::gather::{Frames, HeldFrames, frames_of, release_frames};
use crate::machine::{Machine, Need, PerCpu, enter};
use crate::mark::Mark;
use crate::status::{Status, status_of};
use crate::storage::Space;
use crate::storage::{BatchStorage, MachineStorage, Marked, SpaceStorage};
use crate::values::reason_of;

/// What a `struct tlbkit_batch` holds.
#[repr(C)]
pub(crate) struct Batch {
    mark: Mark,
    pub(crate) machine: &'static Machine,
    pub(crate) inner: TlbBatch<HeldFrames>,
    pub(crate) room: usize,
    #[cfg(feature = "reuse")]
    pub(crate) capacity: usize,
}

// SAFETY: `repr(C)`, with the mark first; begun and finished below.
unsafe impl Marked for Batch {
    type Storage = BatchStorage;
    const MARK: u64 = 0x746c_626b_6974_4241;
}

/// An open batch.
///
/// # Safety
/// The crate's contract; nothing else uses the batch while the reference lives.
unsafe fn open<'a>(batch: *mut BatchStorage) -> Result<&'a mut Batch, Status> {
    // SAFETY: the contract.
    unsafe { Batch::find(batch) }?;
    // SAFETY: as above, and the reference that `find` returned is gone.
    Ok(unsafe { &mut *batch.cast::<Batch>() })
}

impl Batch {
    /// Records a space, and holds a frame if there is one.
    fn record(&mut self, cpu: u32, space: &Space, frame: Option<u64>) -> Result<(), Status> {
        let percpu = self.machine.enter(cpu, Need::Online)?;
        if frame.is_some() {
            self.take_room()?;
        }
        self.inner.revoke(percpu.cpu(), &space.inner);
        frame.into_iter().for_each(|frame| self.inner.hold(frame));
        Ok(())
    }

    /// Flushes what was recorded and frees what is held. The batch is empty afterwards.
    #[inline(never)]
    fn flush(&mut self, percpu: &PerCpu, why: Reason) -> Result<(), Status> {
        let (mut stayed, mut room) = (Ok(()), 0);
        self.inner.flush_and_reuse(percpu.cpu(), why, |held| {
            stayed = percpu.assert_stayed();
            if stayed.is_ok() && !held.is_empty() {
                release_held(held); // otherwise the frames may still be in use, so they are leaked
            }
            room = held.clear();
        });
        self.room = room;
        stayed
    }

    fn take_room(&mut self) -> Result<(), Status> {
        self.room = self.room.checked_sub(1).ok_or(Status::GatherFull)?;
        Ok(())
    }
}

/// Flushes an open batch. `first` is called on it once all arguments have been checked.
///
/// # Safety
/// As [`open`].
#[inline(always)]
unsafe fn flush(batch: *mut BatchStorage, cpu: u32, reason: u32, first: impl FnOnce(&mut Batch)) -> Result<(), Status> {
    let why = reason_of(reason)?;
    // SAFETY: the contract.
    let batch = unsafe { open(batch) }?;
    let percpu = batch.machine.enter(cpu, Need::MayWait)?;
    first(batch);
    batch.flush(percpu, why)
}

/// Out of line, because most batches hold no frames.
#[inline(never)]
pub(crate) fn release_held(held: &HeldFrames) {
    release_frames(held);
}

/// Begins an empty batch, for any number of spaces. `frames` is copied; it may be NULL if no frame will be held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_begin(
    batch: *mut BatchStorage,
    machine: *const MachineStorage,
    frames: *const Frames,
) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract, for both.
        let (machine, frames) = unsafe { (Machine::find::<'static>(machine)?, frames_of(frames)?) };
        let inner = TlbBatch::new(HeldFrames::new(frames));
        let begun = Batch {
            mark: Mark::none(),
            machine,
            inner,
            room: frames.capacity,
            #[cfg(feature = "reuse")]
            capacity: frames.capacity,
        };
        // SAFETY: as above.
        unsafe { Batch::init(batch, begun) }.map(drop)
    })
}

/// Records that translations of a space have been revoked, where no frame is freed, or where the frame is still mapped
/// elsewhere and will be recorded with its last mapping. The page tables have been changed, and their locks are still
/// held. Interrupts on or off, preemption off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_revoke(batch: *mut BatchStorage, cpu: u32, space: *const SpaceStorage) -> Status {
    // SAFETY: the crate's contract, for both.
    status_of(|| unsafe { open(batch)?.record(cpu, Space::find(space)?, None) })
}

/// Records a translation of a space, whose entry has been cleared, and passes the frame that it mapped to the batch.
/// The page-table lock is still held. Returns `TLBKIT_STATUS_GATHER_FULL` if there is no room: then nothing was
/// recorded, and the frame still belongs to the caller. Interrupts on or off, preemption off.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_unmap(
    batch: *mut BatchStorage,
    cpu: u32,
    space: *const SpaceStorage,
    frame: u64,
) -> Status {
    // SAFETY: the crate's contract, for both.
    status_of(|| unsafe { open(batch)?.record(cpu, Space::find(space)?, Some(frame)) })
}

/// Records a page-table page of a space that has been unhooked, with everything that it mapped, and passes it to the
/// batch. The flush also interrupts CPUs that have the space loaded in lazy TLB mode. Otherwise as
/// `tlbkit_batch_unmap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_unmap_table(
    batch: *mut BatchStorage,
    cpu: u32,
    space: *const SpaceStorage,
    frame: u64,
) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract, for both.
        let (batch, space) = unsafe { (open(batch)?, Space::find(space)?) };
        let percpu = batch.machine.enter(cpu, Need::Online)?;
        batch.take_room()?;
        batch.inner.unmap_table(percpu.cpu(), &space.inner, frame);
        Ok(())
    })
}

/// Passes to the batch a frame that several spaces mapped. If nothing is recorded in this batch, before or after,
/// everything is flushed on every CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_hold(batch: *mut BatchStorage, frame: u64) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let batch = unsafe { open(batch) }?;
        batch.take_room()?;
        batch.inner.hold(frame);
        Ok(())
    })
}

/// Flushes what was recorded on every CPU, with one request per CPU, then calls `release` for each frame. The batch is
/// empty afterwards and stays open, for a kernel that keeps one in each task. On the CPU that recorded or on any other
/// one. Interrupts on, preemption off, and no lock held that a CPU may wait for with interrupts off. On an error
/// nothing was done, except for `TLBKIT_STATUS_WRONG_CPU` after the flush: then the frames are leaked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_flush(batch: *mut BatchStorage, cpu: u32, reason: u32) -> Status {
    // SAFETY: the crate's contract.
    status_of(|| unsafe { flush(batch, cpu, reason, |_| ()) })
}

/// As `tlbkit_batch_flush`, and ends the batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_batch_finish(batch: *mut BatchStorage, cpu: u32, reason: u32) -> Status {
    // SAFETY: the crate's contract.
    status_of(|| unsafe { flush(batch, cpu, reason, |batch| batch.mark.clear()) })
}

/// Flushes on every CPU what batches have recorded for a space and not flushed yet, like `flush_tlb_batched_pending`. A
/// caller that finds an entry gone and does not flush by itself must call this before it maps another frame there.
/// `tlbkit_gather_finish` does the same by itself. Interrupts on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_drain(machine: *const MachineStorage, cpu: u32, space: *const SpaceStorage) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract, for both.
        let (percpu, space) = unsafe { (enter(machine, cpu, Need::MayWait)?, Space::find(space)?) };
        percpu.cpu().drain(&space.inner);
        percpu.assert_stayed()
    })
}

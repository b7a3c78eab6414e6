//! The gather in C: frames go in, and come out by a call of the kernel's only after the flush.
//!
//! Rust makes freeing before flushing a type error. C cannot, so the gather keeps the frames and frees them itself: it
//! calls `release` for each, after every CPU has answered. A gather that is never finished, or issued and never waited
//! for, leaks its frames.

use core::ffi::c_void;

use tlbkit::{Pending, Reason, Scope, TlbGather, Translations};

use crate::machine::{Door, Machine, Need};
use crate::mark::Mark;
use crate::status::{Status, report};
use crate::storage::{GatherStorage, MachineStorage, Marked, SpaceStorage, check, put};
use crate::storage::{Set, Space};
use crate::values::{Pages, StrideKind, reason_of, scope_of};

/// Where a gather keeps frames, and who frees them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frames {
    /// Room for `capacity` frames, until the gather is finished.
    pub array: *mut u64,
    /// Frames that fit.
    pub capacity: usize,
    /// Frees one frame. Called by `tlbkit_gather_finish`, `tlbkit_gather_wait`, `tlbkit_batch_flush` and
    /// `tlbkit_batch_finish` alone.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void, frame: u64)>,
    /// The first argument of `release`.
    pub context: *mut c_void,
}

impl Frames {
    const NONE: Self =
        Self { array: core::ptr::null_mut(), capacity: 0, release: None, context: core::ptr::null_mut() };
}

/// The frames held so far: a slice of C's array that grows.
pub(crate) struct Held {
    frames: Frames,
    count: usize,
}

impl Held {
    /// Of a flush that frees nothing.
    pub(crate) const NOTHING: Self = Self::new(Frames::NONE);

    pub(crate) const fn new(frames: Frames) -> Self {
        Self { frames, count: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Holds nothing any more; how many frames fit.
    pub(crate) const fn empty(&mut self) -> usize {
        self.count = 0;
        self.frames.capacity
    }
}

impl Extend<u64> for Held {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, frames: I) {
        for frame in frames {
            assert!(self.count < self.frames.capacity, "no room for a frame");
            // SAFETY: below the capacity of C's array.
            unsafe { self.frames.array.add(self.count).write(frame) };
            self.count += 1;
        }
    }
}

/// Names `range` in a gather. Out of line, since both kinds of range come here.
#[inline(never)]
pub(crate) fn name(gather: &mut TlbGather<'_, Set, Held>, door: &Door, range: Pages, scope: Scope, why: Reason) {
    gather.range(door.cpu(), range.va, range.count, range.stride, scope, why);
}

/// What a `struct tlbkit_gather` holds.
#[repr(C)]
pub(crate) struct Gather {
    pub(crate) mark: Mark,
    pub(crate) machine: &'static Machine,
    pub(crate) inner: TlbGather<'static, Set, Held>,
    /// Frames that fit; none if none were to be held.
    capacity: u32,
    /// Frames that still fit.
    room: u32,
}

// SAFETY: `repr(C)`, the mark first; begun and finished below.
unsafe impl Marked for Gather {
    type Storage = GatherStorage;
    const MARK: u64 = 0x746c_626b_6974_4741;
}

/// An open gather.
///
/// # Safety
/// The crate's contract; nobody else uses the gather while the reference lives.
pub(crate) unsafe fn open<'a>(gather: *mut GatherStorage) -> Result<&'a mut Gather, Status> {
    // SAFETY: the contract.
    unsafe { Gather::find(gather) }?;
    // SAFETY: as above, and the reference that `find` returned is gone.
    Ok(unsafe { &mut *gather.cast::<Gather>() })
}

impl Gather {
    /// The CPU that works on it.
    pub(crate) fn door(&self, cpu: u32, need: Need) -> Result<&'static Door, Status> {
        self.machine.door(cpu, need)
    }

    /// The CPU that names something: where the policy does not batch, that is flushed at once.
    fn door_for_naming(&self, cpu: u32) -> Result<&'static Door, Status> {
        let is_sent_now = self.machine.tlb.policy().history.sends_at_once();
        self.door(cpu, if is_sent_now { Need::MayWait } else { Need::Online })
    }

    /// What the two joint calls do in Rust, where both are inlined: here one copy of it is enough. The caller has
    /// taken room for the frame.
    #[inline(never)]
    fn name_and_hold(
        &mut self,
        door: &Door,
        range: Pages,
        scope: Scope,
        why: Reason,
        frame: u64,
    ) -> Result<(), Status> {
        name(&mut self.inner, door, range, scope, why);
        self.inner.hold(frame);
        door.assert_stayed()
    }

    /// Makes room for one more frame.
    fn take_room(&mut self) -> Result<(), Status> {
        // Whoever gave no room at all cannot mend it by another gather.
        let full = if self.capacity == 0 { Status::NullPointer } else { Status::GatherFull };
        self.room = self.room.checked_sub(1).ok_or(full)?;
        Ok(())
    }
}

/// Begins an empty gather for a space, or for the kernel's addresses if `space` is NULL. `frames` may be NULL if
/// nothing will be held; it is copied. The space outlives the gather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_begin(
    gather: *mut GatherStorage,
    machine: *const MachineStorage,
    space: *const SpaceStorage,
    frames: *const Frames,
) -> Status {
    // SAFETY: the crate's contract.
    report(|| unsafe { begin(gather, machine, space, frames) })
}

/// # Safety
/// The crate's contract for every pointer.
unsafe fn begin(
    gather: *mut GatherStorage,
    machine: *const MachineStorage,
    space: *const SpaceStorage,
    frames: *const Frames,
) -> Result<(), Status> {
    // SAFETY: the contract.
    let machine = unsafe { Machine::find::<'static>(machine) }?;
    let translations = if space.is_null() {
        Translations::OfKernel
    } else {
        // SAFETY: the contract: the space outlives the gather.
        Translations::OfSpace(&unsafe { Space::find(space) }?.inner)
    };
    // SAFETY: the contract.
    let frames = unsafe { frames_of(frames) }?;
    let inner = TlbGather::new(translations, Held::new(frames));
    // More than that are not held at once.
    let capacity = u32::try_from(frames.capacity).unwrap_or(u32::MAX);
    let begun = Gather { mark: Mark::none(), machine, inner, capacity, room: capacity };
    // SAFETY: the contract.
    unsafe { Gather::make(gather, begun) }.map(drop)
}

/// # Safety
/// The crate's contract, or null.
pub(crate) unsafe fn frames_of(frames: *const Frames) -> Result<Frames, Status> {
    if frames.is_null() {
        return Ok(Frames::NONE);
    }
    check(frames)?;
    // SAFETY: not null, aligned, and by the contract a whole struct.
    let frames = unsafe { *frames };
    check(frames.array)?;
    if frames.release.is_none() { Err(Status::NullPointer) } else { Ok(frames) }
}

/// Names `pages` adjoining translations from `va` on whose entries have been cleared or changed; whoever frees what an
/// entry named calls `tlbkit_gather_unmap`. Where the policy does not batch they are flushed at once, so interrupts are
/// on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_range(
    gather: *mut GatherStorage,
    cpu: u32,
    va: u64,
    pages: u64,
    stride: u32,
    scope: u32,
    reason: u32,
) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let gather = unsafe { open(gather) }?;
        let door = gather.door_for_naming(cpu)?;
        let (range, scope, why) = (Pages::new(va, pages, stride)?, scope_of(scope)?, reason_of(reason)?);
        name(&mut gather.inner, door, range, scope, why);
        door.assert_stayed()
    })
}

/// Names the translation of size `stride` at `va`, whose entry has been cleared, and gives the gather the frame that
/// the entry named. `TLBKIT_STATUS_GATHER_FULL` if it has no room: nothing was named, and the frame is still the
/// caller's, who finishes the gather and begins another for it. Interrupts as for `tlbkit_gather_range`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_unmap(
    gather: *mut GatherStorage,
    cpu: u32,
    va: u64,
    stride: u32,
    scope: u32,
    reason: u32,
    frame: u64,
) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let gather = unsafe { open(gather) }?;
        let door = gather.door_for_naming(cpu)?;
        let (page, scope, why) = (Pages::new(va, 1, stride)?, scope_of(scope)?, reason_of(reason)?);
        gather.take_room()?;
        gather.name_and_hold(door, page, scope, why, frame)
    })
}

/// Names what lay below a page-table page that has been taken out, and gives the gather that page, `frame`: paths
/// through it go too, on CPUs that hold the space lazily as well. `va` is the first address below it. `unnamed_pages`
/// counts, in pages of 4 KiB, what it still mapped from there on and nobody has named: 512 for a table of the last
/// level that was taken out with its entries, 0 if each of them was named before. Fails as `tlbkit_gather_unmap` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_unmap_table(
    gather: *mut GatherStorage,
    cpu: u32,
    va: u64,
    unnamed_pages: u64,
    frame: u64,
) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let gather = unsafe { open(gather) }?;
        let door = gather.door_for_naming(cpu)?;
        let range = Pages::new(va, unnamed_pages.max(1), StrideKind::Page4k as u32)?;
        gather.take_room()?;
        gather.inner.tables_freed();
        gather.name_and_hold(door, range, Scope::Local, Reason::FreeTable, frame)
    })
}

/// Gives the gather a frame to which no single page belongs: one that several named pages shared, or one of a range
/// that is named as a whole. If nothing is named in this gather, before or after, the flush is one of everything; if
/// something is, only that is flushed. `TLBKIT_STATUS_GATHER_FULL` as in `tlbkit_gather_unmap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_hold(gather: *mut GatherStorage, frame: u64) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let gather = unsafe { open(gather) }?;
        gather.take_room()?;
        gather.inner.hold(frame);
        Ok(())
    })
}

/// A page-table page is freed that this gather does not keep: CPUs that hold the space lazily are told as well.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_tables_freed(gather: *mut GatherStorage) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        unsafe { open(gather) }?.inner.tables_freed();
        Ok(())
    })
}

/// Makes the flush a full one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_everything(gather: *mut GatherStorage) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        unsafe { open(gather) }?.inner.flush_everything();
        Ok(())
    })
}

/// Flushes everywhere what was named, or everything if nothing was and a frame is held, then calls `release` for each
/// frame, then ends the gather. Interrupts on, preemption off, no lock held that a CPU may wait for with its interrupts
/// off. On an error the gather stays open, but for `TLBKIT_STATUS_WRONG_CPU` after the flush: its frames are lost then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_finish(gather: *mut GatherStorage, cpu: u32) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let gather = unsafe { open(gather) }?;
        let door = gather.door(cpu, Need::MayWait)?;
        // Relaxed: a gather has one owner.
        gather.mark.clear();
        // SAFETY: the mark is gone, so nobody reads it again.
        let inner = unsafe { core::ptr::read(&gather.inner) };
        let held = inner.flush(door.cpu()).into_frames();
        door.assert_stayed()?; // else they may be in use, and are lost
        release(&held);
        Ok(())
    })
}

/// What a `struct tlbkit_gather` holds between issue and wait.
#[repr(C)]
struct Issued {
    mark: Mark,
    machine: &'static Machine,
    inner: Pending<'static, Set, Held>,
    /// `tlbkit_gather_is_done` has said so, or `tlbkit_gather_poll` has returned.
    is_known_done: bool,
}

// SAFETY: `repr(C)`, the mark first; begun and finished below.
unsafe impl Marked for Issued {
    type Storage = GatherStorage;
    const MARK: u64 = 0x746c_626b_6974_5045;
}

impl Issued {
    /// # Safety
    /// The crate's contract; nobody else uses the gather while the reference lives.
    unsafe fn open<'a>(gather: *mut GatherStorage) -> Result<&'a mut Self, Status> {
        // SAFETY: the contract.
        unsafe { Self::find(gather) }?;
        // SAFETY: as above, and the reference that `find` returned is gone.
        Ok(unsafe { &mut *gather.cast::<Self>() })
    }

    fn door(&self, cpu: u32, need: Need) -> Result<&'static Door, Status> {
        self.machine.door(cpu, need)
    }

    /// After a look: where the task has gone elsewhere, what was flushed here may be another CPU's, and the frames in
    /// use. They are lost.
    #[inline(always)]
    fn assert_stayed(&self, door: &Door) -> Result<(), Status> {
        door.assert_stayed().inspect_err(|_| self.mark.clear())
    }
}

/// Begins to flush everywhere what was named, and does not wait: the frames are freed by `tlbkit_gather_wait`. When it
/// returns this CPU has flushed and the others are asked. Until the wait returns they may use what was named, so
/// nothing is done to the frames, and the space lives.
///
/// Interrupts on or off, under a spin lock or not; preemption off; not in an interrupt handler. Other gathers may be
/// begun, issued and finished meanwhile. On an error the gather stays open, but for `TLBKIT_STATUS_WRONG_CPU` after the
/// flush on this CPU: its frames are lost then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_issue(gather: *mut GatherStorage, cpu: u32) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let open = unsafe { open(gather) }?;
        let door = open.door(cpu, Need::Online)?;
        // SAFETY: `make` below puts another mark in the place of this one, and nobody reads the gather before.
        let Gather { machine, inner, .. } = unsafe { core::ptr::read(open) };
        let inner = inner.issue(door.cpu());
        door.assert_stayed().inspect_err(|_| open.mark.clear())?; // else they may be in use, and are lost
        let issued = Issued { mark: Mark::none(), machine, inner, is_known_done: false };
        // SAFETY: the contract.
        unsafe { Issued::make(gather, issued) }.map(drop)
    })
}

/// Writes true to `is_done` if no CPU can use any more what an issued gather names: its wait then returns at once,
/// interrupts on or off. It waits for nobody, and may be asked again and again: a kernel whose interrupts stay off asks
/// in a loop, and calls `tlbkit_answer` in between, or lets `tlbkit_gather_poll` do both. Preemption off. On an error
/// the gather stays issued, but for `TLBKIT_STATUS_WRONG_CPU` after the look: its frames are lost then. On any error
/// `is_done` is not written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_is_done(gather: *mut GatherStorage, cpu: u32, is_done: *mut bool) -> Status {
    report(|| {
        check(is_done)?;
        // SAFETY: the crate's contract.
        let issued = unsafe { Issued::open(gather) }?;
        let door = issued.door(cpu, Need::Online)?;
        issued.is_known_done = issued.inner.is_done(door.cpu());
        issued.assert_stayed(door)?;
        // SAFETY: the crate's contract.
        unsafe { put(is_done, issued.is_known_done) }
    })
}

/// Returns when `tlbkit_gather_is_done` would write true, and is called with interrupts on or off: what a kernel whose
/// interrupts stay off calls before `tlbkit_gather_wait`. It answers other CPUs at each turn, and calls `late` and
/// `unanswered` as every wait does. Whoever waits for another CPU in such a kernel, in the loop of a lock too, calls
/// `tlbkit_answer` at each turn: one loop that does not is a deadlock. Preemption off. On an error the gather stays
/// issued, but for `TLBKIT_STATUS_WRONG_CPU` after the wait: its frames are lost then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_poll(gather: *mut GatherStorage, cpu: u32) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let issued = unsafe { Issued::open(gather) }?;
        let door = issued.door(cpu, Need::Online)?;
        issued.inner.poll(door.cpu());
        issued.is_known_done = true;
        issued.assert_stayed(door)
    })
}

/// Waits until no CPU can use what an issued gather names, then calls `release` for each frame, then ends the gather.
/// On the CPU that issued it or on another. Interrupts on unless `tlbkit_gather_is_done` has said true or
/// `tlbkit_gather_poll` has returned; preemption off, no lock held that a CPU may wait for with its interrupts off. On
/// an error the gather stays issued, but for `TLBKIT_STATUS_WRONG_CPU` after the wait: its frames are lost then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_wait(gather: *mut GatherStorage, cpu: u32) -> Status {
    report(|| {
        // SAFETY: the crate's contract.
        let issued = unsafe { Issued::open(gather) }?;
        let door = issued.door(cpu, if issued.is_known_done { Need::Online } else { Need::MayWait })?;
        // Relaxed: a gather has one owner.
        issued.mark.clear();
        // SAFETY: the mark is gone, so nobody reads it again.
        let inner = unsafe { core::ptr::read(&issued.inner) };
        let held = inner.wait(door.cpu()).into_frames();
        door.assert_stayed()?; // else they may be in use, and are lost
        release(&held);
        Ok(())
    })
}

/// Frees what is held.
pub(crate) fn release(held: &Held) {
    let Some(release) = held.frames.release else { return };
    for index in 0..held.count {
        // SAFETY: written by `hold`; a function of the kernel's, with its context.
        unsafe { release(held.frames.context, held.frames.array.add(index).read()) };
    }
}

#[cfg(all(test, feature = "history"))]
mod tests {
    use super::*;
    use crate::storage::{CpuStateStorage, StatsStorage};
    use tlbkit::{CpuState, CpuStats};

    #[test]
    fn no_struct_of_the_header_is_larger_than_it_must_be() {
        assert_eq!(size_of::<CpuState>(), size_of::<CpuStateStorage>());
        assert_eq!(size_of::<Space>(), size_of::<SpaceStorage>());
        assert_eq!(size_of::<CpuStats>(), size_of::<StatsStorage>());
        assert_eq!(size_of::<Machine>().next_multiple_of(64), size_of::<MachineStorage>());
    }

    #[test]
    fn a_gather_has_room_for_what_it_becomes_and_no_more() {
        assert!(size_of::<Gather>() <= size_of::<Issued>());
        assert_eq!(size_of::<Issued>(), size_of::<GatherStorage>());
    }
}

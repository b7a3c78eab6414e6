//! The gather, Linux' `mmu_gather`: it holds frames until the flush, and frees them by calling the kernel.
//!
//! In Rust, freeing before flushing is a type error. C has no such types, so the gather keeps the frames and calls
//! `release` for each one itself, after every CPU has answered. A gather that is never finished, or that is issued and
//! never waited for, leaks its frames.

use core::ffi::c_void;

use tlbkit::{Pending, Reason, Scope, TlbGather, Translations};

use crate::machine::{Machine, Need, PerCpu};
use crate::mark::Mark;
use crate::status::{Status, status_of};
use crate::storage::{GatherStorage, MachineStorage, Marked, SpaceStorage, check_pointer, write_to};
use crate::storage::{Set, Space};
use crate::values::{Pages, StrideKind, reason_of, scope_of};

/// The storage of a gather's frames, and the function that frees them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Frames {
    /// An array with room for `capacity` frames, which belongs to the gather until it is finished.
    pub array: *mut u64,
    /// The number of frames that fit into `array`.
    pub capacity: usize,
    /// Frees one frame. Called only by `tlbkit_gather_finish`, `tlbkit_gather_wait`, `tlbkit_batch_flush` and
    /// `tlbkit_batch_finish`.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void, frame: u64)>,
    /// The first argument of `release`.
    pub context: *mut c_void,
}

impl Frames {
    const NONE: Self =
        Self { array: core::ptr::null_mut(), capacity: 0, release: None, context: core::ptr::null_mut() };
}

/// The frames held so far, in C's array.
pub(crate) struct HeldFrames {
    frames: Frames,
    count: usize,
}

impl HeldFrames {
    /// For a flush that frees nothing.
    pub(crate) const NONE: Self = Self::new(Frames::NONE);

    pub(crate) const fn new(frames: Frames) -> Self {
        Self { frames, count: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets the frames, and returns how many fit again.
    pub(crate) const fn clear(&mut self) -> usize {
        self.count = 0;
        self.frames.capacity
    }
}

impl Extend<u64> for HeldFrames {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, frames: I) {
        for frame in frames {
            assert!(self.count < self.frames.capacity, "no room for a frame");
            // SAFETY: below the capacity of C's array.
            unsafe { self.frames.array.add(self.count).write(frame) };
            self.count += 1;
        }
    }
}

#[cfg(feature = "reuse")]
impl IntoIterator for HeldFrames {
    type Item = u64;
    type IntoIter = TakenFrames;

    fn into_iter(self) -> TakenFrames {
        TakenFrames { held: self, next: 0 }
    }
}

/// Frames on their way into another array.
#[cfg(feature = "reuse")]
pub(crate) struct TakenFrames {
    held: HeldFrames,
    next: usize,
}

#[cfg(feature = "reuse")]
impl Iterator for TakenFrames {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let index = self.next;
        self.next += 1;
        // SAFETY: written by `extend`, below the count.
        (index < self.held.count).then(|| unsafe { self.held.frames.array.add(index).read() })
    }
}

/// Records `range` in a gather. Out of line, since it has two callers.
#[inline(never)]
pub(crate) fn record(
    gather: &mut TlbGather<'_, Set, HeldFrames>,
    percpu: &PerCpu,
    range: Pages,
    scope: Scope,
    why: Reason,
) {
    gather.range(percpu.cpu(), range.va, range.count, range.stride, scope, why);
}

/// What a `struct tlbkit_gather` holds.
#[repr(C)]
pub(crate) struct Gather {
    pub(crate) mark: Mark,
    pub(crate) machine: &'static Machine,
    pub(crate) inner: TlbGather<'static, Set, HeldFrames>,
    /// The number of frames that fit; 0 if none is to be held.
    capacity: u32,
    /// The number of frames that still fit.
    room: u32,
}

// SAFETY: `repr(C)`, with the mark first; begun and finished below.
unsafe impl Marked for Gather {
    type Storage = GatherStorage;
    const MARK: u64 = 0x746c_626b_6974_4741;
}

/// An open gather.
///
/// # Safety
/// The crate's contract; nothing else uses the gather while the reference lives.
pub(crate) unsafe fn open<'a>(gather: *mut GatherStorage) -> Result<&'a mut Gather, Status> {
    // SAFETY: the contract.
    unsafe { Gather::find(gather) }?;
    // SAFETY: as above, and the reference that `find` returned is gone.
    Ok(unsafe { &mut *gather.cast::<Gather>() })
}

impl Gather {
    /// Checks the CPU of a call, and returns it.
    pub(crate) fn enter(&self, cpu: u32, need: Need) -> Result<&'static PerCpu, Status> {
        self.machine.enter(cpu, need)
    }

    /// The same for a call that records something. A policy that does not batch flushes it at once, and may wait.
    fn enter_to_record(&self, cpu: u32) -> Result<&'static PerCpu, Status> {
        let is_sent_now = self.machine.tlb.policy().history.sends_at_once();
        self.enter(cpu, if is_sent_now { Need::MayWait } else { Need::Online })
    }

    /// Records a range and holds a frame. Out of line, so that the archive has a single copy. The caller has taken room
    /// for the frame.
    #[inline(never)]
    fn record_and_hold(
        &mut self,
        percpu: &PerCpu,
        range: Pages,
        scope: Scope,
        why: Reason,
        frame: u64,
    ) -> Result<(), Status> {
        record(&mut self.inner, percpu, range, scope, why);
        self.inner.hold(frame);
        percpu.assert_stayed()
    }

    /// Takes the room of one frame, or fails.
    fn take_room(&mut self) -> Result<(), Status> {
        // A caller that passed no array at all cannot fix this by beginning another gather.
        let full = if self.capacity == 0 { Status::NullPointer } else { Status::GatherFull };
        self.room = self.room.checked_sub(1).ok_or(full)?;
        Ok(())
    }
}

/// Begins an empty gather for a space, or for kernel addresses if `space` is NULL. `frames` is copied; it may be NULL
/// if no frame will be held. The space must outlive the gather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_begin(
    gather: *mut GatherStorage,
    machine: *const MachineStorage,
    space: *const SpaceStorage,
    frames: *const Frames,
) -> Status {
    // SAFETY: the crate's contract.
    status_of(|| unsafe { begin(gather, machine, space, frames) })
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
    let inner = TlbGather::new(translations, HeldFrames::new(frames));
    // More frames than that are never held at once.
    let capacity = u32::try_from(frames.capacity).unwrap_or(u32::MAX);
    let begun = Gather { mark: Mark::none(), machine, inner, capacity, room: capacity };
    // SAFETY: the contract.
    unsafe { Gather::init(gather, begun) }.map(drop)
}

/// # Safety
/// The crate's contract, or null.
pub(crate) unsafe fn frames_of(frames: *const Frames) -> Result<Frames, Status> {
    if frames.is_null() {
        return Ok(Frames::NONE);
    }
    check_pointer(frames)?;
    // SAFETY: not null, aligned, and by the contract a whole struct.
    let frames = unsafe { *frames };
    check_pointer(frames.array)?;
    if frames.release.is_none() { Err(Status::NullPointer) } else { Ok(frames) }
}

/// Records `pages` adjoining translations from `va` on, whose entries have been cleared or changed. If a frame is freed
/// with an entry, call `tlbkit_gather_unmap` instead. A policy that does not batch flushes them at once, so interrupts
/// must be on under such a policy.
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
    status_of(|| {
        // SAFETY: the crate's contract.
        let gather = unsafe { open(gather) }?;
        let percpu = gather.enter_to_record(cpu)?;
        let (range, scope, why) = (Pages::new(va, pages, stride)?, scope_of(scope)?, reason_of(reason)?);
        record(&mut gather.inner, percpu, range, scope, why);
        percpu.assert_stayed()
    })
}

/// Records the translation of size `stride` at `va`, whose entry has been cleared, and passes the frame that it mapped
/// to the gather. Returns `TLBKIT_STATUS_GATHER_FULL` if the gather has no room: then nothing was recorded, and the
/// frame still belongs to the caller, who finishes this gather and begins another one. Interrupts as for
/// `tlbkit_gather_range`.
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
    status_of(|| {
        // SAFETY: the crate's contract.
        let gather = unsafe { open(gather) }?;
        let percpu = gather.enter_to_record(cpu)?;
        let (page, scope, why) = (Pages::new(va, 1, stride)?, scope_of(scope)?, reason_of(reason)?);
        gather.take_room()?;
        gather.record_and_hold(percpu, page, scope, why, frame)
    })
}

/// Records a page-table page that has been unhooked, and passes it to the gather as `frame`. Paging-structure-cache
/// entries that point to it are invalidated too, also on CPUs in lazy TLB mode. `va` is the first address that it
/// mapped. `unnamed_pages` is the number of 4 KiB pages from there on that it still mapped and that have not been
/// recorded: 512 for a last-level table that was unhooked with its entries, 0 if each of them was recorded before.
/// Fails as `tlbkit_gather_unmap` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_unmap_table(
    gather: *mut GatherStorage,
    cpu: u32,
    va: u64,
    unnamed_pages: u64,
    frame: u64,
) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let gather = unsafe { open(gather) }?;
        let percpu = gather.enter_to_record(cpu)?;
        let range = Pages::new(va, unnamed_pages.max(1), StrideKind::Page4k as u32)?;
        gather.take_room()?;
        gather.inner.tables_freed();
        gather.record_and_hold(percpu, range, Scope::NonGlobal, Reason::FreeTable, frame)
    })
}

/// Passes to the gather a frame that belongs to no single page: one that several recorded pages shared, or one of a
/// range that is recorded as a whole. If nothing is recorded in this gather, before or after, everything is flushed;
/// otherwise only what was recorded is. `TLBKIT_STATUS_GATHER_FULL` as for `tlbkit_gather_unmap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_hold(gather: *mut GatherStorage, frame: u64) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let gather = unsafe { open(gather) }?;
        gather.take_room()?;
        gather.inner.hold(frame);
        Ok(())
    })
}

/// Says that a page-table page will be freed that this gather does not hold, so that the flush also interrupts CPUs in
/// lazy TLB mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_tables_freed(gather: *mut GatherStorage) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        unsafe { open(gather) }?.inner.tables_freed();
        Ok(())
    })
}

/// Code may be walking what was recorded without a lock, counting on interrupts that are off: each CPU that may use the
/// space gets an IPI, is left neither to its host nor to INVLPGB, and flushes before it answers. Call it before the
/// first table is recorded. Only needed in an archive with the feature `guest`, `broadcast`, `directories` or `early`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_interrupt_walkers(gather: *mut GatherStorage) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        unsafe { open(gather) }?.inner.interrupt_walkers();
        Ok(())
    })
}

/// Turns the flush into a full one, whatever was recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_everything(gather: *mut GatherStorage) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        unsafe { open(gather) }?.inner.flush_everything();
        Ok(())
    })
}

/// Flushes what was recorded on every CPU, or everything if a frame is held and nothing was recorded; then calls
/// `release` for each frame, and ends the gather. Interrupts on, preemption off, and no lock held that a CPU may wait
/// for with interrupts off. On an error the gather stays open, except for `TLBKIT_STATUS_WRONG_CPU` after the flush:
/// then it has ended, and its frames are leaked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_finish(gather: *mut GatherStorage, cpu: u32) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let gather = unsafe { open(gather) }?;
        let percpu = gather.enter(cpu, Need::MayWait)?;
        // Relaxed: a gather has one owner.
        gather.mark.clear();
        // SAFETY: the mark is cleared, so it is never read again.
        let inner = unsafe { core::ptr::read(&gather.inner) };
        let held = inner.flush(percpu.cpu()).into_frames();
        percpu.assert_stayed()?; // otherwise the frames may still be in use, so they are leaked
        release_frames(&held);
        Ok(())
    })
}

/// What a `struct tlbkit_gather` holds between issue and wait, under another mark.
#[repr(C)]
struct Issued {
    mark: Mark,
    machine: &'static Machine,
    inner: Pending<'static, Set, HeldFrames>,
    /// `tlbkit_gather_is_done` has returned true, or `tlbkit_gather_poll` has returned.
    is_known_done: bool,
}

// SAFETY: `repr(C)`, with the mark first; issued and waited for below.
unsafe impl Marked for Issued {
    type Storage = GatherStorage;
    const MARK: u64 = 0x746c_626b_6974_5045;
}

impl Issued {
    /// An issued gather.
    ///
    /// # Safety
    /// The crate's contract; nothing else uses the gather while the reference lives.
    unsafe fn open<'a>(gather: *mut GatherStorage) -> Result<&'a mut Self, Status> {
        // SAFETY: the contract.
        unsafe { Self::find(gather) }?;
        // SAFETY: as above, and the reference that `find` returned is gone.
        Ok(unsafe { &mut *gather.cast::<Self>() })
    }

    fn enter(&self, cpu: u32, need: Need) -> Result<&'static PerCpu, Status> {
        self.machine.enter(cpu, need)
    }

    /// After a poll: if the task has migrated, the local flush may have been that of another CPU, and the frames may
    /// still be in use. Then the gather ends and leaks them.
    #[inline(always)]
    fn assert_stayed(&self, percpu: &PerCpu) -> Result<(), Status> {
        percpu.assert_stayed().inspect_err(|_| self.mark.clear())
    }
}

/// Begins the flush of what was recorded, and does not wait for it: `tlbkit_gather_wait` does, and frees the frames.
/// When this returns, this CPU has flushed and requests have been sent to the other CPUs. Until the wait returns they
/// may still use stale translations, so the frames must not be reused, and the space must stay alive.
///
/// Interrupts on or off, with or without a spin lock held; preemption off; not in an interrupt handler. Other gathers
/// may be begun, issued and finished meanwhile. On an error the gather stays open, except for `TLBKIT_STATUS_WRONG_CPU`
/// after the flush on this CPU: then it has ended, and its frames are leaked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_issue(gather: *mut GatherStorage, cpu: u32) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let open = unsafe { open(gather) }?;
        let percpu = open.enter(cpu, Need::Online)?;
        // SAFETY: `init` below replaces the mark by another one, and nothing reads the gather before that.
        let Gather { machine, inner, .. } = unsafe { core::ptr::read(open) };
        let inner = inner.issue(percpu.cpu());
        // If the task has migrated, the frames may still be in use, so they are leaked.
        percpu.assert_stayed().inspect_err(|_| open.mark.clear())?;
        let issued = Issued { mark: Mark::none(), machine, inner, is_known_done: false };
        // SAFETY: the contract.
        unsafe { Issued::init(gather, issued) }.map(drop)
    })
}

/// Writes true to `is_done` if the flush of an issued gather is complete on every CPU. Its wait then returns at once,
/// with interrupts on or off. This call never waits, and may be repeated: a kernel that keeps interrupts off calls it
/// in a loop with `tlbkit_answer`, or lets `tlbkit_gather_poll` do both. Preemption off. On an error `is_done` is not
/// written, and the gather stays issued, except for `TLBKIT_STATUS_WRONG_CPU` after the check: then it has ended, and
/// its frames are leaked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_is_done(gather: *mut GatherStorage, cpu: u32, is_done: *mut bool) -> Status {
    status_of(|| {
        check_pointer(is_done)?;
        // SAFETY: the crate's contract.
        let issued = unsafe { Issued::open(gather) }?;
        let percpu = issued.enter(cpu, Need::Online)?;
        issued.is_known_done = issued.inner.is_done(percpu.cpu());
        issued.assert_stayed(percpu)?;
        // SAFETY: the crate's contract.
        unsafe { write_to(is_done, issued.is_known_done) }
    })
}

/// Returns once `tlbkit_gather_is_done` would write true. Interrupts on or off: a kernel that keeps interrupts off
/// calls this before `tlbkit_gather_wait`. It answers the requests of other CPUs in every turn of the loop, and calls
/// `late` and `unanswered` as every wait does. In such a kernel every loop that waits for another CPU, including that
/// of a spin lock, must call `tlbkit_answer` in every turn; a single loop that does not is a deadlock. Preemption off.
/// On an error the gather stays issued, except for `TLBKIT_STATUS_WRONG_CPU` after the wait: then it has ended, and its
/// frames are leaked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_poll(gather: *mut GatherStorage, cpu: u32) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let issued = unsafe { Issued::open(gather) }?;
        let percpu = issued.enter(cpu, Need::Online)?;
        issued.inner.poll(percpu.cpu());
        issued.is_known_done = true;
        issued.assert_stayed(percpu)
    })
}

/// Waits until the flush of an issued gather is complete on every CPU, then calls `release` for each frame, and ends
/// the gather. On the CPU that issued it or on any other one. Interrupts on, unless `tlbkit_gather_is_done` has written
/// true or `tlbkit_gather_poll` has returned; preemption off, and no lock held that a CPU may wait for with interrupts
/// off. On an error the gather stays issued, except for `TLBKIT_STATUS_WRONG_CPU` after the wait: then it has ended,
/// and its frames are leaked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tlbkit_gather_wait(gather: *mut GatherStorage, cpu: u32) -> Status {
    status_of(|| {
        // SAFETY: the crate's contract.
        let issued = unsafe { Issued::open(gather) }?;
        let percpu = issued.enter(cpu, if issued.is_known_done { Need::Online } else { Need::MayWait })?;
        // Relaxed: a gather has one owner.
        issued.mark.clear();
        // SAFETY: the mark is cleared, so it is never read again.
        let inner = unsafe { core::ptr::read(&issued.inner) };
        let held = inner.wait(percpu.cpu()).into_frames();
        percpu.assert_stayed()?; // otherwise the frames may still be in use, so they are leaked
        release_frames(&held);
        Ok(())
    })
}

/// Frees the frames that are held.
pub(crate) fn release_frames(held: &HeldFrames) {
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

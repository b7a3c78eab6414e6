//! A gather in C whose flush was issued and is waited for later: the same struct, under another mark.

use tlbkit::Pending;

use crate::gather::{Gather, Held, open, release};
use crate::machine::{Door, Machine, Need};
use crate::mark::Mark;
use crate::space::Set;
use crate::status::{Status, report};
use crate::storage::{GatherStorage, Marked, check, put};

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

#[cfg(all(test, feature = "history"))]
mod tests {
    use super::*;

    #[test]
    fn a_gather_has_room_for_what_it_becomes_and_no_more() {
        assert!(size_of::<Gather>() <= size_of::<Issued>());
        assert_eq!(size_of::<Issued>(), size_of::<GatherStorage>());
    }
}

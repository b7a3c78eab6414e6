//! The steps of a CPU.

use crate::request::{Asked, Change, CpuNumber, Generation, ITEMS, Id, Mailbox, Request, SpaceNumber, Then};

/// One step of what a CPU does: at most one access to memory that others share, and what follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Joins the set of a space.
    Join(SpaceNumber),
    /// Says that it is between two roots, having taken an ASID.
    MarkSwitching(SpaceNumber),
    /// Waits until its stores have reached memory.
    Fence,
    /// Reads the generation of the space that it is about to load.
    ReadGeneration(SpaceNumber),
    /// Writes CR3.
    LoadRoot(SpaceNumber),
    /// Says that it runs the space.
    MarkRunning(SpaceNumber),
    /// Leaves the set of a space, known by number and name.
    LeaveSet(SpaceNumber, Id),
    /// Drops a counted lazy reference.
    Uncount(SpaceNumber, Id),
    /// Takes a counted lazy reference.
    Count(SpaceNumber),
    /// Says that it holds its space lazily.
    MarkLazy,
    /// Says that it is on its way back to what it held lazily.
    MarkBack(SpaceNumber),
    /// Reads the generation after it came back.
    Recheck(SpaceNumber),
    /// Loads the space again, flushed up to a generation.
    Reload(Generation),
    /// Says that it leaves for the kernel's tables.
    MarkLeaving,
    /// Loads the kernel's tables.
    LoadKernel,
    /// Says that it is in the kernel's tables.
    MarkKernel,
    /// Changes the page table of a space.
    ChangeTable(SpaceNumber, Change),
    /// Advances the generation.
    Advance(SpaceNumber, Change, Then),
    /// Looks whether any other CPU is in the set.
    LookAlone(Request, Then),
    /// Looks whether a mailbox that was issued can be written again.
    TakeMailbox(Request, Then, Mailbox),
    /// Reads the set; sends a request by this mailbox to those of it that need one.
    ReadSet(Request, Mailbox),
    /// Reads the presence of the first CPU of `unread`.
    ReadPresence {
        /// The request.
        request: Request,
        /// CPUs still to be looked at.
        unread: u8,
        /// CPUs to which the request will be sent.
        chosen: u8,
        /// Where it will lie.
        mailbox: Mailbox,
    },
    /// Drops a hint at the first of these CPUs, and interrupts it.
    Hint(u8),
    /// Says in the first mailbox that others are in use, when it is too late; a deviation alone does.
    MarkSeveralLate,
    /// Waits for the answers to what is in this mailbox.
    Wait(Mailbox),
    /// Leaves the wait for the answers to the CPU that waits later.
    Leave(Request, Mailbox),
    /// Leaves the sending too: no mailbox was free.
    LeaveUnasked(Request),
    /// Looks whether a request that was issued is answered.
    WaitFor(Asked),
    /// Looks whether the mailbox of that request has been used again.
    CheckTurn(Asked),
    /// The flush returns.
    Return(Request),
    /// Says that a flush of the space is pending in a batch.
    Owe(SpaceNumber),
    /// Advances the generation for a batch.
    AdvanceNamed(SpaceNumber),
    /// Adds the space's set to the CPUs of the batch.
    Unite(SpaceNumber),
    /// Sends a request to those of these CPUs that need one.
    ReadUnion(Request, u8),
    /// Says that no flush of the space is pending in the batch any more.
    Settle(SpaceNumber),
    /// Looks whether a flush of the space, whose entries were found in these versions, is pending.
    LookOwed(SpaceNumber, [u8; ITEMS]),
    /// The look, or the flush that it called for, is over.
    Drained(SpaceNumber, [u8; ITEMS]),
    /// The space has ended.
    Ended(SpaceNumber),
    /// Takes what is in the inbox.
    TakeInbox,
    /// Empties it, when it was only read before; a deviation alone does.
    ClearInbox,
    /// Looks whether the first of these CPUs still waits.
    CheckOutbox(u8),
    /// Looks whether a CPU still waits with its second mailbox.
    CheckSecond(CpuNumber),
    /// Reads a CPU's mailbox.
    ReadMailbox(CpuNumber, Mailbox),
    /// Carries out a request: looks at what it runs itself, and reads the generation if that is what it requests.
    CarryOut(Request),
    /// Flushes what it runs, up to a generation.
    FlushLoaded(Request, Generation),
    /// Reports to a sender that it is done.
    Acknowledge(CpuNumber, Mailbox),
    /// Says that it is gone.
    MarkAbsent,
    /// Forgets which CPUs sent requests while it was away.
    ForgetInbox,
    /// Forgets what the first of these CPUs requested while it was away.
    ForgetOutbox(u8),
    /// Begins with empty TLBs.
    Restart,
}

//! The steps of a CPU.

use crate::request::{Asked, Change, CpuNumber, Generation, ITEMS, Id, Mailbox, Request, SpaceNumber, Then};
use crate::shared::Invlpgb;

/// One step of what a CPU does: at most one access to memory that others share, and what follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Joins the set of a space.
    /// Stands for `switch_to_new` and `switch_without_pcid` of `switch/mod.rs`.
    Join(SpaceNumber),
    /// Says that it is between two roots, having taken an ASID.
    /// Stands for `announce_switch`, `enter` and `load` of `switch/mod.rs`.
    MarkSwitching(SpaceNumber),
    /// Waits until its stores have reached memory.
    /// Stands for `announce_switch`, `enter` and `load` of `switch/mod.rs`.
    Fence,
    /// Reads the generation of the space that it is about to load.
    /// Stands for `announce_switch`, `enter` and `load` of `switch/mod.rs`.
    ReadGeneration(SpaceNumber),
    /// Writes CR3.
    /// Stands for `announce_switch`, `enter` and `load` of `switch/mod.rs`.
    LoadRoot(SpaceNumber),
    /// Says that it runs the space.
    /// Stands for `announce_switch`, `enter` and `load` of `switch/mod.rs`,
    /// and for `leave_lazy` and `leave_lazy_stale` of `switch/mod.rs`.
    MarkRunning(SpaceNumber),
    /// Leaves the set of a space, known by number and name.
    /// Stands for `finish_leaving` of `switch/mod.rs`.
    LeaveSet(SpaceNumber, Id),
    /// Drops a counted lazy reference.
    /// Stands for `uncount_lazy` and `drop_counted_reference` of `policy/history/hooks.rs`,
    /// and for `leave_lazy` and `leave_lazy_stale` of `switch/mod.rs`.
    Uncount(SpaceNumber, Id),
    /// Takes a counted lazy reference.
    /// Stands for `count_lazy` of `policy/history/hooks.rs`.
    Count(SpaceNumber),
    /// Says that it holds its space lazily.
    /// Stands for `enter_lazy` of `switch/mod.rs`.
    MarkLazy,
    /// Says that it is on its way back to what it held lazily.
    /// Stands for `leave_lazy` and `leave_lazy_stale` of `switch/mod.rs`.
    MarkBack(SpaceNumber),
    /// Reads the generation after it came back.
    /// Stands for `leave_lazy` and `leave_lazy_stale` of `switch/mod.rs`.
    Recheck(SpaceNumber),
    /// Loads the space again, flushed up to a generation.
    /// Stands for `leave_lazy` and `leave_lazy_stale` of `switch/mod.rs`.
    Reload(Generation),
    /// Says that it leaves for the kernel's tables.
    /// Stands for `load_kernel` and `leave_for_kernel` of `switch/mod.rs`.
    MarkLeaving,
    /// Loads the kernel's tables.
    /// Stands for `load_kernel` and `leave_for_kernel` of `switch/mod.rs`.
    LoadKernel,
    /// Says that it is in the kernel's tables.
    /// Stands for `load_kernel` and `leave_for_kernel` of `switch/mod.rs`.
    MarkKernel,
    /// Changes the page table of a space.
    /// Stands for `flush` of `flush/gather.rs`.
    ChangeTable(SpaceNumber, Change),
    /// Advances the generation.
    /// Stands for `advance` of `space/mod.rs`.
    Advance(SpaceNumber, Change, Then),
    /// Looks whether any other CPU is in the set.
    /// Stands for `shootdown` and `announce` of `flush/shootdown.rs`.
    LookAlone(Request, Then),
    /// Looks whether a mailbox that was issued can be written again.
    /// Stands for `free_mailbox`, `find_free_mailbox` and `free_if_answered` of `flush/mailboxes.rs`,
    /// and for `wait_for_mailbox` of `flush/wait.rs`.
    TakeMailbox(Request, Then, Mailbox),
    /// Reads the set; sends a request by this mailbox to those of it that need one.
    /// Stands for `send_requests`, `send_to_many`, `choose` and `choose_by` of `flush/shootdown.rs`.
    ReadSet(Request, Mailbox),
    /// Reads the presence of the first CPU of `unread`.
    /// Stands for `send_requests`, `send_to_many`, `choose` and `choose_by` of `flush/shootdown.rs`,
    /// and for `may_run` of `cpu/state.rs`.
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
    /// Has the host flush the first CPU of `unasked`, if it does not run it.
    /// Stands for `spare` and `spare_some` of `flush/spared.rs`.
    AskHost {
        /// The request.
        request: Request,
        /// CPUs still to be asked about.
        unasked: u8,
        /// CPUs to which the request will be sent.
        chosen: u8,
        /// Where it will lie.
        mailbox: Mailbox,
    },
    /// Marks a CPU that the host was seen not to run, when it is too late; a deviation alone does.
    /// Stands for `spare_some` of `flush/spared.rs`.
    MarkLate(CpuNumber),
    /// Drops a hint at the first of these CPUs, and interrupts it.
    /// Stands for `interrupt` of `flush/shootdown.rs`.
    Hint(u8),
    /// Says in the first mailbox that others are in use, when it is too late; a deviation alone does.
    /// Stands for `find_free_mailbox` of `flush/mailboxes.rs`.
    MarkSeveralLate,
    /// Waits for the answers to what is in this mailbox.
    /// Stands for `wait` of `flush/wait.rs`.
    Wait(Mailbox),
    /// Leaves the wait for the answers to the CPU that waits later.
    /// Stands for `record_issued` of `flush/mailboxes.rs`.
    Leave(Request, Mailbox),
    /// Leaves the sending too: no mailbox was free.
    /// Stands for `issue` and `send_if_free` of `flush/pending.rs`.
    LeaveUnasked(Request),
    /// Looks whether a request that was issued is answered.
    /// Stands for `first_missing` of `flush/mailboxes.rs`, and for `wait_for_issued` of `flush/wait.rs`.
    WaitFor(Asked),
    /// Looks whether the mailbox of that request has been used again.
    /// Stands for `first_missing` of `flush/mailboxes.rs`.
    CheckTurn(Asked),
    /// The flush returns.
    /// Stands for `flush_with_others` of `flush/shootdown.rs`.
    Return(Request),
    /// Says that a flush of the space is pending in a batch.
    /// Stands for `add` and `settle` of `flush/owed.rs`.
    Owe(SpaceNumber),
    /// Advances the generation for a batch.
    /// Stands for `revoke` and `unmap` of `flush/batch.rs`.
    AdvanceNamed(SpaceNumber),
    /// Adds the space's set to the CPUs of the batch.
    /// Stands for `add` of `flush/targets.rs`.
    Unite(SpaceNumber),
    /// Sends a request to those of these CPUs that need one.
    /// Stands for `send_to_many` and `choose` of `flush/shootdown.rs`.
    ReadUnion(Request, u8),
    /// Says that no flush of the space is pending in the batch any more.
    /// Stands for `add` and `settle` of `flush/owed.rs`.
    Settle(SpaceNumber),
    /// Looks whether a flush of the space, whose entries were found in these versions, is pending.
    /// Stands for `drain` of `flush/batch.rs`.
    LookOwed(SpaceNumber, [u8; ITEMS]),
    /// Looks whether a flush of the space is pending, and then flushes all of it in the place of a page.
    /// Stands for `request` of `flush/gather.rs`, and for `request_for_range` of `flush/shootdown.rs`.
    Widen(SpaceNumber),
    /// The look, or the flush that it called for, is over.
    /// Stands for `drain` of `flush/batch.rs`, and for `flush` of `flush/gather.rs`.
    Drained(SpaceNumber, [u8; ITEMS]),
    /// Says that the space is being given the PCID that all CPUs share, unless it has it, or somebody else is at it.
    /// Stands for `begin_move` of `space/shared.rs`.
    BeginMove(SpaceNumber),
    /// Takes that PCID, if no space has it.
    /// Stands for `take` of `space/shared.rs`, and for `share_pcid` of `flush/broadcast.rs`.
    TakePcid(SpaceNumber),
    /// An INVLPGB arrives at the first of these CPUs. TLBSYNC is over when it has arrived at all.
    /// Stands for `broadcast` and `announce_by_broadcast` of `flush/broadcast.rs`.
    Reach(Invlpgb, u8),
    /// Says that CPUs load the space under that PCID from now on.
    /// Stands for `name_pcid` of `space/shared.rs`.
    NamePcid(SpaceNumber),
    /// Says that none runs it under another one any more.
    /// Stands for `end_move` of `space/shared.rs`.
    EndMove(SpaceNumber),
    /// Loads the running space under that PCID.
    /// Stands for `follow` of `flush/broadcast.rs`, and for `load_shared` of `switch/mod.rs`.
    Follow,
    /// The space has ended.
    /// Stands for `destroy` of `space/end.rs`.
    Ended(SpaceNumber),
    /// Takes what is in the inbox.
    /// Stands for `answer` of `flush/answer.rs`.
    TakeInbox,
    /// Empties it, when it was only read before; a deviation alone does.
    /// Stands for `answer` of `flush/answer.rs`.
    ClearInbox,
    /// Looks whether the first of these CPUs still waits.
    /// Stands for `answer_mailbox` of `flush/answer.rs`.
    CheckOutbox(u8),
    /// Looks whether a CPU still waits with its second mailbox.
    /// Stands for `answer_other_mailboxes` of `flush/answer.rs`.
    CheckSecond(CpuNumber),
    /// Reads a CPU's mailbox.
    /// Stands for `read` of `flush/request.rs`.
    ReadMailbox(CpuNumber, Mailbox),
    /// Carries out a request: looks at what it runs itself, and reads the generation if that is what it requests.
    /// Stands for `flush_local` and `flush_not_running` of `flush/local.rs`.
    CarryOut(Request),
    /// Flushes what it runs, up to a generation.
    /// Stands for `flush_running`, `skip_current`, `flush_pages` and `flush_whole_space` of `flush/local.rs`.
    FlushLoaded(Request, Generation),
    /// Reports to a sender that it is done.
    /// Stands for `answer_mailbox` of `flush/answer.rs`.
    Acknowledge(CpuNumber, Mailbox),
    /// Notes that it owes a flush that it is about to acknowledge, or that it has flushed.
    /// Stands for `answer_mailbox` of `flush/answer.rs`, and for `is_running` of `cpu/mod.rs`.
    MarkOwing(bool),
    /// Says that it is gone.
    /// Stands for `offline` of `cpu/hotplug.rs`.
    MarkAbsent,
    /// Forgets which CPUs sent requests while it was away.
    /// Stands for `forget_requests` of `cpu/hotplug.rs`.
    ForgetInbox,
    /// Forgets what the first of these CPUs requested while it was away.
    /// Stands for `forget_requests` of `cpu/hotplug.rs`.
    ForgetOutbox(u8),
    /// Begins with empty TLBs.
    /// Stands for `bring_up` of `cpu/hotplug.rs`.
    Restart,
}

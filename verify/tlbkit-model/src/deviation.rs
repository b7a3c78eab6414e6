//! Ways to break the protocol, so that each property is seen to fail.

use crate::rules as must;

/// One row for each mistake: its name, the world in which it is seen, and the property that it breaks there. What has a
/// row is in [`Deviation::ALL`], so no mistake goes unexplored.
macro_rules! deviations {
    ($($(#[$what:meta])* $name:ident in $world:literal breaks $property:ident;)+) => {
        /// One mistake.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Deviation {
            $($(#[$what])* $name,)+
        }

        impl Deviation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The world in which it is seen, and the property that it breaks there.
            #[must_use]
            pub const fn breaks(self) -> (&'static str, &'static str) {
                match self {
                    $(Self::$name => ($world, must::$property),)+
                }
            }
        }
    };
}

deviations! {
    /// A CPU that joins reads the generation before others can see that it joins.
    JoinerUnfenced in "two ASIDs" breaks NOBODY_MISSED;
    /// A CPU that comes back from lazy mode does.
    LazyExitUnfenced in "lazy, pages" breaks NOBODY_MISSED;
    /// A CPU that comes back says that it runs before it has looked at the generation.
    RunsTooEarly in "lazy, pages" breaks HANDLER;
    /// A CPU that revokes reads the set before others can see the new generation.
    RevokerUnfenced in "two ASIDs" breaks USE;
    /// A sender does not interrupt a CPU in the middle of a switch.
    SkipsSwitching in "two ASIDs" breaks NOBODY_MISSED;
    /// A CPU leaves the set of the old space before it leaves its tables.
    LeavesSetEarly in "exact set" breaks WALK;
    /// A CPU that is trimmed keeps the ASID, and with it the right not to join.
    TrimKeepsAsid in "trimmed set" breaks NOBODY_MISSED;
    /// An id is used again for the next space.
    IdReused in "end, set kept" breaks GENERATIONS;
    /// Pages alone take an ASID over two generations.
    PartialJumps in "lazy, pages" breaks PROMISE;
    /// Pages alone take an ASID to the newest generation, which is not the one that was requested.
    PartialOvertakes in "two ASIDs" breaks PROMISE;
    /// A lazy CPU is interrupted for any flush.
    LazyInterrupted in "lazy, pages" breaks LAZY_LEFT_ALONE;
    /// A lazy CPU is not interrupted even if tables are freed.
    LazySkippedAlways in "lazy" breaks WALK;
    /// A CPU answers before it flushes.
    AnswersFirst in "lazy" breaks WALK;
    /// A CPU that waits neither looks at its inbox nor takes interrupts.
    WaitsDeaf in "two ASIDs" breaks SERVED;
    /// An inbox is read, and emptied afterwards.
    InboxNotSwapped in "two senders" breaks SERVED;
    /// ASID 0 is PCID 0.
    AsidZeroIsPcidZero in "two ASIDs" breaks PCIDS;
    /// A recycled ASID keeps the generation of the space before.
    RecycledKept in "one ASID" breaks PCIDS;
    /// The user half is forgotten when everything is flushed.
    UserHalfForgotten in "isolation" breaks USE;
    /// A load keeps the entries whatever the ASID's generation is.
    KeepsStale in "two ASIDs" breaks KEPT;
    /// The generation is read before the set is joined.
    ReadsBeforeJoin in "two ASIDs" breaks KEPT;
    /// The generation is a counter of two values.
    GenerationWraps in "lazy, pages" breaks USE;
    /// Destroying a space interrupts no CPU.
    DestroyInterruptsNobody in "end, set exact" breaks DEAD;
    /// Going lazy takes no reference where they are counted.
    LazyUncounted in "end, counted" breaks DEAD;
    /// A sender goes on waiting for a CPU that has left.
    NeverWithdraws in "a CPU leaves" breaks SERVED;
    /// A CPU that returns forgets the hints in its inbox after the requests behind them.
    ForgetsInbox in "a CPU comes back" breaks SERVED;
    /// A mailbox is written while a responder may be reading it.
    MailboxReused in "a ring" breaks USE;
    /// Nobody counts how often a mailbox was used.
    TurnStandsStill in "a ring" breaks NOT_THE_NEXT;
    /// The first mailbox does not say that the other is in use.
    FirstSilent in "a ring" breaks SERVED;
    /// It says so after the hint.
    FirstTooLate in "a ring" breaks SERVED;
    /// A responder to which the first mailbox has no request does not look at the other.
    FirstAloneLooked in "a ring" breaks SERVED;
    /// The wait for an issued flush ends before its responders have answered.
    IssuedIsOver in "a ring" breaks USE;
    /// The wait for a flush that found no mailbox interrupts no CPU.
    UnaskedIsOver in "a ring that is full" breaks USE;
    /// A batch does not say that it owes a flush.
    BatchOwesNothing in "a batch" breaks USE;
    /// A batch says that it owes nothing any more before its flush.
    SettlesTooEarly in "a batch" breaks USE;
    /// A batch is named after the lock of the page table was dropped.
    NamedAfterItsLock in "a batch" breaks USE;
    /// A batch reads the set before it advances the generation.
    UnitesTooEarly in "a batch, joined" breaks USE;
    /// The host's word is looked at, and the mark is made later.
    MarksWhatRuns in "a guest" breaks USE;
    /// A flush that frees tables is left to a host that keeps the paths to them.
    TablesLeftToHost in "a guest, paths kept" breaks WALK;
    /// The end of a space is left to the host, and a lazy CPU keeps the root.
    EndLeftToHost in "a guest, end" breaks DEAD;
    /// A batch does not interrupt a CPU in the middle of a switch.
    BatchSkipsSwitching in "a batch, two spaces" breaks NOBODY_MISSED;
    /// A space is said to have moved while CPUs still run it under PCIDs of their own.
    MovesWithoutRound in "shared, flushed" breaks USE;
    /// The move leaves CPUs alone that hold the space lazily.
    MoveLeavesLazy in "shared, lazy" breaks WALK;
    /// A flush that finds the space moving asks nobody.
    MovingNotAsked in "shared, flushed" breaks USE;
    /// A flush reads whether the space has a PCID before it advances the generation.
    PcidReadApart in "shared, joined" breaks USE;
    /// A PCID that was given back is given out as it is.
    PcidNotFlushed in "shared, given back" breaks PCIDS;
    /// It is given back while CPUs still hold its space.
    PcidGivenBackEarly in "shared, given back" breaks PCIDS;
    /// A flush returns before its INVLPGBs have arrived: its TLBSYNC was another CPU's.
    SyncsElsewhere in "shared, flushed" breaks USE;
    /// INVLPGB does not name the user half.
    UserHalfNotNamed in "shared, isolated" breaks USE;
    /// INVLPGB keeps the paths to a table that is freed.
    PathsKept in "shared, lazy" breaks WALK;
    /// A batch does not flush what CPUs hold under the PCID that they share.
    BatchForgetsShared in "shared, a batch" breaks USE;
    /// A CPU acknowledges early, and its handlers are not told.
    OwesInSecret in "early" breaks HANDLER;
    /// They are told after the acknowledgement.
    OwesTooLate in "early" breaks HANDLER;
    /// They are told that the flush is over before it is.
    PaidTooEarly in "early" breaks HANDLER;
    /// A CPU acknowledges early, though a table is freed.
    EarlyWithTables in "early, tables" breaks WALK;
    /// A CPU acknowledges early, though it only leaves the set of the space, which may end meanwhile.
    EarlyAnywhere in "early, trimmed" breaks DEAD;
    /// INVLPGB flushes the page that is named, though a batch owes the flush of one that was found gone.
    BroadcastIgnoresOwed in "shared, a batch, beside" breaks USE;
}

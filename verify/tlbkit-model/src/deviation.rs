//! Ways to break the protocol, so that each property is seen to fail.

use crate::rules as must;

/// One mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deviation {
    /// A CPU that joins reads the generation before others can see that it joins.
    JoinerUnfenced,
    /// A CPU that comes back from lazy mode does.
    LazyExitUnfenced,
    /// A CPU that comes back says that it runs before it has looked at the generation.
    RunsTooEarly,
    /// A CPU that revokes reads the set before others can see the new generation.
    RevokerUnfenced,
    /// A sender does not tell a CPU in the middle of a switch.
    SkipsSwitching,
    /// A CPU leaves the set of the old space before it leaves its tables.
    LeavesSetEarly,
    /// A CPU that is trimmed keeps the slot, and with it the right not to join.
    TrimKeepsSlot,
    /// An id is used again for the next space.
    IdReused,
    /// Pages alone take a slot over two generations.
    PartialJumps,
    /// Pages alone take a slot to the newest generation, which is not the one that was asked for.
    PartialOvertakes,
    /// A lazy CPU is interrupted for any flush.
    LazyTold,
    /// A lazy CPU is not interrupted even if tables are freed.
    LazySkippedAlways,
    /// A CPU answers before it flushes.
    AnswersFirst,
    /// A CPU that waits neither looks at its inbox nor takes interrupts.
    WaitsDeaf,
    /// An inbox is read, and emptied afterwards.
    InboxNotSwapped,
    /// Slot 0 is PCID 0.
    SlotZeroIsPcidZero,
    /// A recycled slot keeps the generation of the space before.
    RecycledKept,
    /// The user half is forgotten when everything is flushed.
    UserHalfForgotten,
    /// A load keeps the entries whatever the slot's generation is.
    KeepsStale,
    /// The generation is read before the set is joined.
    ReadsBeforeJoin,
    /// The generation is a counter of two values.
    GenerationWraps,
    /// Destroying a space tells nobody.
    DestroyTellsNobody,
    /// Going lazy takes no reference where they are counted.
    LazyUncounted,
    /// A sender goes on waiting for a CPU that has left.
    NeverWithdraws,
    /// A CPU that returns forgets the hints in its inbox after the requests behind them.
    ForgetsInbox,
    /// A mailbox is written while a responder may be reading it.
    MailboxReused,
    /// Nobody counts how often a mailbox was used.
    TurnStandsStill,
    /// The first mailbox does not say that the other is in use.
    FirstSilent,
    /// It says so after the hint.
    ToldTooLate,
    /// A responder that is not asked by the first mailbox does not look at the other.
    FirstAloneLooked,
    /// The wait for an issued flush ends before its responders have answered.
    IssuedIsOver,
    /// The wait for a flush that found no mailbox asks nobody.
    UnaskedIsOver,
    /// A batch does not say that it owes a flush.
    BatchOwesNothing,
    /// A batch says that it owes nothing any more before its flush.
    SettlesTooEarly,
    /// A batch is named after the lock of the page table was dropped.
    NamedAfterItsLock,
    /// A batch reads the set before it advances the generation.
    UnitesTooEarly,
    /// A batch does not tell a CPU in the middle of a switch.
    BatchSkipsSwitching,
}

impl Deviation {
    /// All of them.
    pub const ALL: [Self; 37] = [
        Self::JoinerUnfenced,
        Self::LazyExitUnfenced,
        Self::RunsTooEarly,
        Self::RevokerUnfenced,
        Self::SkipsSwitching,
        Self::LeavesSetEarly,
        Self::TrimKeepsSlot,
        Self::IdReused,
        Self::PartialJumps,
        Self::PartialOvertakes,
        Self::LazyTold,
        Self::LazySkippedAlways,
        Self::AnswersFirst,
        Self::WaitsDeaf,
        Self::InboxNotSwapped,
        Self::SlotZeroIsPcidZero,
        Self::RecycledKept,
        Self::UserHalfForgotten,
        Self::KeepsStale,
        Self::ReadsBeforeJoin,
        Self::GenerationWraps,
        Self::DestroyTellsNobody,
        Self::LazyUncounted,
        Self::NeverWithdraws,
        Self::ForgetsInbox,
        Self::MailboxReused,
        Self::TurnStandsStill,
        Self::FirstSilent,
        Self::ToldTooLate,
        Self::FirstAloneLooked,
        Self::IssuedIsOver,
        Self::UnaskedIsOver,
        Self::BatchOwesNothing,
        Self::SettlesTooEarly,
        Self::NamedAfterItsLock,
        Self::UnitesTooEarly,
        Self::BatchSkipsSwitching,
    ];

    /// The world in which it is seen, and the property that it breaks there.
    #[must_use]
    pub const fn breaks(self) -> (&'static str, &'static str) {
        match self {
            Self::JoinerUnfenced => ("two slots", must::NOBODY_MISSED),
            Self::LazyExitUnfenced => ("lazy, pages", must::NOBODY_MISSED),
            Self::RunsTooEarly => ("lazy, pages", must::HANDLER),
            Self::RevokerUnfenced => ("two slots", must::USE),
            Self::SkipsSwitching => ("two slots", must::NOBODY_MISSED),
            Self::LeavesSetEarly => ("exact set", must::WALK),
            Self::TrimKeepsSlot => ("trimmed set", must::NOBODY_MISSED),
            Self::IdReused => ("end, set kept", must::GENERATIONS),
            Self::PartialJumps => ("lazy, pages", must::PROMISE),
            Self::PartialOvertakes => ("two slots", must::PROMISE),
            Self::LazyTold => ("lazy, pages", must::LAZY_LEFT_ALONE),
            Self::LazySkippedAlways => ("lazy", must::WALK),
            Self::AnswersFirst => ("lazy", must::WALK),
            Self::WaitsDeaf => ("two slots", must::SERVED),
            Self::InboxNotSwapped => ("two senders", must::SERVED),
            Self::SlotZeroIsPcidZero => ("two slots", must::TAGS),
            Self::RecycledKept => ("one slot", must::TAGS),
            Self::UserHalfForgotten => ("isolation", must::USE),
            Self::KeepsStale => ("two slots", must::KEPT),
            Self::ReadsBeforeJoin => ("two slots", must::KEPT),
            Self::GenerationWraps => ("lazy, pages", must::USE),
            Self::DestroyTellsNobody => ("end, set exact", must::DEAD),
            Self::LazyUncounted => ("end, counted", must::DEAD),
            Self::NeverWithdraws => ("a CPU leaves", must::SERVED),
            Self::ForgetsInbox => ("a CPU comes back", must::SERVED),
            Self::MailboxReused => ("a ring", must::USE),
            Self::TurnStandsStill => ("a ring", must::NOT_THE_NEXT),
            Self::FirstSilent => ("a ring", must::SERVED),
            Self::ToldTooLate => ("a ring", must::SERVED),
            Self::FirstAloneLooked => ("a ring", must::SERVED),
            Self::IssuedIsOver => ("a ring", must::USE),
            Self::UnaskedIsOver => ("a ring that is full", must::USE),
            Self::BatchOwesNothing | Self::SettlesTooEarly | Self::NamedAfterItsLock => ("a batch", must::USE),
            Self::UnitesTooEarly => ("a batch, joined", must::USE),
            Self::BatchSkipsSwitching => ("a batch, two spaces", must::NOBODY_MISSED),
        }
    }
}

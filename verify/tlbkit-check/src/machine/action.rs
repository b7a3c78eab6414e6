//! What can happen next, and what it takes to choose.

/// Something that can happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// A CPU carries out its next access.
    Step(usize),
    /// A CPU takes the interrupts of all senders at once.
    Interrupt(usize),
    /// A CPU takes the interrupt of one sender; the others are still on their way.
    OneInterrupt(usize),
    /// The oldest store of a CPU reaches memory.
    Drain(usize),
    /// The hardware sets an A bit that a walk has found clear.
    Accessed(usize),
}

/// What it takes to choose among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// The CPU that executes may go on: that is the first of the actions.
    GoesOn,
    /// The CPU cannot go on.
    Blocked,
}

impl Action {
    pub(crate) const fn cpu(self) -> usize {
        match self {
            Self::Step(cpu) | Self::Interrupt(cpu) | Self::OneInterrupt(cpu) | Self::Drain(cpu) => cpu,
            Self::Accessed(_) => 0,
        }
    }
}

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
    /// The host takes a CPU away.
    Preempt(usize),
    /// The host runs a CPU again.
    RunAgain(usize),
    /// A CPU takes a non-maskable interrupt, whose handler uses the kernel's memory.
    Nmi(usize),
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
            Self::Step(cpu)
            | Self::Interrupt(cpu)
            | Self::OneInterrupt(cpu)
            | Self::Drain(cpu)
            | Self::Preempt(cpu)
            | Self::RunAgain(cpu)
            | Self::Nmi(cpu) => cpu,
            Self::Accessed(_) => 0,
        }
    }

    /// True if nothing waits for it. Such actions are the last of those that can happen.
    pub(crate) const fn comes_unplanned(self) -> bool {
        matches!(self, Self::Preempt(_) | Self::Nmi(_))
    }
}

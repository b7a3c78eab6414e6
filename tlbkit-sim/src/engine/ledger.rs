//! Where a CPU's cycles went: by cause, and by who was running.

use serde::Serialize;

/// What cycles were spent on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The program's own work.
    User,
    /// System calls, the scheduler, page tables.
    Kernel,
    /// The protocol's switch path: changing spaces, going lazy and leaving it.
    Switch,
    /// The initiator's own invalidations.
    FlushLocal,
    /// Telling other CPUs.
    FlushSend,
    /// Waiting for their answers.
    FlushWait,
    /// Answering an interrupt.
    Interrupt,
    /// Page walks of user accesses.
    WalkUser,
    /// Page walks of kernel accesses.
    WalkKernel,
    /// Page faults.
    Fault,
    /// Spinning for a lock.
    LockSpin,
    /// Nothing to do.
    Idle,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::User,
        Self::Kernel,
        Self::Switch,
        Self::FlushLocal,
        Self::FlushSend,
        Self::FlushWait,
        Self::Interrupt,
        Self::WalkUser,
        Self::WalkKernel,
        Self::Fault,
        Self::LockSpin,
        Self::Idle,
    ];
}

/// Who was running.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The idle thread ("swapper").
    #[default]
    Idle,
    /// A program's task.
    Task,
}

/// Cycles of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Spent {
    /// By cause, in the order of [`Cause::ALL`].
    pub cycles: [u64; Cause::ALL.len()],
    /// Of those, waiting for cache lines.
    pub line_cycles: [u64; Cause::ALL.len()],
    /// Of those, for lines of CPU sets.
    pub set_cycles: [u64; Cause::ALL.len()],
}

impl Spent {
    /// Cycles of one cause.
    #[must_use]
    pub fn of(&self, cause: Cause) -> u64 {
        self.cycles[cause as usize]
    }

    /// Cycles of all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.cycles.iter().sum()
    }

    /// Adds another CPU's.
    pub fn add(&mut self, other: &Self) {
        let arrays = [
            (&mut self.cycles, &other.cycles),
            (&mut self.line_cycles, &other.line_cycles),
            (&mut self.set_cycles, &other.set_cycles),
        ];
        for (mine, theirs) in arrays {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }
}

/// Which part of a run's cycles a line access belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineUse {
    /// A CPU set of an address space.
    CpuSet,
    /// Anything else.
    Other,
}

/// One CPU's account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Ledger {
    /// While the idle thread ran.
    pub idle: Spent,
    /// While tasks ran.
    pub task: Spent,
}

impl Ledger {
    #[inline]
    pub(crate) fn charge(&mut self, class: Class, cause: Cause, cycles: u64) {
        self.of_mut(class).cycles[cause as usize] += cycles;
    }

    pub(crate) fn charge_line(&mut self, class: Class, cause: Cause, cycles: u64, line: LineUse) {
        let spent = self.of_mut(class);
        spent.cycles[cause as usize] += cycles;
        spent.line_cycles[cause as usize] += cycles;
        if line == LineUse::CpuSet {
            spent.set_cycles[cause as usize] += cycles;
        }
    }

    /// Cycles of a cause, whoever ran.
    #[must_use]
    pub fn of(&self, cause: Cause) -> u64 {
        self.idle.of(cause) + self.task.of(cause)
    }

    /// Adds another CPU's.
    pub fn add(&mut self, other: &Self) {
        self.idle.add(&other.idle);
        self.task.add(&other.task);
    }

    #[inline]
    fn of_mut(&mut self, class: Class) -> &mut Spent {
        match class {
            Class::Idle => &mut self.idle,
            Class::Task => &mut self.task,
        }
    }
}

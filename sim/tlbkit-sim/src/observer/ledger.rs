//! Where a CPU's cycles went: by cause, and by who was running.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What cycles were spent on. First what every wake-up spends: with thousands of CPUs the lines of the host that their
/// ledgers lie in count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nothing to do.
    Idle,
    /// Answering an interrupt.
    Interrupt,
    /// System calls, the scheduler, page tables.
    Kernel,
    /// The protocol's switch path: changing spaces, going lazy and leaving it.
    Switch,
    /// The program's own work.
    User,
    /// Page walks of user accesses.
    WalkUser,
    /// The initiator's own half of a flush: setting it up, and its own invalidations.
    FlushLocal,
    /// Telling other CPUs: finding out who they are, leaving the request, interrupting them.
    FlushSend,
    /// Waiting for their answers, and answering others meanwhile.
    FlushWait,
    /// Page walks of kernel accesses.
    WalkKernel,
    /// Page faults.
    Fault,
    /// Spinning for a lock.
    LockSpin,
    /// Nothing, as the host has taken the CPU away.
    Preempted,
}

impl Cause {
    /// All causes, in the order in which they are written out.
    pub const ALL: [Self; 13] = [
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
        Self::Preempted,
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

/// Cycles of one cause: its parts lie side by side, so that charging them touches one line of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Spending {
    /// All cycles that were spent.
    pub cycles: u64,
    /// Of those, the cycles spent waiting for cache lines.
    pub line_cycles: u64,
    /// Of those, the cycles spent waiting for lines of CPU sets.
    pub set_cycles: u64,
}

/// Cycles of one class, by cause; written out as a map by the causes' names, in the order of [`Cause::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent([Spending; Cause::ALL.len()]);

impl Serialize for Spent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Cause::ALL.map(|cause| (cause, self.on(cause))))
    }
}

impl<'a> Deserialize<'a> for Spent {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let mut spent = Self::default();
        for (cause, spending) in BTreeMap::<Cause, Spending>::deserialize(deserializer)? {
            spent.0[cause as usize] = spending;
        }
        Ok(spent)
    }
}

impl Spent {
    /// What went to one cause.
    #[must_use]
    pub fn on(&self, cause: Cause) -> Spending {
        self.0[cause as usize]
    }

    /// Cycles of one cause.
    #[must_use]
    pub fn of(&self, cause: Cause) -> u64 {
        self.on(cause).cycles
    }

    /// Cycles of all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|spending| spending.cycles).sum()
    }

    /// Adds another CPU's.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.cycles += theirs.cycles;
            mine.line_cycles += theirs.line_cycles;
            mine.set_cycles += theirs.set_cycles;
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// While the idle thread ran.
    pub idle: Spent,
    /// While tasks ran.
    pub task: Spent,
}

impl Ledger {
    #[inline]
    pub(crate) fn charge(&mut self, class: Class, cause: Cause, cycles: u64) {
        self.of_mut(class, cause).cycles += cycles;
    }

    pub(crate) fn charge_line(&mut self, class: Class, cause: Cause, cycles: u64, line: LineUse) {
        let spending = self.of_mut(class, cause);
        spending.cycles += cycles;
        spending.line_cycles += cycles;
        if line == LineUse::CpuSet {
            spending.set_cycles += cycles;
        }
    }

    /// Cycles of a cause, of both classes.
    #[must_use]
    pub fn of(&self, cause: Cause) -> u64 {
        self.idle.of(cause) + self.task.of(cause)
    }

    /// Cycles of all causes, of both classes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.idle.total() + self.task.total()
    }

    /// Of those, waiting for cache lines.
    #[must_use]
    pub fn line_cycles(&self) -> u64 {
        Cause::ALL.into_iter().map(|cause| self.idle.on(cause).line_cycles + self.task.on(cause).line_cycles).sum()
    }

    /// Adds another CPU's.
    pub fn add(&mut self, other: &Self) {
        self.idle.add(&other.idle);
        self.task.add(&other.task);
    }

    #[inline]
    fn of_mut(&mut self, class: Class, cause: Cause) -> &mut Spending {
        let spent = match class {
            Class::Idle => &mut self.idle,
            Class::Task => &mut self.task,
        };
        &mut spent.0[cause as usize]
    }
}

//! What one CPU's translation hardware did.

use std::ops::{AddAssign, Index};

use serde::{Deserialize, Serialize};

/// Why entries went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum LossCause {
    /// INVLPG named their page.
    Invlpg,
    /// INVPCID of any type.
    Invpcid,
    /// INVLPGB, which some CPU executed.
    Invlpgb,
    /// A CR3 write without the no-flush bit.
    Cr3,
    /// CR4.PGE was toggled, or CR4.PCIDE cleared.
    Pge,
    /// A CR3 write loaded one tag more than the level remembers.
    Residency,
    /// INVLPG emptied everything because a host had broken large pages up.
    Fracturing,
    /// The host flushed a CPU that it had taken away.
    Host,
    /// A fill needed the room.
    Capacity,
    /// The page faulted, or its permissions or D bit had to be read again.
    Rewalk,
}

impl LossCause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Invlpg,
        Self::Invpcid,
        Self::Invlpgb,
        Self::Cr3,
        Self::Pge,
        Self::Residency,
        Self::Fracturing,
        Self::Host,
        Self::Capacity,
        Self::Rewalk,
    ];
}

/// Living entries lost, by level. A translation that was in both counts in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loss {
    /// In the first level.
    pub l1: u64,
    /// In the second level.
    pub stlb: u64,
}

impl AddAssign for Loss {
    fn add_assign(&mut self, other: Self) {
        self.l1 += other.l1;
        self.stlb += other.stlb;
    }
}

/// Losses by cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Losses([Loss; LossCause::ALL.len()]);

impl Losses {
    pub(super) fn add(&mut self, cause: LossCause, loss: Loss) {
        self.0[cause as usize] += loss;
    }
}

impl Index<LossCause> for Losses {
    type Output = Loss;

    fn index(&self, cause: LossCause) -> &Loss {
        &self.0[cause as usize]
    }
}

/// Instructions executed that drop translations, whether or not they found any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Executed {
    /// INVLPG, and INVPCID of one page.
    pub pages: u64,
    /// INVPCID of a tag or of all, and CR4.PGE.
    pub everything: u64,
    /// CR3 writes.
    pub cr3_writes: u64,
    /// INVLPGB of any CPU, as it arrived here.
    pub broadcasts: u64,
}

/// Totals since power-on, or since they were taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MmuCounters {
    /// Accesses.
    pub accesses: u64,
    /// Accesses that the first level could not answer.
    pub l1_misses: u64,
    /// Of those, accesses that the second level answered.
    pub stlb_hits: u64,
    /// Walks, those that faulted included.
    pub walks: u64,
    /// Cycles of all walks, at the overlap that was asked for.
    pub walk_cycles: u64,
    /// Memory references of all walks.
    pub walk_references: u64,
    /// Walks for a page that the second level had held until a flush, or the limit on tags, took it. A lower bound: the
    /// trace of a lost entry is itself overwritten in time.
    pub refills: u64,
    /// Faults.
    pub faults: u64,
    /// Instructions that drop translations.
    pub executed: Executed,
    /// Entries lost, by cause.
    pub lost: Losses,
    /// Living entries lost to a flush that did not name their page.
    pub collateral: Loss,
}

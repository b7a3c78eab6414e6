//! Who still holds a space that dies: a count on the space, and on each CPU a word that asks it to look.
//!
//! While a space is alive nobody counts who holds it lazily, unless the policy counts all along (`history/`). When it
//! dies its destroyer counts those that still do, once, and from then on its set of CPUs names them and nobody else.

use crate::sync::{AtomicU64, Ordering, const_unless_loom};

const DYING: u64 = 1 << 63;

/// How many hold a space, and whether it is dying.
pub(crate) struct References(AtomicU64);

impl References {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// The space dies, and this many hold it. False if it was dying before.
    pub(crate) fn begin_wait(&self, holders: u64) -> bool {
        // Relaxed: ordered by the fence in `notify_holders`; see `is_dying`.
        self.0.swap(DYING | holders, Ordering::Relaxed) & DYING == 0
    }

    /// True once those that hold the space have been counted.
    pub(crate) fn is_dying(&self) -> bool {
        // Relaxed: ordered by the fence that the leaving CPU has executed; partner is the one in `notify_holders`.
        self.0.load(Ordering::Relaxed) & DYING != 0
    }

    /// Gives back as many references; true if they were the last ones of a dying space, and then nobody may touch it
    /// but whoever frees it.
    pub(crate) fn remove(&self, holders: u64) -> bool {
        // AcqRel: whoever frees the tables comes after every CPU that held them; partner is itself on other CPUs.
        self.0.fetch_sub(holders, Ordering::AcqRel) == DYING | holders
    }

    /// One more CPU holds a space that is alive: only where references are counted all along.
    #[cfg(feature = "history")]
    pub(crate) fn add(&self) {
        // Relaxed: a count; the CPU that adds is running the space, so nobody has begun to end it.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The space dies, and those that hold it have been counted all along; true if nobody does.
    #[cfg(feature = "history")]
    pub(crate) fn begin_counted_wait(&self) -> bool {
        // AcqRel: as in `remove`, its partner.
        self.0.fetch_or(DYING, Ordering::AcqRel) == 0
    }
}

/// What a destroyer leaves with a CPU that holds its space lazily: the CPU looks whether the space dies when it leaves
/// it. It is only a hint, so one that comes too late, or that two destroyers leave at once, does no harm.
///
/// All its bits but the highest are those of 0, and no generation has the highest: joined to a generation it makes one
/// that no slot has, so a switch asks both with one comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notice(pub(crate) u64);

impl Notice {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const LOOK: Self = Self(1 << 63);
}

// Generations are counted from 1, one a flush, so none has the highest bit.
const _: () = assert!(Notice::NONE.0 == 0 && Notice::LOOK.0 > u64::MAX / 2);

/// A CPU's notice. The CPU reads and clears it while its presence says that it is switching; destroyers write it.
pub(crate) struct NoticeBoard(AtomicU64);

impl NoticeBoard {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self(AtomicU64::new(0))
        }
    }

    /// What has been left. A CPU reads it after the fence that follows `presence := switching`; see `leave.rs`.
    #[inline(always)]
    pub(crate) fn read(&self) -> Notice {
        // Relaxed: ordered by that fence; what a notice tells is read from the space, which orders it.
        Notice(self.0.load(Ordering::Relaxed))
    }

    /// Asks the CPU to look. Partner is the fence that follows in `destroy.rs`.
    pub(crate) fn leave(&self) {
        // Relaxed: ordered by that fence.
        self.0.store(Notice::LOOK.0, Ordering::Relaxed);
    }

    /// The CPU looks now. It clears the word before it is seen in another space, and a destroyer of that space writes
    /// only after it has seen it there: so no notice is lost.
    pub(crate) fn clear(&self) {
        // Relaxed: published by the Release that ends the switch; partner is the Acquire in `settled_presence`.
        self.0.store(Notice::NONE.0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_reference_of_a_dying_space_is_told() {
        let references = References::new();
        assert!(!references.is_dying() && references.begin_wait(3) && references.is_dying());
        assert!(!references.remove(1) && references.remove(2));
        assert!(!references.begin_wait(1), "a space dies once");
    }

    #[cfg(feature = "history")]
    #[test]
    fn the_last_counted_reference_of_a_dying_space_is_told() {
        let references = References::new();
        references.add();
        references.add();
        assert!(!references.remove(1));
        assert!(!references.begin_counted_wait());
        assert!(references.remove(1));
    }
}

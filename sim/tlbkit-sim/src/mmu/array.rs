//! One array of entries. An array finds, fills and removes entries; [`Epochs`] decides which of them are alive.
//!
//! [`Array`] takes any shape. Where the shape is known, as in the paging-structure caches, a level does without it.
//!
//! Storage is taken at the first fill, so a CPU that never runs anything costs nothing.

use super::config::{ArrayConfig, Index, ReplacementPolicy};
use super::epochs::{Displaced, Epochs};
use super::narrow::{Narrow, WAYS_MAX};
use super::slots::{Entries, Slots};
use super::wide::Wide;

/// A set-associative array of any shape.
#[derive(Clone, Debug)]
pub(super) struct Array {
    set_mask: u64,
    /// Bits of the set's number that are combined with seven higher ones.
    fold_mask: u64,
    store: Store,
}

/// The tag stands apart: hiding it in a vector's capacity would cost every look-up the arithmetic to find it.
#[derive(Clone, Debug)]
#[repr(u8)]
enum Store {
    Narrow(Narrow),
    Wide(Wide),
}

/// Does the same with whichever store there is.
macro_rules! each {
    ($store:expr, $name:ident => $action:expr) => {
        match $store {
            Store::Narrow($name) => $action,
            Store::Wide($name) => $action,
        }
    };
}

impl Array {
    #[inline(always)]
    fn set_of(&self, page: u64) -> usize {
        (page & self.set_mask ^ page >> 7 & self.fold_mask) as usize
    }
}

impl Entries for Array {
    fn new(config: &ArrayConfig) -> Self {
        let ArrayConfig { sets, ways, policy, .. } = *config;
        assert!(sets.is_power_of_two(), "an array has a power of two of sets");
        assert!((1..=255).contains(&ways), "a set has 1 to 255 ways");
        assert!(
            policy != ReplacementPolicy::TreePlru || ways.is_power_of_two() && ways <= 64,
            "a tree has at most 64 leaves"
        );
        assert!(policy != ReplacementPolicy::RotatingPlru4 || ways == 12, "the rotating trees have 12 leaves");
        Self {
            set_mask: sets as u64 - 1,
            fold_mask: if config.index == Index::Xor7 { sets as u64 - 1 } else { 0 },
            store: match ways {
                ..=WAYS_MAX => Store::Narrow(Narrow::new(policy, sets, ways)),
                _ => Store::Wide(Wide::new(policy, sets, ways)),
            },
        }
    }

    fn absent() -> Self {
        Self { set_mask: 0, fold_mask: 0, store: Store::Narrow(Narrow::new(ReplacementPolicy::Lru, 0, 1)) }
    }

    #[inline(always)]
    fn lookup(&mut self, page: u64, key: u64) -> Option<u64> {
        let set = self.set_of(page);
        each!(&mut self.store, store => store.lookup(set, key))
    }

    fn find(&self, page: u64, key: u64) -> Option<usize> {
        let set = self.set_of(page);
        each!(&self.store, store => store.find(set, key))
    }

    #[inline(always)]
    fn fill(&mut self, page: u64, key: u64, data: u64, epochs: &mut Epochs) -> Displaced {
        let set = self.set_of(page);
        each!(&mut self.store, store => store.fill(set, (key, data), epochs))
    }

    fn slots(&self) -> &dyn Slots {
        each!(&self.store, store => store)
    }

    fn slots_mut(&mut self) -> &mut dyn Slots {
        each!(&mut self.store, store => store)
    }
}

//! A store buffer: stores leave it in the order in which they were made, at any time; their own CPU sees them first.

use std::collections::VecDeque;

use tlbkit::sync::Word;

use super::memory::FrameName;

/// Where a store goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// An atomic of the protocol or of the page tables' locks.
    Shared(Word),
    /// A word of physical memory.
    Physical(u64),
}

/// A store that the others do not see yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store {
    pub(crate) to: Place,
    pub(crate) value: u64,
    /// The operation that made it.
    pub(crate) op: u32,
    /// What a program's store is about.
    pub(crate) user: Option<UserStore>,
}

/// A program's store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserStore {
    pub(crate) space: usize,
    pub(crate) va: u64,
    pub(crate) frame: FrameName,
}

/// One CPU's.
#[derive(Clone, Default, Debug)]
pub(crate) struct Buffer {
    stores: VecDeque<Store>,
}

impl Buffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.stores.is_empty()
    }

    pub(crate) fn push(&mut self, store: Store) {
        self.stores.push_back(store);
    }

    pub(crate) fn pop(&mut self) -> Option<Store> {
        self.stores.pop_front()
    }

    /// What the CPU itself reads at `place`, if it has written there.
    pub(crate) fn forward(&self, place: Place) -> Option<u64> {
        self.stores.iter().rev().find(|store| store.to == place).map(|store| store.value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Store> {
        self.stores.iter()
    }

    /// Forgets what was never written: only for a run that has ended.
    pub(crate) fn abandon(&mut self) {
        self.stores.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_sees_its_own_newest_store_and_the_oldest_leaves_first() {
        let mut buffer = Buffer::default();
        for value in [1, 2] {
            buffer.push(Store { to: Place::Physical(8), value, op: 0, user: None });
        }
        assert_eq!((buffer.forward(Place::Physical(8)), buffer.forward(Place::Physical(16))), (Some(2), None));
        assert_eq!(buffer.pop().map(|store| store.value), Some(1));
    }
}

//! Core's atomics, each of whose accesses is first reported to the observer of its thread.
//!
//! It is how simulators and checkers watch a protocol that knows nothing of them: `tlbkit` built with its feature
//! `observe` has these words in place of core's. A simulated cache charges the protocol for its own contention, and a
//! simulated store buffer delays what the protocol has written. No kernel builds this crate: an observer belongs to a
//! thread, as each simulated machine runs on a separate host thread, and so it needs an operating system.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::{self as real, Ordering};

/// What kind of access is about to happen, as x86-64 executes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A plain load.
    Load,
    /// A plain store. A sequentially consistent one is an exchange, so an `Rmw`.
    Store,
    /// A locked read-modify-write.
    Rmw,
    /// A full barrier; the address is 0.
    Fence,
}

/// A word of shared memory: its address, and its size in bytes (4 or 8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Host address of the atomic.
    pub address: usize,
    /// 4 or 8.
    pub bytes: usize,
}

/// Who is told of each access of its thread.
#[derive(Clone, Copy)]
pub struct Observer {
    /// Called *before* an access takes effect, with the address of its word; may run other simulated CPUs.
    pub before: fn(Access, usize),
    /// Asked before a plain store of `value`: true if the observer has taken it, and will write it to the word
    /// itself, later.
    pub delay: fn(Word, value: u64) -> bool,
    /// Asked at each plain load: the value that the loading CPU has not written to the word yet, if there is one.
    pub forward: fn(Word) -> Option<u64>,
}

impl Observer {
    /// Sees nothing, delays nothing.
    pub const NOBODY: Self = Self { before: |_, _| (), delay: |_, _| false, forward: |_| None };
}

std::thread_local! {
    static OBSERVER: Cell<Observer> = const { Cell::new(Observer::NOBODY) };
}

/// Sets this thread's observer and returns the one before.
#[inline]
pub fn set_observer(observer: Observer) -> Observer {
    OBSERVER.with(|o| o.replace(observer))
}

#[inline]
fn report(access: Access, address: usize) {
    (OBSERVER.with(Cell::get).before)(access, address);
}

/// A full or partial barrier, reported when it is a full one.
#[inline]
pub fn fence(order: Ordering) {
    if order == Ordering::SeqCst {
        report(Access::Fence, 0);
    }
    real::fence(order);
}

macro_rules! observed {
    ($name:ident, $int:ty, $($rmw:ident),+) => {
        /// An atomic integer whose accesses are reported.
        #[derive(Debug)]
        pub struct $name(real::$name);

        impl $name {
            /// A new atomic.
            #[inline]
            pub const fn new(value: $int) -> Self {
                Self(real::$name::new(value))
            }

            fn address(&self) -> usize {
                std::ptr::from_ref(self) as usize
            }

            fn word(&self) -> Word {
                Word { address: self.address(), bytes: size_of::<$int>() }
            }

            /// As core's.
            #[inline]
            pub fn load(&self, order: Ordering) -> $int {
                let observer = OBSERVER.with(Cell::get);
                (observer.before)(Access::Load, self.address());
                (observer.forward)(self.word()).map_or_else(|| self.0.load(order), |value| value as $int)
            }

            /// As core's.
            #[inline]
            pub fn store(&self, value: $int, order: Ordering) {
                // SeqCst: not an ordering of ours; x86-64 makes such a store an exchange.
                let is_exchange = order == Ordering::SeqCst;
                report(if is_exchange { Access::Rmw } else { Access::Store }, self.address());
                if is_exchange || !(OBSERVER.with(Cell::get).delay)(self.word(), u64::from(value)) {
                    self.0.store(value, order);
                }
            }

            /// The atomic, for a locked operation that was reported.
            #[inline]
            fn locked(&self) -> &real::$name {
                report(Access::Rmw, self.address());
                &self.0
            }

            $(
                /// As core's.
                #[inline]
                pub fn $rmw(&self, value: $int, order: Ordering) -> $int {
                    self.locked().$rmw(value, order)
                }
            )+

            /// As core's.
            ///
            /// # Errors
            /// The value found, if it was not `current`.
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.locked().compare_exchange(current, new, success, failure)
            }
        }
    };
}

observed!(AtomicU32, u32, swap, fetch_add, fetch_sub, fetch_or, fetch_and);
observed!(AtomicU64, u64, swap, fetch_add, fetch_sub, fetch_or, fetch_and);

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    std::thread_local! {
        static SEEN: RefCell<Vec<(Access, usize)>> = const { RefCell::new(Vec::new()) };
        static BUFFER: Cell<Option<(Word, u64)>> = const { Cell::new(None) };
    }

    fn record(access: Access, address: usize) {
        SEEN.with_borrow_mut(|seen| seen.push((access, address)));
    }

    /// What `work` reports to an observer that delays and forwards nothing.
    fn reports(work: impl FnOnce()) -> Vec<(Access, usize)> {
        let before = set_observer(Observer { before: record, ..Observer::NOBODY });
        work();
        set_observer(before);
        SEEN.take()
    }

    #[test]
    fn each_access_is_reported_once_with_its_kind_and_its_word() {
        let word = AtomicU32::new(5);
        let at = std::ptr::from_ref(&word) as usize;
        let seen = reports(|| {
            assert_eq!(word.load(Ordering::Acquire), 5);
            word.store(6, Ordering::Release);
            word.store(7, Ordering::SeqCst);
            assert_eq!(word.swap(8, Ordering::AcqRel), 7);
            assert_eq!(word.fetch_add(2, Ordering::AcqRel), 8);
            assert_eq!(word.fetch_sub(1, Ordering::AcqRel), 10);
            assert_eq!(word.fetch_or(6, Ordering::AcqRel), 9);
            assert_eq!(word.fetch_and(3, Ordering::AcqRel), 15);
            assert_eq!(word.compare_exchange(4, 0, Ordering::AcqRel, Ordering::Acquire), Err(3));
            assert_eq!(word.compare_exchange(3, 0, Ordering::AcqRel, Ordering::Acquire), Ok(3));
            fence(Ordering::SeqCst);
            // x86-64 executes nothing for it.
            fence(Ordering::Acquire);
        });
        let [load, store, rmw] = [Access::Load, Access::Store, Access::Rmw].map(|access| (access, at));
        assert_eq!(seen, [load, store, rmw, rmw, rmw, rmw, rmw, rmw, rmw, rmw, (Access::Fence, 0)]);
        assert_eq!(reports(|| ()), []);
    }

    #[test]
    fn a_plain_store_can_be_delayed_and_forwarded_but_not_an_exchange() {
        let (word, other) = (AtomicU64::new(1), AtomicU64::new(2));
        let delay = |at, value| {
            BUFFER.set(Some((at, value)));
            true
        };
        let forward = |at| BUFFER.get().filter(|&(word, _)| word == at).map(|(_, value)| value);
        let before = set_observer(Observer { delay, forward, ..Observer::NOBODY });
        word.store(3, Ordering::Release);
        assert_eq!((word.load(Ordering::Acquire), other.load(Ordering::Acquire)), (3, 2));
        other.store(4, Ordering::SeqCst);
        set_observer(before);
        let address = std::ptr::from_ref(&word) as usize;
        assert_eq!(BUFFER.get(), Some((Word { address, bytes: 8 }, 3)));
        assert_eq!((word.load(Ordering::Acquire), other.load(Ordering::Acquire)), (1, 4));
    }
}

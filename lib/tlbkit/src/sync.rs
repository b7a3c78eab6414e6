//! Atomics and fences: core's own, loom's, or core's reported to an observer.
//!
//! The protocol uses these names only. In a kernel they *are* `core::sync::atomic`. Under `cfg(loom)` they are
//! loom's, so that the real source is model-checked. With the feature `observe` each access is first reported, with
//! its address, to the thread's observer: that is how a simulated cache charges the protocol for its own
//! contention, and how a simulated store buffer delays what the protocol has written.

pub use core::sync::atomic::Ordering;

#[cfg(not(any(loom, feature = "observe")))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, fence};

#[cfg(loom)]
pub use explored::{AtomicU32, AtomicU64, fence};

#[cfg(all(feature = "observe", not(loom)))]
pub use observed::{Access, AtomicU32, AtomicU64, Observer, Word, fence, set_observer};

/// An array of something with atomics in it. Constant, except under loom, which counts each atomic that comes to be.
macro_rules! array_of {
    ($new:expr; $count:expr) => {{
        #[cfg(not(loom))]
        let array = [const { $new }; $count];
        #[cfg(loom)]
        let array = core::array::from_fn(|_| $new);
        array
    }};
}

/// A constructor of something with atomics in it: `const`, except under loom.
macro_rules! const_unless_loom {
    ($(#[$attribute:meta])* $visibility:vis fn $($rest:tt)*) => {
        #[cfg(not(loom))]
        $(#[$attribute])*
        $visibility const fn $($rest)*
        #[cfg(loom)]
        $(#[$attribute])*
        $visibility fn $($rest)*
    };
}

pub(crate) use {array_of, const_unless_loom};

macro_rules! owned {
    ($name:ident, $atomic:ident, $int:ty) => {
        /// A word that only its owning CPU touches, so that no ordering is ever needed: a plain load and store in a
        /// shared static.
        pub(crate) struct $name(core::sync::atomic::$atomic);

        impl $name {
            pub(crate) const fn new(value: $int) -> Self {
                Self(core::sync::atomic::$atomic::new(value))
            }

            #[inline(always)]
            pub(crate) fn get(&self) -> $int {
                // Relaxed: no partner, the owner alone reads and writes it.
                self.0.load(Ordering::Relaxed)
            }

            #[inline(always)]
            pub(crate) fn set(&self, value: $int) {
                // Relaxed: no partner, as above.
                self.0.store(value, Ordering::Relaxed);
            }
        }
    };
}

owned!(Owned, AtomicU64, u64);
owned!(OwnedByte, AtomicU8, u8);

#[cfg(loom)]
mod explored {
    extern crate std;

    use super::Ordering;
    use loom::sync::atomic as real;

    loom::lazy_static! {
        static ref FENCES: real::AtomicU32 = real::AtomicU32::new(0);
    }

    /// loom's fence, after an access to a word that all fences share. For loom a fence is no step of its own: without
    /// the access it would never let another CPU run between a fence and what stands before it.
    pub fn fence(order: Ordering) {
        // Relaxed: no partner, it orders nothing.
        FENCES.fetch_add(1, Ordering::Relaxed);
        real::fence(order);
    }

    macro_rules! explored {
        ($name:ident, $int:ty, $($rmw:ident),+) => {
            /// loom's atomic, with a word beside it that each access writes first. loom remembers only the last access
            /// to an atomic, be it a load: a CPU that reads its own word before it writes it would hide that another
            /// CPU has read it before, and loom would never try the two the other way round.
            #[derive(Debug)]
            pub struct $name {
                value: real::$name,
                turn: real::AtomicU32,
            }

            impl $name {
                /// A new atomic.
                pub fn new(value: $int) -> Self {
                    Self { value: real::$name::new(value), turn: real::AtomicU32::new(0) }
                }

                fn in_turn(&self) -> &real::$name {
                    // Relaxed: no partner, it orders nothing.
                    self.turn.fetch_add(1, Ordering::Relaxed);
                    &self.value
                }

                /// As core's.
                pub fn load(&self, order: Ordering) -> $int {
                    self.in_turn().load(order)
                }

                /// As core's.
                pub fn store(&self, value: $int, order: Ordering) {
                    self.in_turn().store(value, order);
                }

                $(
                    /// As core's.
                    pub fn $rmw(&self, value: $int, order: Ordering) -> $int {
                        self.in_turn().$rmw(value, order)
                    }
                )+

                /// As core's.
                ///
                /// # Errors
                /// The value found, if it was not `current`.
                pub fn compare_exchange(
                    &self,
                    current: $int,
                    new: $int,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$int, $int> {
                    self.in_turn().compare_exchange(current, new, success, failure)
                }
            }
        };
    }

    explored!(AtomicU32, u32, swap, fetch_add, fetch_sub, fetch_or, fetch_and);
    explored!(AtomicU64, u64, swap, fetch_add, fetch_sub, fetch_or, fetch_and);
}

#[cfg(all(feature = "observe", not(loom)))]
mod observed {
    // Only simulators and checkers ask for this feature, and they have an operating system: each simulated machine runs
    // on a host thread of its own, and core has no thread-locals.
    extern crate std;

    use super::Ordering;
    use core::sync::atomic as real;
    use std::cell::Cell;

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
    pub fn set_observer(observer: Observer) -> Observer {
        OBSERVER.with(|o| o.replace(observer))
    }

    fn report(access: Access, address: usize) {
        (OBSERVER.with(Cell::get).before)(access, address);
    }

    /// A full or partial barrier, reported when it is a full one.
    pub fn fence(order: Ordering) {
        if order == Ordering::SeqCst {
            report(Access::Fence, 0);
        }
        real::fence(order);
    }

    macro_rules! observed {
        ($name:ident, $int:ty) => {
            /// An atomic integer whose accesses are reported.
            #[derive(Debug)]
            pub struct $name(real::$name);

            impl $name {
                /// A new atomic.
                pub const fn new(value: $int) -> Self {
                    Self(real::$name::new(value))
                }

                fn address(&self) -> usize {
                    core::ptr::from_ref(self) as usize
                }

                fn word(&self) -> Word {
                    Word { address: self.address(), bytes: size_of::<$int>() }
                }

                /// As core's.
                pub fn load(&self, order: Ordering) -> $int {
                    let observer = OBSERVER.with(Cell::get);
                    (observer.before)(Access::Load, self.address());
                    (observer.forward)(self.word()).map_or_else(|| self.0.load(order), |value| value as $int)
                }

                /// As core's.
                pub fn store(&self, value: $int, order: Ordering) {
                    // SeqCst: not an ordering of ours; x86-64 makes such a store an exchange.
                    let is_exchange = order == Ordering::SeqCst;
                    report(if is_exchange { Access::Rmw } else { Access::Store }, self.address());
                    if is_exchange || !(OBSERVER.with(Cell::get).delay)(self.word(), u64::from(value)) {
                        self.0.store(value, order);
                    }
                }

                /// As core's.
                pub fn swap(&self, value: $int, order: Ordering) -> $int {
                    report(Access::Rmw, self.address());
                    self.0.swap(value, order)
                }

                /// As core's.
                pub fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                    report(Access::Rmw, self.address());
                    self.0.fetch_add(value, order)
                }

                /// As core's.
                pub fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                    report(Access::Rmw, self.address());
                    self.0.fetch_sub(value, order)
                }

                /// As core's.
                pub fn fetch_or(&self, value: $int, order: Ordering) -> $int {
                    report(Access::Rmw, self.address());
                    self.0.fetch_or(value, order)
                }

                /// As core's.
                pub fn fetch_and(&self, value: $int, order: Ordering) -> $int {
                    report(Access::Rmw, self.address());
                    self.0.fetch_and(value, order)
                }

                /// As core's.
                ///
                /// # Errors
                /// The value found, if it was not `current`.
                pub fn compare_exchange(
                    &self,
                    current: $int,
                    new: $int,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$int, $int> {
                    report(Access::Rmw, self.address());
                    self.0.compare_exchange(current, new, success, failure)
                }
            }
        };
    }

    observed!(AtomicU32, u32);
    observed!(AtomicU64, u64);
}

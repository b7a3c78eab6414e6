//! Atomics and fences: core's own, loom's, or those of `tlbkit-observed`.
//!
//! The protocol uses these names only. In a kernel they *are* `core::sync::atomic`. Under `cfg(loom)` they are loom's,
//! so that the real source is model-checked. With the feature `observe` they are those of another crate, which reports
//! each access to an observer; the protocol knows nothing about it but these names.

pub use core::sync::atomic::Ordering;

#[cfg(not(any(loom, feature = "observe")))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, fence};

#[cfg(loom)]
pub use explored::{AtomicU32, AtomicU64, fence};

#[cfg(all(feature = "observe", not(loom)))]
pub use tlbkit_observed::{Access, AtomicU32, AtomicU64, Observer, Word, fence, set_observer};

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

//! From the protocol's observer to the running world, and to the words that a store buffer holds back.
//!
//! The observer is a plain function of a thread, so the world is found through a thread-local; and a delayed store is
//! known by its address alone. Both need what the compiler cannot check; it is all in this file.
#![expect(unsafe_code, reason = "a thread-local pointer to the world, and stores by address")]

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tlbkit::sync::{Access, Observer, Word, set_observer};

use super::world::World;

thread_local! {
    static WORLD: Cell<*const World<'static>> = const { Cell::new(ptr::null()) };
}

/// Calls `body` while the observer and the fibers find `world`.
pub(crate) fn with_world_set<R>(world: &World<'_>, body: impl FnOnce() -> R) -> R {
    struct Reset(Observer);
    impl Drop for Reset {
        fn drop(&mut self) {
            set_observer(self.0);
            WORLD.set(ptr::null());
        }
    }
    WORLD.set(ptr::from_ref(world).cast());
    let _reset = Reset(set_observer(Observer { before, delay, forward }));
    body()
}

/// Calls `body` with the world, if one is set.
pub(crate) fn with_world<R>(body: impl FnOnce(&World<'_>) -> R) -> Option<R> {
    let world = WORLD.get();
    if world.is_null() {
        return None;
    }
    // SAFETY: `with_world_set` borrows the world for as long as the pointer is set, on this thread alone, and `body`
    // cannot keep the reference, whose lifetimes it does not know.
    Some(body(unsafe { &*world }))
}

fn before(access: Access, address: usize) {
    with_world(|world| world.access(access, address));
}

fn delay(word: Word, value: u64) -> bool {
    with_world(|world| world.delay(word, value)).unwrap_or(false)
}

fn forward(word: Word) -> Option<u64> {
    with_world(|world| world.forward(word)).flatten()
}

/// What `word` holds in memory.
pub(crate) fn read_word(word: Word) -> u64 {
    // SAFETY: as in `write_word`. Relaxed: one host thread.
    unsafe {
        if word.bytes == 4 {
            u64::from((*ptr::with_exposed_provenance::<AtomicU32>(word.address)).load(Ordering::Relaxed))
        } else {
            (*ptr::with_exposed_provenance::<AtomicU64>(word.address)).load(Ordering::Relaxed)
        }
    }
}

/// Writes a delayed store to its word.
pub(crate) fn write_word(word: Word, value: u64) {
    // SAFETY: the address was reported by an atomic of this size that belongs to the running world: CPUs, matrix,
    // kernel map and spaces outlive every step, and no buffer is drained after the last. Relaxed: one host thread.
    unsafe {
        if word.bytes == 4 {
            (*ptr::with_exposed_provenance::<AtomicU32>(word.address)).store(value as u32, Ordering::Relaxed);
        } else {
            (*ptr::with_exposed_provenance::<AtomicU64>(word.address)).store(value, Ordering::Relaxed);
        }
    }
}

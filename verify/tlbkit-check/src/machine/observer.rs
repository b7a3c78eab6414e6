//! The protocol's observer, which passes each shared access to the running world.
//!
//! The observer is a plain function of a thread, so the world is found through a thread-local, which the compiler
//! cannot check.
#![expect(unsafe_code, reason = "a thread-local pointer to the world")]

use std::cell::Cell;
use std::ptr;

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

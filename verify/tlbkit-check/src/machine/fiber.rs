//! Stackful coroutines: one a CPU, on one host thread.
//!
//! Code that must let other CPUs run is deep inside the protocol, behind an observer that takes no context, so the
//! running fiber is found through a thread-local.

use std::cell::{Cell, RefCell};
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// The host takes memory only for what is touched. A copy with hundreds of bugs in one source has frames of 100 KiB.
const STACK_BYTES: usize = 4 << 20;

thread_local! {
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
    static SPARE: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A coroutine.
pub(crate) struct Fiber(Option<Coroutine<(), (), (), DefaultStack>>);

impl Fiber {
    /// A fiber that has not started.
    ///
    /// # Panics
    /// If the host has no room for its stack.
    pub(crate) fn new(body: impl FnOnce() + 'static) -> Self {
        let spare = SPARE.with(|spare| spare.borrow_mut().pop());
        let stack = spare.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("room for a stack of 4 MiB"));
        Self(Some(Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            body();
        })))
    }

    /// Runs it until it suspends or ends.
    pub(crate) fn resume(&mut self) {
        if let Some(coroutine) = &mut self.0
            && let CoroutineResult::Return(()) = coroutine.resume(())
        {
            self.retire();
        }
    }

    /// Keeps the stack of an ended fiber for the next one; one that has not ended is unwound first.
    pub(crate) fn retire(&mut self) {
        let Some(mut coroutine) = self.0.take() else { return };
        if !coroutine.done() {
            coroutine.force_unwind();
        }
        SPARE.with(|spare| spare.borrow_mut().push(coroutine.into_stack()));
    }
}

/// Suspends the running fiber.
///
/// # Panics
/// If no fiber runs.
#[expect(unsafe_code, reason = "the yielder is reachable only through a thread-local")]
pub(crate) fn suspend() {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "suspended outside a fiber");
    // SAFETY: every fiber stores its own yielder when it starts and again below whenever it is resumed, and only the
    // running fiber gets here; its yielder lives on its own stack as long as its body runs.
    unsafe { (*yielder).suspend(()) };
    YIELDER.set(yielder);
}

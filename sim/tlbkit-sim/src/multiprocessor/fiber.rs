//! Stackful coroutines: one thread of simulated control each, on one host thread.
//!
//! Code that must let other CPUs run is deep inside the protocol, behind an observer that takes no context, so the
//! running fiber is found through a thread-local. That pointer is the one thing here that the compiler cannot check.

use std::cell::{Cell, RefCell};
use std::ptr;

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// Host stack of a fiber: pages that are never touched cost nothing.
const STACK_BYTES: usize = 256 << 10;
/// Stacks begin in so many different lines of a page: all in the same one, the hot lines of thousands of them would
/// compete for few sets of the host's caches.
const BASES: usize = 32;
/// From one such line to the next: what a fiber uses while it waits stays within a page at most of them.
const STEP_BYTES: usize = 64;
/// Stacks kept for reuse: programs that fork much would otherwise map and unmap one each time.
const SPARE_STACKS: usize = 256;

thread_local! {
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
    static MADE: Cell<usize> = const { Cell::new(0) };
    static SPARE: RefCell<Vec<ShiftedStack>> = const { RefCell::new(Vec::new()) };
}

/// A stack that begins somewhat below its upper end.
struct ShiftedStack {
    whole: DefaultStack,
    base: StackPointer,
}

impl ShiftedStack {
    fn new() -> std::io::Result<Self> {
        let whole = DefaultStack::new(STACK_BYTES)?;
        let shift_bytes = MADE.replace(MADE.get() + 1) % BASES * STEP_BYTES;
        let base = StackPointer::new(whole.base().get() - shift_bytes).expect("a stack is larger than the shift");
        Ok(Self { whole, base })
    }
}

// SAFETY: the guard page is that of the whole stack. What lies above the base is less than a page of its 32, so more
// than `MIN_STACK_SIZE` is left below, and a multiple of lines, so the base is as aligned as the whole one's.
#[expect(unsafe_code, reason = "the trait is unsafe")]
unsafe impl Stack for ShiftedStack {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.whole.limit()
    }
}

/// A coroutine.
pub(crate) struct Fiber(Coroutine<(), (), (), ShiftedStack>);

/// What a fiber did when it was resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It waits to be resumed.
    Suspended,
    /// It has ended.
    Ended,
}

impl Fiber {
    /// A fiber that has not started. Nothing if the host has no room for its stack.
    pub(crate) fn new(body: impl FnOnce() + 'static) -> std::io::Result<Self> {
        let spare = SPARE.with(|spare| spare.borrow_mut().pop());
        let stack = spare.map_or_else(ShiftedStack::new, Ok)?;
        Ok(Self(Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            body();
        })))
    }

    /// Runs it until it suspends or ends.
    pub(crate) fn resume(&mut self) -> Progress {
        match self.0.resume(()) {
            CoroutineResult::Yield(()) => Progress::Suspended,
            CoroutineResult::Return(()) => Progress::Ended,
        }
    }

    /// Keeps the stack of an ended fiber for the next one.
    pub(crate) fn recycle(self) {
        if !self.0.done() {
            return;
        }
        let stack = self.0.into_stack();
        SPARE.with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_STACKS {
                spare.push(stack);
            }
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn two_fibers_take_turns_and_find_their_own_way_back() {
        let trace = Rc::new(RefCell::new(String::new()));
        let say = |name: char| {
            let trace = Rc::clone(&trace);
            Fiber::new(move || {
                for _ in 0..2 {
                    trace.borrow_mut().push(name);
                    suspend();
                }
            })
            .unwrap()
        };
        let (mut a, mut b) = (say('a'), say('b'));
        for _ in 0..2 {
            assert_eq!((a.resume(), b.resume()), (Progress::Suspended, Progress::Suspended));
        }
        assert_eq!((b.resume(), a.resume()), (Progress::Ended, Progress::Ended));
        assert_eq!(*trace.borrow(), "abab");
    }
}

//! Stackful coroutines: one thread of simulated control each, on one host thread.
//!
//! Code that must let other CPUs run is deep inside the protocol, behind an observer that takes no context, so the
//! running fiber is found through a thread-local. That pointer is the one thing here that the compiler cannot check.

use std::cell::{Cell, RefCell};
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// Host stack of a fiber: pages that are never touched cost nothing.
const STACK_BYTES: usize = 128 << 10;
/// Fibers begin at so many different depths of their stacks. Stacks are alike modulo a page, and the hot lines of
/// thousands of them would compete for the same few sets of the host's caches.
const DEPTHS: usize = 16;
/// One step of depth.
const STEP_BYTES: usize = 192;
/// Stacks kept for reuse: programs that fork much would otherwise map and unmap one each time.
const SPARE_STACKS: usize = 256;

thread_local! {
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
    static NEXT_DEPTH: Cell<usize> = const { Cell::new(0) };
    static SPARE: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// A coroutine.
pub(crate) struct Fiber(Coroutine<(), (), (), DefaultStack>);

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
        let depth = NEXT_DEPTH.replace((NEXT_DEPTH.get() + 1) % DEPTHS);
        let stack = spare.map_or_else(|| DefaultStack::new(STACK_BYTES), Ok)?;
        Ok(Self(Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            at_depth(depth, body);
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

/// Calls `body` with `steps` more steps of the stack in use.
#[inline(never)]
fn at_depth(steps: usize, body: impl FnOnce()) {
    let room = [0_u8; STEP_BYTES];
    match steps.checked_sub(1) {
        Some(less) => at_depth(less, body),
        None => body(),
    }
    std::hint::black_box(&room);
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

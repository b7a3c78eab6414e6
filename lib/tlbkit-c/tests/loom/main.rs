//! The C interface's own handshakes under loom, on their real source: the struct behind a mark, and what the hook
//! needs. Run by `RUSTFLAGS="--cfg loom" cargo test -p tlbkit-c --test handshakes`.
//!
//! A kernel may pass a pointer on before the struct behind it is initialized, and a call that uses it then is refused.
//! So only the mark orders the call after the initialization. The rest of the crate is not compiled here, because
//! loom's atomics are larger than the structs of C allow.
#![cfg(loom)]

#[path = "../../src/mark.rs"]
mod mark;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use mark::{HookPlace, Mark};

const MADE: u64 = 0x746c_626b;

/// A struct in C's memory: the mark first.
struct Storage {
    mark: Mark,
    rest: UnsafeCell<u32>,
}

/// A CPU that finds the mark finds the complete struct; a CPU that does not reads nothing.
#[test]
fn what_the_mark_vouches_for_was_written_before() {
    loom::model(|| {
        let storage = Arc::new(Storage { mark: Mark::none(), rest: UnsafeCell::new(0) });
        let maker = Arc::clone(&storage);
        let making = thread::spawn(move || {
            maker.rest.with_mut(|rest| {
                // SAFETY: loom fails if anybody else reads or writes it meanwhile.
                unsafe { *rest = 7 }
            });
            maker.mark.set(MADE);
        });
        if storage.mark.is(MADE) {
            // SAFETY: as above.
            let rest = storage.rest.with(|rest| unsafe { *rest });
            assert_eq!(rest, 7, "the struct is not whole");
        }
        assert!(making.join().is_ok());
        assert!(storage.mark.is(MADE) && !storage.mark.is(MADE + 1));
        storage.mark.clear();
        assert!(!storage.mark.is(MADE));
    });
}

/// A CPU that finds the hook can call it: what it needs was initialized before it was set.
#[test]
fn what_the_hook_needs_was_made_before_it_was_set() {
    loom::model(|| {
        let both = Arc::new((HookPlace::new(), UnsafeCell::new(0)));
        let setter = Arc::clone(&both);
        let setting = thread::spawn(move || {
            setter.1.with_mut(|console| {
                // SAFETY: loom fails if anybody else reads or writes it meanwhile.
                unsafe { *console = 7 }
            });
            setter.0.put(core::ptr::dangling_mut());
        });
        if !both.0.get().is_null() {
            // SAFETY: as above.
            let console = both.1.with(|console| unsafe { *console });
            assert_eq!(console, 7, "the hook finds nothing to print on");
        }
        assert!(setting.join().is_ok());
        assert!(!both.0.get().is_null());
    });
}

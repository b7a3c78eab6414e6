//! Panics of the code under test are findings: they are reported once, with their seed, and not by the panic hook.

use std::cell::Cell;
use std::panic;
use std::sync::Once;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

static HOOK: Once = Once::new();

/// Installs a hook that keeps silent inside [`quietly`].
pub(crate) fn silence_panics() {
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                others(info);
            }
        }));
    });
}

/// Calls `body`, whose panics on this thread are silent.
pub(crate) fn quietly<R>(body: impl FnOnce() -> R) -> R {
    IS_QUIET.set(true);
    let result = body();
    IS_QUIET.set(false);
    result
}

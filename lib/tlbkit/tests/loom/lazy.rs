//! INV-5: a lazy CPU is not interrupted, and is none the worse for it.

use crate::explore::check;
use crate::machine::Setup;

/// The race of C-24: either the sender sees it running, or it sees the new generation.
#[test]
fn inv_5_leaving_lazy_mode_meets_revoke() {
    check(
        Setup::default(),
        |[_, cpu]| {
            cpu.switch(1);
            cpu.lazy();
        },
        [
            |cpu| cpu.unmap(1, &[0]),
            |cpu| {
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

/// What the program did before its CPU went idle is over when a sender skips that CPU.
#[test]
fn inv_5_entering_lazy_mode_meets_revoke() {
    check(
        Setup::default(),
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| cpu.unmap(1, &[0]),
            |cpu| {
                cpu.access(0);
                cpu.lazy();
            },
        ],
    );
}

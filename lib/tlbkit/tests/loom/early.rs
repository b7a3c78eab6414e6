//! INV-6 where a responder acknowledges before it flushes: the mailbox may be written again at once, and handlers that
//! come before the flush touch nothing. What `requests.rs` and `issue.rs` have in both ways is not repeated.

use tlbkit::{Isolation, Policy, UserFlush};

use crate::explore::check;
use crate::machine::{EARLY, Setup};

fn setup(pages: usize) -> Setup {
    Setup { policy: EARLY, pages, ..Setup::default() }
}

/// The second request lies in the same mailbox, and may be written while the responder carries out the first.
#[test]
fn inv_6_a_mailbox_is_used_again_before_its_responder_has_flushed() {
    check(
        setup(2),
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| [0, 1].iter().for_each(|&page| cpu.unmap(1, &[page])),
            |cpu| [1, 0].iter().for_each(|&page| cpu.access(page)),
        ],
    );
}

#[test]
fn inv_6_freed_tables_are_acknowledged_after_the_flush() {
    check(
        setup(1),
        |[_, cpu]| cpu.switch(1),
        [|cpu| cpu.unmap_with_tables(1), |cpu| (0..2).for_each(|_| cpu.access(0))],
    );
}

/// The user half is owed when the flush is acknowledged, and is flushed on the way back to the program.
#[test]
fn inv_10_an_early_acknowledgement_leaves_no_user_half() {
    let policy = Policy { isolation: Isolation::On, user_flush: UserFlush::DeferredCr3, ..EARLY };
    check(
        Setup { policy, ..setup(1) },
        |[_, cpu]| cpu.switch(1),
        [|cpu| cpu.unmap(1, &[0]), |cpu| (0..2).for_each(|_| cpu.access(0))],
    );
}

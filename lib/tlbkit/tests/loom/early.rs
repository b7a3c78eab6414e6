//! INV-6 where a responder acknowledges before it flushes: what it did before is over, the mailbox may be written again
//! at once, and handlers that come before the flush touch nothing.

use tlbkit::{Acknowledgement, Isolation, Policy, UserFlush};

use crate::explore::{all_run_one_space, check};
use crate::machine::{POLICY, Setup};

const EARLY: Policy = Policy { acknowledgement: Acknowledgement::BeforeFlush, ..POLICY };

fn setup(pages: usize) -> Setup {
    Setup { policy: EARLY, pages, ..Setup::default() }
}

#[test]
fn inv_6_an_early_acknowledgement_comes_after_the_program() {
    check(setup(1), |[_, cpu]| cpu.switch(1), [|cpu| cpu.unmap(1, &[0]), |cpu| (0..2).for_each(|_| cpu.access(0))]);
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
fn inv_7_two_senders_acknowledge_each_other_early() {
    check(
        Setup { preemptions: 2, ..setup(2) },
        all_run_one_space,
        [
            |cpu| {
                cpu.access(1);
                cpu.unmap(1, &[0]);
            },
            |cpu| {
                cpu.access(0);
                cpu.unmap(1, &[1]);
            },
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

/// A task that waits on another CPU sees the bit cleared, or the mailbox used again.
#[test]
fn inv_6_a_wait_elsewhere_meets_an_early_acknowledgement() {
    check(
        Setup { preemptions: 2, ..setup(2) },
        |[issuer, responder, _]| {
            responder.switch(1);
            issuer.hand_over(issuer.issue(1, &[0]));
        },
        [
            |cpu| {
                let issued = cpu.issue(1, &[1]);
                cpu.wait(issued);
            },
            |cpu| {
                cpu.access_uninterrupted(0);
                cpu.access(1);
            },
            |cpu| cpu.take_over().into_iter().for_each(|issued| cpu.wait(issued)),
        ],
    );
}

//! INV-6 and INV-7: a request, its answer, and all that can come between them.

use tlbkit::Late;

use crate::explore::{all_run_one_space, check, check_both};
use crate::machine::Setup;

#[test]
fn inv_6_what_the_target_did_is_over_when_the_flush_returns() {
    check_both(
        Setup::default(),
        |[_, cpu]| cpu.switch(1),
        [|cpu| cpu.unmap(1, &[0]), |cpu| (0..2).for_each(|_| cpu.access(0))],
    );
}

/// The wait ends by a look that answers nobody.
#[test]
fn inv_6_what_the_target_did_is_over_when_a_glance_ends_the_wait() {
    check(
        Setup { glances: 1, ..Setup::default() },
        |[_, cpu]| cpu.switch(1),
        [|cpu| cpu.unmap(1, &[0]), |cpu| (0..2).for_each(|_| cpu.access(0))],
    );
}

/// Each finds the other's hint while it waits, before the interrupt comes or after.
#[test]
fn inv_7_two_senders_answer_each_other() {
    check_both(
        Setup { pages: 2, preemptions: 2, ..Setup::default() },
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

/// The second sender finds a hint there and sends no interrupt: the first one's must do for both. With narrow sets they
/// stand in two words under one top.
#[test]
fn inv_7_two_senders_share_an_interrupt() {
    check(
        Setup { pages: 2, preemptions: 2, ..Setup::default() },
        |[_, target, _]| target.switch(1),
        [|cpu| cpu.unmap(1, &[0]), |cpu| cpu.access(0), |cpu| cpu.unmap(1, &[1])],
    );
}

/// The same where both senders stand in one word of the inbox and the target in another: who finds the word not empty
/// leaves the top to the first.
#[cfg(narrow_sets)]
#[test]
fn inv_7_two_senders_of_one_word_share_an_interrupt() {
    check(
        Setup { pages: 2, preemptions: 2, ..Setup::default() },
        |[_, _, target]| target.switch(1),
        [|cpu| cpu.unmap(1, &[0]), |cpu| cpu.unmap(1, &[1]), |cpu| cpu.access(0)],
    );
}

/// Both ask everybody. The second finds the first one's hint with the target, so it sends no interrupt to all. As the
/// first waits for nothing, it must be interrupted although it was passed over before.
#[test]
fn inv_7_who_was_passed_over_is_interrupted_after_all() {
    check(
        Setup { pages: 2, preemptions: 1, ..Setup::default() },
        all_run_one_space,
        [
            |cpu| {
                let issued = cpu.issue(1, &[1]);
                cpu.hand_over(issued);
            },
            |cpu| cpu.unmap(1, &[0]),
            |_| (),
        ],
    );
}

/// A hint of the request before is still there when the next one is written: the mailbox must be whole all the same.
#[test]
fn inv_7_a_request_sent_again_is_carried_out_once() {
    check(
        Setup { pages: 2, late: Late::AskAgain, ..Setup::default() },
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| {
                cpu.unmap(1, &[0]);
                cpu.unmap(1, &[1]);
            },
            |cpu| {
                cpu.access(1);
                cpu.access(1);
            },
        ],
    );
}

/// The same in an inbox with a top, which the CPU that does nothing makes large enough: what is dropped again after it
/// was taken must be named again, or the next request finds a word that is not empty and no interrupt on its way.
#[cfg(narrow_sets)]
#[test]
fn inv_7_a_request_sent_again_is_named_by_the_top_again() {
    check(
        Setup { pages: 2, late: Late::AskAgain, preemptions: 2, ..Setup::default() },
        |[_, _, target]| target.switch(1),
        [
            |cpu| {
                cpu.unmap(1, &[0]);
                cpu.unmap(1, &[1]);
            },
            |_| (),
            |cpu| {
                cpu.access(1);
                cpu.access(1);
            },
        ],
    );
}

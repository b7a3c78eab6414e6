//! INV-6 and INV-7: requests of one CPU that are outstanding together, and waits on another CPU. A ring has two
//! mailboxes here.

use crate::explore::{all_run_one_space, check, check_both};
use crate::machine::Setup;

fn setup(pages: usize) -> Setup {
    Setup { pages, ..Setup::default() }
}

#[test]
fn inv_6_what_was_issued_is_over_when_its_wait_returns() {
    check(
        setup(1),
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| {
                let issued = cpu.issue(1, &[0]);
                cpu.wait(issued);
            },
            |cpu| (0..2).for_each(|_| cpu.access(0)),
        ],
    );
}

/// The responder may take the first hint before the second request is written, between the two, or with it.
#[test]
fn inv_6_a_hint_leads_to_both_mailboxes() {
    check(
        setup(2),
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| {
                let issued = [0, 1].map(|page| cpu.issue(1, &[page]));
                issued.into_iter().rev().for_each(|issued| cpu.wait(issued));
            },
            |cpu| [0, 1].iter().for_each(|&page| cpu.access(page)),
        ],
    );
}

/// The third finds a mailbox that is free again, or none and is asked by its wait: a request is not written over.
#[test]
fn inv_6_a_mailbox_is_used_again_when_it_was_answered() {
    check(
        Setup { preemptions: 2, ..setup(3) },
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| {
                let issued = [0, 1, 2].map(|page| cpu.issue(1, &[page]));
                issued.into_iter().rev().for_each(|issued| cpu.wait(issued));
            },
            |cpu| [0, 1, 2].iter().for_each(|&page| cpu.access(page)),
        ],
    );
}

/// Each has issued one before it waits: the waits answer each other.
#[test]
fn inv_7_two_that_issued_answer_each_other() {
    check(
        Setup { preemptions: 2, ..setup(2) },
        all_run_one_space,
        [
            |cpu| {
                let issued = cpu.issue(1, &[0]);
                cpu.access(1);
                cpu.wait(issued);
            },
            |cpu| {
                let issued = cpu.issue(1, &[1]);
                cpu.access(0);
                cpu.wait(issued);
            },
        ],
    );
}

/// The task goes to another CPU between the two; meanwhile its old CPU uses the mailbox again.
#[test]
fn inv_6_a_wait_elsewhere_meets_a_mailbox_used_again() {
    check_both(
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

/// The CPU that is asked leaves, and comes back, while a task waits for it on another CPU than the one that asked.
#[test]
fn inv_6_a_wait_elsewhere_meets_a_responder_that_leaves() {
    check(
        Setup { preemptions: 2, ..setup(1) },
        |[issuer, responder, _]| {
            responder.switch(1);
            issuer.hand_over(issuer.issue(1, &[0]));
        },
        [
            |_| (),
            |cpu| {
                cpu.access_uninterrupted(0);
                cpu.stop();
            },
            |cpu| cpu.take_over().into_iter().for_each(|issued| cpu.wait(issued)),
        ],
    );
}

/// A CPU that resumes has two requests outstanding: it is not back before both are answered.
#[test]
fn inv_7_resume_meets_two_that_were_issued() {
    check(
        Setup { preemptions: 2, ..setup(2) },
        |[_, cpu]| cpu.switch(1),
        [
            |cpu| {
                let issued = [0, 1].map(|page| cpu.issue(1, &[page]));
                cpu.bring_up();
                issued.into_iter().for_each(|issued| cpu.wait(issued));
            },
            |cpu| [0, 1].iter().for_each(|&page| cpu.access(page)),
        ],
    );
}

/// The other one asks it meanwhile: it answers with interrupts off, for as long as it waits.
#[test]
fn inv_7_resume_with_one_that_was_issued_answers_another() {
    check(
        Setup { preemptions: 2, ..setup(2) },
        all_run_one_space,
        [
            |cpu| {
                let issued = cpu.issue(1, &[0]);
                cpu.bring_up();
                cpu.wait(issued);
            },
            |cpu| {
                cpu.access(0);
                cpu.unmap(1, &[1]);
            },
        ],
    );
}

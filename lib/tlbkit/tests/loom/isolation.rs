//! INV-10: the user half, in a program that goes back and forth between its two halves.

use tlbkit::{Isolation, Policy, UserFlush};

use crate::explore::check;
use crate::machine::{POLICY, Setup};

fn revoke_meets_a_program(user_flush: UserFlush) {
    check(
        Setup { policy: Policy { isolation: Isolation::On, user_flush, ..POLICY }, ..Setup::default() },
        |[_, cpu]| {
            cpu.switch(1);
            cpu.access(0);
        },
        [
            |cpu| cpu.unmap(1, &[0]),
            |cpu| {
                cpu.access(0);
                cpu.lazy();
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

#[test]
fn inv_10_the_user_half_by_page() {
    revoke_meets_a_program(UserFlush::Invpcid);
}

#[test]
fn inv_10_the_user_half_on_the_way_out() {
    revoke_meets_a_program(UserFlush::DeferredCr3);
}

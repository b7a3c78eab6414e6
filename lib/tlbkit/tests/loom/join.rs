//! INV-2 and INV-12: a CPU that joins a space and one that revokes translations cannot both miss the other.

use crate::explore::check;
use crate::machine::Setup;

#[test]
fn inv_2_join_meets_revoke() {
    check(
        Setup::default(),
        |_| {},
        [
            |cpu| cpu.unmap(1, &[0]),
            |cpu| {
                cpu.switch(1);
                cpu.access(0);
            },
        ],
    );
}

/// The space's slot is still there, so the switch writes no shared line: only its fence makes it seen.
#[test]
fn inv_12_return_to_a_recent_space_meets_revoke() {
    check(
        Setup { spaces: 2, ..Setup::default() },
        |[_, cpu]| {
            cpu.switch(1);
            cpu.switch(2);
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

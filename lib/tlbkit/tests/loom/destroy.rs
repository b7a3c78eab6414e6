//! INV-1 for the top-level table: a space dies while a CPU holds it lazily.

use tlbkit::{History, LazyReferences, Policy};

use crate::explore::check;
use crate::machine::{POLICY, Setup};

/// Whoever comes last frees the table, after everything that the other did with it.
#[test]
fn inv_1_destroy_meets_the_last_counted_lazy_cpu() {
    check(
        Setup {
            policy: Policy { history: History { lazy_references: LazyReferences::Counted, ..History::NONE }, ..POLICY },
            ..Setup::default()
        },
        |[_, cpu]| {
            cpu.switch(1);
            cpu.lazy();
        },
        [|cpu| cpu.destroy(1), |cpu| cpu.load_kernel()],
    );
}

#[test]
fn inv_1_destroy_shoots_down_a_lazy_cpu() {
    check(
        Setup { spaces: 2, ..Setup::default() },
        |[_, cpu]| {
            cpu.switch(1);
            cpu.lazy();
        },
        [|cpu| cpu.destroy(1), |cpu| cpu.switch(2)],
    );
}

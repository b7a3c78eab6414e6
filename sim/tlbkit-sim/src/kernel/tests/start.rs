//! How a machine starts.

use std::cell::RefCell;

use tlbkit::sync::{Observer as AtomicsObserver, set_observer};
use tlbkit::{IrqsOff, Part};

use crate::run::stage::rehearse;

const CPUS: usize = 6;

std::thread_local! {
    /// Where the words lie that were read or written.
    static MET: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// If each looked at those of all the others, a machine of n CPUs would start in n times n looks.
#[test]
fn a_cpu_that_starts_looks_at_no_outbox_but_its_own() {
    rehearse(CPUS, |_, kernel| {
        let machine = kernel.machine();
        for cpu in 0..CPUS {
            let before = |_, address| MET.with_borrow_mut(|met| met.push(address));
            let simulator = set_observer(AtomicsObserver { before, ..AtomicsObserver::NOBODY });
            machine.with_cpu(cpu, |handle| handle.bring_up(&IrqsOff::assume()));
            set_observer(simulator);
            let parts = MET.take().into_iter().filter_map(|address| machine.tlb().part_at(address));
            let owners = parts.filter_map(|part| match part {
                Part::Outbox(owner) => Some(owner.0 as usize),
                _ => None,
            });
            let mut owners: Vec<_> = owners.collect();
            owners.dedup();
            assert_eq!(owners, [cpu]);
        }
    });
}

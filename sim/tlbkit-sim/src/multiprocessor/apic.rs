//! Local APICs: how many writes of the interrupt command a sender needs, and how long it waits before each.
//!
//! A write names one CPU, all others, or all CPUs of a group whose APIC ids differ in their low bits alone. The write
//! is charged with the first CPU of a group that a flush interrupts, and is free for the others. (Real kernels gather
//! the group first and write then, so here the first CPU is interrupted a few instructions too early.) With xAPIC the
//! command stays pending until the target has accepted it, and the next write waits for that. With x2APIC it does not.

use std::cell::{Cell, RefCell};

use tlbkit_machine::Apic;

use crate::code::Destinations;

/// One CPU as a sender.
#[derive(Debug, Default)]
struct Sender {
    /// Until when its command is pending.
    pending_until: Cell<u64>,
    /// Groups that the flush which is under way has written to, in order.
    written: RefCell<Vec<usize>>,
}

/// All CPUs as senders.
#[derive(Debug)]
pub(super) struct Apics {
    group: usize,
    pending_cycles: u64,
    senders: Box<[Sender]>,
}

impl Apics {
    /// Those of `cpus` CPUs on which code with these `destinations` runs.
    pub(super) fn new(apic: Option<&Apic>, destinations: Destinations, cpus: usize) -> Self {
        let group = match (apic, destinations) {
            (Some(apic), Destinations::Group) => apic.cpus_a_write.count(),
            _ => 1,
        };
        let pending_cycles = apic.map_or(0, |apic| apic.pending_cycles.cycles());
        Self { group, pending_cycles, senders: (0..cpus).map(|_| Sender::default()).collect() }
    }

    /// The CPU has chosen whom to interrupt next.
    pub(super) fn begin(&self, cpu: usize) {
        self.senders[cpu].written.borrow_mut().clear();
    }

    /// Whether the CPU has to write a command to interrupt the one with this id: not if a write of the same flush named
    /// its group.
    pub(super) fn needs_write(&self, cpu: usize, apic_id: usize) -> bool {
        if self.group == 1 {
            return true;
        }
        let (mut written, group) = (self.senders[cpu].written.borrow_mut(), apic_id / self.group);
        let place = written.binary_search(&group);
        place.map_err(|place| written.insert(place, group)).is_err()
    }

    /// How long the CPU must wait from `now` on until its last command has been accepted.
    pub(super) fn wait(&self, cpu: usize, now: u64) -> u64 {
        self.senders[cpu].pending_until.get().saturating_sub(now)
    }

    /// The CPU has written a command, at `now`.
    pub(super) fn note_written(&self, cpu: usize, now: u64) {
        self.senders[cpu].pending_until.set(now + self.pending_cycles);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlbkit_machine::Machine;

    fn apics(machine: &str, destinations: Destinations) -> Apics {
        let machine = Machine::builtin(machine).expect("a built-in machine");
        Apics::new(machine.apic.as_ref(), destinations, 2)
    }

    #[test]
    fn one_write_names_all_of_a_group_and_the_next_flush_writes_again() {
        let apics = apics("server-2018-48cpu", Destinations::Group);
        let writes = |ids: &[usize]| ids.iter().filter(|&&id| apics.needs_write(0, id)).count();
        assert_eq!(writes(&[3, 40, 15, 16, 33, 2]), 3, "ids 0 to 15, 16 to 31 and 32 to 47");
        assert_eq!(writes(&[7, 50]), 1);
        assert!(apics.needs_write(1, 7), "another sender writes for itself");
        apics.begin(0);
        assert_eq!(writes(&[7, 8]), 1);
    }

    #[test]
    fn code_that_names_one_cpu_and_a_machine_that_can_only_do_so_write_for_each() {
        for apics in [apics("server-2018-48cpu", Destinations::One), apics("recent-vm", Destinations::Group)] {
            assert!([1, 1, 2].iter().all(|&id| apics.needs_write(0, id)));
        }
    }
}

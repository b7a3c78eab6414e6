//! A machine file's cycles as the integers that the engine adds up.

use tlbkit::Policy;
use tlbkit_machine::{Machine, Quantity};

use crate::code::{Code, Paths};
use crate::lines::LineCosts;

/// Everything that costs a fixed number of cycles.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Costs {
    pub(crate) invlpg: u64,
    pub(crate) cr3_flush: u64,
    pub(crate) cr3_keep: u64,
    pub(crate) cr4_pge_toggle: u64,
    pub(crate) invpcid_address: u64,
    pub(crate) invpcid_single: u64,
    pub(crate) invpcid_all: u64,
    pub(crate) invlpgb: u64,
    pub(crate) tlbsync: u64,
    pub(crate) page_fault: u64,
    pub(crate) syscall: u64,
    pub(crate) interrupt: u64,
    pub(crate) ipi_send: u64,
    pub(crate) ipi_send_shorthand: u64,
    pub(crate) ipi_same_socket: u64,
    pub(crate) ipi_cross_socket: u64,
    pub(crate) idle_wake: u64,
    pub(crate) halt_entry: u64,
    pub(crate) context_switch: u64,
    pub(crate) zero_page: u64,
    /// Unmapping and freeing a page, without the accesses to its entry, which are charged where they are made.
    pub(crate) give_back_page: u64,
    pub(crate) copy_page: u64,
    pub(crate) full_fence: u64,
    /// What the instructions of switches, flushes and answers cost, call by call.
    pub(crate) calls: Paths<u64>,
    /// One instruction of the kernel's.
    pub(crate) instruction_cycles: f64,
    pub(crate) pte_access: u64,
    pub(crate) pause: u64,
    pub(crate) time_slice: u64,
    /// What work costs while the other thread of the core works too, in percent of what it costs alone.
    pub(crate) smt_percent: u64,
    pub(crate) lines: LineCosts,
    pub(super) frequency_mhz: f64,
}

/// Accesses to its entry by which a page is given back: it is read, exchanged, and found empty.
const ENTRY_ACCESSES: u64 = 3;

impl Costs {
    pub(crate) fn new(machine: &Machine, policy: &Policy, code: Code) -> Self {
        let (cycles, software, line) = (&machine.cycles, &machine.software, &machine.cache_line);
        let optional = |quantity: &Option<Quantity>| quantity.as_ref().map_or(0, Quantity::cycles);
        Self {
            invlpg: cycles.invlpg.cycles(),
            cr3_flush: cycles.cr3_flush.cycles(),
            cr3_keep: optional(&cycles.cr3_keep),
            cr4_pge_toggle: cycles.cr4_pge_toggle.cycles(),
            invpcid_address: optional(&cycles.invpcid_address),
            invpcid_single: optional(&cycles.invpcid_single),
            invpcid_all: optional(&cycles.invpcid_all),
            invlpgb: machine.broadcast.as_ref().map_or(0, |broadcast| broadcast.invlpgb_cycles.cycles()),
            tlbsync: machine.broadcast.as_ref().map_or(0, |broadcast| broadcast.tlbsync_cycles.cycles()),
            page_fault: cycles.page_fault_entry_exit.cycles(),
            syscall: cycles.syscall.cycles(),
            interrupt: cycles.interrupt_entry_exit.cycles(),
            ipi_send: cycles.ipi_send.cycles(),
            ipi_send_shorthand: cycles.ipi_send_shorthand.cycles(),
            ipi_same_socket: cycles.ipi_deliver_same_socket.cycles(),
            ipi_cross_socket: cycles.ipi_deliver_cross_socket.cycles(),
            idle_wake: cycles.idle_wake.cycles(),
            halt_entry: cycles.halt_entry.cycles(),
            context_switch: cycles.context_switch_base.cycles(),
            zero_page: cycles.zero_page.cycles(),
            give_back_page: optional(&cycles.give_back_page)
                .saturating_sub(ENTRY_ACCESSES * software.pte_access_cycles.cycles()),
            copy_page: cycles.copy_page.cycles(),
            full_fence: line.full_fence_cycles.cycles(),
            calls: Paths::of(policy, code, |count| cycles_of(count.into(), software.instruction_cycles.value)),
            instruction_cycles: software.instruction_cycles.value,
            pte_access: software.pte_access_cycles.cycles(),
            pause: software.pause_cycles.cycles().max(1),
            time_slice: software.time_slice_cycles.cycles().max(1),
            smt_percent: software.smt_busy_percent.cycles().max(100),
            frequency_mhz: machine.system.frequency_mhz.value,
            lines: LineCosts {
                local_cycles: line.local_hit_cycles.cycles(),
                same_group_cycles: line.same_group_cycles.as_ref().map(Quantity::cycles),
                same_socket_cycles: line.same_socket_cycles.cycles(),
                cross_socket_cycles: line.cross_socket_cycles.cycles(),
                locked_cycles: line.locked_op_cycles.cycles(),
            },
        }
    }
}

impl Costs {
    /// A time as cycles.
    pub(crate) fn cycles_of_ns(&self, ns: u64) -> u64 {
        (ns as f64 * self.frequency_mhz / 1e3).round() as u64
    }

    /// What so many instructions of the kernel cost.
    pub(crate) fn instructions(&self, count: u64) -> u64 {
        cycles_of(count, self.instruction_cycles)
    }
}

/// What so many instructions cost, of which each takes `instruction_cycles`.
fn cycles_of(instructions: u64, instruction_cycles: f64) -> u64 {
    (instructions as f64 * instruction_cycles).round() as u64
}

//! A CPU is taken out while requests may be sent to it, and comes back online: `lib/tlbkit/src/cpu/hotplug.rs` and
//! `lib/tlbkit/src/flush/wait.rs`.

use crate::deviation::Deviation;
use crate::protocol::Protocol;
use crate::state::{CpuNumber, FIRST, Mailbox, Presence, State, Store};
use crate::step::Step;

impl Protocol {
    /// `Cpu::offline`.
    pub(crate) fn begin_absence(&self, state: &mut State, cpu: CpuNumber) {
        state.cpus[cpu].then(&[Step::TakeInbox, Step::MarkAbsent]);
        if state.cpus[cpu].own_presence != Presence::Kernel {
            self.begin_kernel(state, cpu);
        }
    }

    /// No interrupt reaches it from here on, nor one that was on its way.
    pub(crate) fn mark_absent(state: &mut State, cpu: CpuNumber) {
        let this = &mut state.cpus[cpu];
        this.asids = Default::default();
        this.has_interrupt = false;
        this.store(Store::Presence(Presence::Absent));
    }

    /// `Cpu::bring_up`, from where it forgets what other CPUs requested.
    pub(crate) fn begin_comeback(&self, state: &mut State, cpu: CpuNumber) {
        let others = ((1 << state.cpus.len()) - 1) & !(1 << cpu);
        // The interrupts that were lost are made up for by the last step.
        state.cpus[cpu].then(&[Step::MarkKernel, Step::Fence, Step::Restart, Step::TakeInbox]);
        if self.deviates(Deviation::ForgetsInbox) {
            state.cpus[cpu].then(&[Step::ForgetInbox]);
        }
        state.cpus[cpu].then(&[Step::ForgetOutbox(others)]);
    }

    pub(crate) fn forget_outbox(state: &mut State, cpu: CpuNumber, senders: u8) {
        state.cpus[senders.trailing_zeros() as CpuNumber].outboxes[FIRST] &= !(1 << cpu);
        let others = senders & (senders - 1);
        if others != 0 {
            state.cpus[cpu].then(&[Step::ForgetOutbox(others)]);
        }
    }

    pub(crate) fn restart(state: &mut State, cpu: CpuNumber) {
        state.cpus[cpu].entries = Default::default();
        state.cpus[cpu].pending_user = u8::MAX;
    }

    /// Of those that have not answered what is in `mailbox` of `cpu`, the ones from which it may withdraw its request.
    pub(crate) fn absent_targets(&self, state: &State, cpu: CpuNumber, mailbox: Mailbox) -> u8 {
        let is_absent = |target: &CpuNumber| state.cpus[*target].presence == Presence::Absent;
        let absent = (0..state.cpus.len()).filter(is_absent).fold(0, |bits, target| bits | 1 << target);
        if self.deviates(Deviation::NeverWithdraws) { 0 } else { absent & state.cpus[cpu].outboxes[mailbox] }
    }
}

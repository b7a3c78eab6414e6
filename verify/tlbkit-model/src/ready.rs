//! Whether a CPU can go on: what a step waits for, and where interrupts are on.

use crate::deviation::Deviation;
use crate::protocol::Protocol;
use crate::state::{CpuNumber, FIRST, Presence, State, Then};
use crate::step::Step;

/// True if the step's access is one that x86 performs only when all earlier stores have reached memory.
const fn needs_empty_buffer(step: &Step) -> bool {
    matches!(
        step,
        Step::Fence
            | Step::Join(_)
            | Step::LeaveSet(..)
            | Step::Count(_)
            | Step::Uncount(..)
            | Step::Advance(..)
            | Step::Owe(_)
            | Step::AdvanceNamed(_)
            | Step::Settle(_)
            | Step::AskHost { .. }
            | Step::MarkLate(_)
            | Step::BeginMove(_)
            | Step::TakePcid(_)
            | Step::Reach(..)
            | Step::NamePcid(_)
            | Step::EndMove(_)
            | Step::Follow
            | Step::Hint(_)
            | Step::TakeInbox
            | Step::Acknowledge(..)
            | Step::ForgetOutbox(_)
    )
}

/// True if interrupts are on before this step.
const fn is_interruptible(step: &Step) -> bool {
    matches!(
        step,
        Step::ChangeTable(..)
            | Step::Advance(..)
            | Step::LookAlone(..)
            | Step::TakeMailbox(..)
            | Step::ReadSet(..)
            | Step::ReadPresence { .. }
            | Step::AskHost { .. }
            | Step::MarkLate(_)
            | Step::Hint(_)
            | Step::Wait(_)
            | Step::Leave(..)
            | Step::LeaveUnasked(_)
            | Step::WaitFor(_)
            | Step::CheckTurn(_)
            | Step::Return(_)
            | Step::Owe(_)
            | Step::AdvanceNamed(_)
            | Step::Unite(_)
            | Step::ReadUnion(..)
            | Step::Settle(_)
            | Step::LookOwed(..)
            | Step::Widen(_)
            | Step::Drained(..)
            | Step::BeginMove(_)
            | Step::TakePcid(_)
            | Step::Reach(..)
            | Step::NamePcid(_)
            | Step::EndMove(_)
            | Step::Ended(_)
    )
}

impl Protocol {
    /// True if `cpu` has a next step, and need not wait for anybody before it.
    pub(crate) fn can_step(&self, state: &State, cpu: CpuNumber) -> bool {
        let this = &state.cpus[cpu];
        match this.steps.last() {
            None => false,
            Some(Step::Wait(mailbox)) => {
                let hears = this.inbox != 0 && !self.deviates(Deviation::WaitsDeaf);
                this.outboxes[*mailbox] == 0 || hears || self.absent_targets(state, cpu, *mailbox) != 0
            }
            Some(Step::TakeMailbox(_, Then::Wait, FIRST)) => this.inbox != 0 || self.may_take_any(state, cpu),
            Some(Step::WaitFor(asked)) => this.inbox != 0 || self.seems_over(state, cpu, asked),
            Some(Step::Advance(..)) if self.deviates(Deviation::RevokerUnfenced) => true,
            Some(step) => !needs_empty_buffer(step) || this.buffer.is_empty(),
        }
    }

    /// True if an interrupt is on its way to `cpu`, and nothing holds it back.
    pub(crate) fn can_be_interrupted(&self, state: &State, cpu: CpuNumber) -> bool {
        let this = &state.cpus[cpu];
        let is_deaf = self.deviates(Deviation::WaitsDeaf) && matches!(this.steps.last(), Some(Step::Wait(_)));
        this.own_presence != Presence::Absent
            && this.has_interrupt
            && this.steps.last().is_none_or(is_interruptible)
            && !is_deaf
    }
}

//! A flush is issued and waited for later, with two mailboxes a CPU: `lib/tlbkit/src/flush/mailboxes.rs` and
//! `pending.rs`.

use crate::deviation::Deviation;
use crate::protocol::Protocol;
use crate::state::{Asked, CpuNumber, FIRST, Mailbox, Pending, Request, State, Store, Then};
use crate::step::Step;

impl Protocol {
    /// The steps that only a ring has.
    pub(crate) fn step_ring(&self, state: &mut State, cpu: CpuNumber, step: Step) {
        match step {
            Step::TakeMailbox(request, then, mailbox) => self.take_mailbox(state, cpu, request, then, mailbox),
            Step::MarkSeveralLate => state.cpus[cpu].store(Store::Several),
            Step::Leave(request, mailbox) => self.leave(state, cpu, request, mailbox),
            Step::LeaveUnasked(request) => Self::leave_pending(state, Pending::Announced(request)),
            Step::WaitFor(asked) => self.wait_for(state, cpu, asked),
            Step::CheckTurn(asked) => self.check_turn(state, cpu, asked),
            Step::CheckSecond(sender) => Self::check_second(state, cpu, sender),
            other => unreachable!("{other:?} has its own place"),
        }
    }

    /// `free_if_answered` of one mailbox after the other, as `free_mailbox` and `wait_for_mailbox` do.
    fn take_mailbox(&self, state: &mut State, cpu: CpuNumber, request: Request, then: Then, mailbox: Mailbox) {
        if self.may_take(state, cpu, mailbox) {
            self.free(state, cpu, mailbox);
            return self.send(state, cpu, request, then, mailbox);
        }
        let steps = match then {
            _ if mailbox + 1 < self.world.mailboxes => vec![Step::TakeMailbox(request, then, mailbox + 1)],
            Then::Wait => vec![Step::TakeInbox, Step::TakeMailbox(request, then, FIRST)],
            Then::Return => vec![Step::CarryOut(request), Step::LeaveUnasked(request)],
        };
        state.cpus[cpu].then(&steps);
    }

    /// True if nobody reads the mailbox any more.
    fn may_take(&self, state: &State, cpu: CpuNumber, mailbox: Mailbox) -> bool {
        let this = &state.cpus[cpu];
        let is_empty = this.outboxes[mailbox] == 0 || self.deviates(Deviation::MailboxReused);
        this.issued & 1 << mailbox == 0 || is_empty
    }

    pub(crate) fn may_take_any(&self, state: &State, cpu: CpuNumber) -> bool {
        (0..self.world.mailboxes).any(|mailbox| self.may_take(state, cpu, mailbox))
    }

    /// A mailbox that was issued was found empty.
    fn free(&self, state: &mut State, cpu: CpuNumber, mailbox: Mailbox) {
        let this = &mut state.cpus[cpu];
        if this.issued & 1 << mailbox == 0 {
            return;
        }
        this.issued &= !(1 << mailbox);
        if !self.deviates(Deviation::TurnStandsStill) {
            this.store(Store::Turn(mailbox, this.own_turn(mailbox) + 1));
        }
    }

    /// The mailbox is left to the CPU that waits; if no request was sent, the flush is over.
    fn leave(&self, state: &mut State, cpu: CpuNumber, request: Request, mailbox: Mailbox) {
        let this = &mut state.cpus[cpu];
        // The hint, if there was one, has waited until memory had this.
        if this.mailboxes[mailbox] != Some(request) {
            return this.then(&[Step::Return(request)]);
        }
        this.issued |= 1 << mailbox;
        let asked = Asked { by: cpu, mailbox, turn: this.own_turn(mailbox), request };
        Self::leave_pending(state, Pending::Asked(asked));
    }

    fn leave_pending(state: &mut State, pending: Pending) {
        state.pending.push(pending);
        state.budget.waits += 1;
    }

    /// `Pending::wait`, on any CPU.
    pub(crate) fn begin_wait(&self, state: &mut State, cpu: CpuNumber, number: usize) {
        let pending = state.pending.remove(number);
        let last = Step::Return(*pending.request());
        match pending {
            Pending::Announced(_) if self.deviates(Deviation::UnaskedIsOver) => state.cpus[cpu].then(&[last]),
            Pending::Announced(request) => state.cpus[cpu].then(&[Step::TakeMailbox(request, Then::Wait, FIRST)]),
            Pending::Asked(asked) => state.cpus[cpu].then(&[Step::WaitFor(asked), last]),
        }
    }

    /// True if a look at the outbox, and then at the turn, would find the request over.
    pub(crate) fn seems_over(&self, state: &State, cpu: CpuNumber, asked: &Asked) -> bool {
        self.is_answered(state, asked) || Self::is_used_again(state, cpu, asked)
    }

    fn is_answered(&self, state: &State, asked: &Asked) -> bool {
        state.cpus[asked.by].outboxes[asked.mailbox] == 0 || self.deviates(Deviation::IssuedIsOver)
    }

    fn is_used_again(state: &State, cpu: CpuNumber, asked: &Asked) -> bool {
        let by = &state.cpus[asked.by];
        let turn = if asked.by == cpu { by.own_turn(asked.mailbox) } else { by.turns[asked.mailbox] };
        turn != asked.turn
    }

    /// The first half of `first_missing`.
    fn wait_for(&self, state: &mut State, cpu: CpuNumber, asked: Asked) {
        if self.is_answered(state, &asked) {
            self.end_wait(state, cpu, asked);
        } else {
            state.cpus[cpu].then(&[Step::CheckTurn(asked)]);
        }
    }

    /// The second half, and a turn of the wait.
    fn check_turn(&self, state: &mut State, cpu: CpuNumber, asked: Asked) {
        if Self::is_used_again(state, cpu, &asked) {
            self.end_wait(state, cpu, asked);
        } else {
            state.cpus[cpu].then(&[Step::TakeInbox, Step::WaitFor(asked)]);
        }
    }

    fn end_wait(&self, state: &mut State, cpu: CpuNumber, asked: Asked) {
        if asked.by == cpu && self.may_take(state, cpu, asked.mailbox) {
            self.free(state, cpu, asked.mailbox);
        }
    }
}

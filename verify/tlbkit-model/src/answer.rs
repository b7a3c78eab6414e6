//! A CPU carries out requests: `lib/tlbkit/src/flush/answer.rs` and `local.rs`.

use tlbkit::Acknowledgement;

use crate::deviation::Deviation;
use crate::protocol::Protocol;
use crate::state::{
    ASIDS, AsidEntry, Change, CpuNumber, FIRST, Generation, Half, Mailbox, Presence, Request, SECOND, State,
};
use crate::step::Step;

impl Protocol {
    pub(crate) fn take_inbox(&self, state: &mut State, cpu: CpuNumber) {
        let this = &mut state.cpus[cpu];
        if this.inbox == 0 {
            return;
        }
        let senders = this.inbox;
        if self.deviates(Deviation::InboxNotSwapped) {
            return this.then(&[Step::ClearInbox, Step::CheckOutbox(senders)]);
        }
        this.inbox = 0;
        this.then(&[Step::CheckOutbox(senders)]);
    }

    pub(crate) fn check_outbox(&self, state: &mut State, cpu: CpuNumber, senders: u8) {
        let sender = senders.trailing_zeros() as CpuNumber;
        let is_waiting = state.cpus[sender].outboxes[FIRST] & 1 << cpu != 0;
        let others = senders & (senders - 1);
        if others != 0 {
            state.cpus[cpu].then(&[Step::CheckOutbox(others)]);
        }
        if is_waiting {
            state.cpus[cpu].then(&[Step::ReadMailbox(sender, FIRST)]);
        } else if self.world.mailboxes > 1 && !self.deviates(Deviation::FirstAloneLooked) {
            state.cpus[cpu].then(&[Step::CheckSecond(sender)]);
        }
    }

    pub(crate) fn check_second(state: &mut State, cpu: CpuNumber, sender: CpuNumber) {
        if state.cpus[sender].outboxes[SECOND] & 1 << cpu != 0 {
            state.cpus[cpu].then(&[Step::ReadMailbox(sender, SECOND)]);
        }
    }

    pub(crate) fn read_mailbox(&self, state: &mut State, cpu: CpuNumber, sender: CpuNumber, mailbox: Mailbox) {
        let request = state.cpus[sender].mailboxes[mailbox].expect("the mailbox is written before the outbox");
        if mailbox == FIRST && state.cpus[sender].is_several {
            state.cpus[cpu].then(&[Step::CheckSecond(sender)]);
        }
        let carry_out = Step::CarryOut(request);
        let acknowledge = Step::Acknowledge(sender, mailbox);
        if !self.acknowledges_early(state, cpu, request) {
            return state.cpus[cpu].then(&if self.deviates(Deviation::AnswersFirst) {
                [acknowledge, carry_out]
            } else {
                [carry_out, acknowledge]
            });
        }
        let [owes, paid] = [true, false].map(Step::MarkOwing);
        state.cpus[cpu].then(&match self.world.deviation {
            Some(Deviation::OwesInSecret) => [acknowledge, carry_out, paid, paid],
            Some(Deviation::OwesTooLate) => [acknowledge, owes, carry_out, paid],
            Some(Deviation::PaidTooEarly) => [owes, acknowledge, paid, carry_out],
            _ => [owes, acknowledge, carry_out, paid],
        });
    }

    /// Where it runs the space, and a page of it goes.
    fn acknowledges_early(&self, state: &State, cpu: CpuNumber, request: Request) -> bool {
        let is_of_pages = match request.change {
            Change::Page(_) => true,
            Change::Table => self.deviates(Deviation::EarlyWithTables),
            _ => false,
        };
        let is_running = state.cpus[cpu].own_presence == Presence::Running(request.id);
        self.world.policy.acknowledgement == Acknowledgement::BeforeFlush
            && is_of_pages
            && (is_running || self.deviates(Deviation::EarlyAnywhere))
    }

    pub(crate) fn carry_out(&self, state: &mut State, cpu: CpuNumber, request: Request) {
        if matches!(request.change, Change::Loaded(_)) {
            return Self::carry_out_for_batch(state, cpu, request);
        }
        let newest = state.spaces[request.space].generation;
        let is_shared = state.spaces[request.space].is_shared;
        let this = &mut state.cpus[cpu];
        if this.own_presence == Presence::Running(request.id) {
            if is_shared {
                return if this.asid != ASIDS {
                    this.then(&[Step::Follow])
                };
            }
            if request.generation > this.asids[this.asid].generation {
                this.then(&[Step::FlushLoaded(request, newest)]);
            }
        } else if this.own_presence == Presence::Lazy(request.id) {
            self.begin_kernel(state, cpu);
        } else if request.is_trim {
            self.leave_when_trimmed(state, cpu, request);
        }
    }

    /// What a batch requests: the loaded space up to its newest generation, whichever it is.
    fn carry_out_for_batch(state: &mut State, cpu: CpuNumber, request: Request) {
        let (newest, is_shared) = {
            let loaded = &state.spaces[state.cpus[cpu].root.space];
            (loaded.generation, loaded.is_shared)
        };
        let this = &mut state.cpus[cpu];
        let is_running = matches!(this.own_presence, Presence::Running(_));
        if is_running && is_shared {
            return if this.asid != ASIDS {
                this.then(&[Step::Follow])
            };
        }
        if is_running && this.asids[this.asid].generation < newest {
            this.then(&[Step::FlushLoaded(request, newest)]);
        }
    }

    fn leave_when_trimmed(&self, state: &mut State, cpu: CpuNumber, request: Request) {
        let this = &mut state.cpus[cpu];
        if !self.deviates(Deviation::TrimKeepsAsid) {
            for entry in this.asids.iter_mut().filter(|entry| entry.id == request.id) {
                *entry = AsidEntry { id: 0, ..*entry };
            }
        }
        this.then(&[Step::LeaveSet(request.space, request.id)]);
    }

    /// INV-4 is decided here.
    pub(crate) fn flush_loaded(&self, state: &mut State, cpu: CpuNumber, request: Request, newest: Generation) {
        let held = state.cpus[cpu].asids[state.cpus[cpu].asid].generation;
        let is_next = request.generation == held + 1 || self.deviates(Deviation::PartialJumps);
        let is_newest = request.generation == newest || self.deviates(Deviation::PartialOvertakes);
        match request.page().filter(|_| is_next && is_newest) {
            Some(page) => {
                self.flush_page(state, cpu, request, page);
                self.set_generation(state, cpu, newest);
                state.fill(cpu);
            }
            None => self.reload(state, cpu, newest),
        }
    }

    /// The page in both halves; the user half's at once only if no table is freed, and no flush of it is pending.
    fn flush_page(&self, state: &mut State, cpu: CpuNumber, request: Request, page: usize) {
        let this = &mut state.cpus[cpu];
        this.drop_item(Half::Kernel, page);
        if !self.is_isolated() {
            return;
        }
        let is_owed = this.pending_user & 1 << this.asid != 0;
        let is_now = self.world.policy.user_flush == tlbkit::UserFlush::Invpcid;
        if is_now && !is_owed && !request.frees_tables() {
            this.drop_item(Half::User, page);
        } else {
            this.pending_user |= 1 << this.asid;
        }
    }
}

//! One flush for many spaces, and a CPU that finds an entry gone before it: `batch.rs`, `targets.rs` and `owed.rs`
//! of `lib/tlbkit/src/flush`.

use tlbkit::Broadcast;

use crate::deviation::Deviation;
use crate::protocol::Protocol;
use crate::shared::{Invlpgb, all_cpus};
use crate::state::{
    Batch, Change, CpuNumber, FIRST, ITEMS, Mailbox, NEVER, OTHER_PAGE, PAGE, Request, SPACES, SpaceNumber, State, Then,
};
use crate::step::Step;

impl Protocol {
    /// The steps that only a batch has.
    pub(crate) fn step_batch(&self, state: &mut State, cpu: CpuNumber, step: Step) {
        match step {
            Step::Owe(space) => state.spaces[space].owed += 1,
            Step::AdvanceNamed(space) => self.advance_named(state, cpu, space),
            Step::Unite(space) => state.batch.cpus |= state.spaces[space].members,
            Step::ReadUnion(request, cpus) => Self::read_union(state, cpu, request, cpus, FIRST),
            Step::Settle(space) => state.spaces[space].owed -= 1,
            Step::LookOwed(space, found) => self.look_owed(state, cpu, space, found),
            Step::Widen(space) => self.widen(state, cpu, space),
            Step::Drained(space, found) => Self::finish_drain(state, space, found),
            of_the_ring => self.step_ring(state, cpu, of_the_ring),
        }
    }

    /// The kernel changes an entry, and calls `TlbBatch::unmap` before it drops the lock of the page table.
    pub(crate) fn begin_naming(&self, state: &mut State, cpu: CpuNumber, space: SpaceNumber) {
        if state.batch == Batch::default() {
            state.budget.batches += 1;
        }
        let is_first = state.batch.spaces & 1 << space == 0;
        state.batch.spaces |= 1 << space;
        let owe = (is_first && !self.deviates(Deviation::BatchOwesNothing)).then_some(Step::Owe(space));
        let mut named = [Step::AdvanceNamed(space), Step::Unite(space)];
        if self.deviates(Deviation::UnitesTooEarly) {
            named.reverse();
        }
        let steps: Vec<Step> =
            [Step::ChangeTable(space, Change::Page(PAGE))].into_iter().chain(owe).chain(named).collect();
        state.cpus[cpu].then(&steps);
    }

    /// `AddressSpace::advance`, for a request that comes with the batch's flush.
    fn advance_named(&self, state: &mut State, cpu: CpuNumber, number: SpaceNumber) {
        let generation = self.next_generation(state, cpu, number, Change::Page(PAGE));
        state.batch.named[number] = generation;
        let space = &state.spaces[number];
        if space.is_shared && !self.deviates(Deviation::BatchForgetsShared) {
            state.batch.has_shared = true;
            // The set is of no interest: the step that reads it does not come.
            state.cpus[cpu].steps.pop();
        }
    }

    /// `TlbBatch::flush`. The batch is the caller's own: no other CPU has it.
    pub(crate) fn begin_batch_flush(&self, state: &mut State, cpu: CpuNumber) {
        let batch = std::mem::take(&mut state.batch);
        let change = Change::Loaded(batch.spaces);
        let request = Request { space: 0, id: 0, generation: NEVER, change, is_trim: false };
        let mut steps = if batch.has_shared {
            vec![Step::Reach(Invlpgb::ALL, all_cpus(state))]
        } else {
            vec![Step::ReadUnion(request, batch.cpus), Step::CarryOut(request), Step::Wait(FIRST)]
        };
        let named = (0..SPACES).filter(|space| batch.spaces & 1 << space != 0);
        let settle = named.clone().filter(|_| !self.deviates(Deviation::BatchOwesNothing)).map(Step::Settle);
        let at = if self.deviates(Deviation::SettlesTooEarly) { 0 } else { steps.len() };
        steps.splice(at..at, settle);
        steps.extend(named.map(|space| {
            let (id, generation) = (state.spaces[space].id, batch.named[space]);
            if batch.has_shared {
                // No ASID is brought up to the generation, and what was cached under any is gone.
                return Step::Drained(space, state.spaces[space].history[usize::from(generation) - 1]);
            }
            Step::Return(Request { space, id, generation, change: Change::Page(PAGE), is_trim: false })
        }));
        state.cpus[cpu].then(&steps);
    }

    fn read_union(state: &mut State, cpu: CpuNumber, request: Request, cpus: u8, mailbox: Mailbox) {
        let unread = cpus & !(1 << cpu);
        if unread != 0 {
            state.cpus[cpu].then(&[Step::ReadPresence { request, unread, chosen: 0, mailbox }]);
        }
    }

    /// The kernel finds an entry gone, under the lock of the page table, and calls `Cpu::drain` after it.
    pub(crate) fn begin_drain(state: &mut State, cpu: CpuNumber, space: SpaceNumber) {
        let found = state.spaces[space].versions;
        state.cpus[cpu].then(&[Step::LookOwed(space, found)]);
    }

    fn look_owed(&self, state: &mut State, cpu: CpuNumber, space: SpaceNumber, found: [u8; ITEMS]) {
        let (id, is_owed) = (state.spaces[space].id, state.spaces[space].owed != 0);
        let request = Request { space, id, generation: NEVER, change: Change::Everything, is_trim: false };
        let mut steps = Vec::new();
        if is_owed && state.spaces[space].is_shared {
            steps.extend(self.broadcast(state, request));
        }
        if is_owed && (!state.spaces[space].is_shared || state.spaces[space].is_moving) {
            steps.push(Step::LookAlone(request, Then::Wait));
        }
        steps.push(Step::Drained(space, found));
        state.cpus[cpu].then(&steps);
    }

    /// The kernel takes an entry away, finds the one beside it gone, and calls `TlbGather::flush` or `Cpu::flush_range`
    /// for the first: where generations are compared, that flushes the second one too.
    pub(crate) fn begin_beside(&self, state: &mut State, cpu: CpuNumber, space: SpaceNumber) {
        let (found, change) = (state.spaces[space].versions, Change::Page(OTHER_PAGE));
        let has_generation = self.world.policy.broadcast == Broadcast::Off;
        let flush = if has_generation { Step::Advance(space, change, Then::Wait) } else { Step::Widen(space) };
        state.cpus[cpu].then(&[Step::ChangeTable(space, change), flush, Step::Drained(space, found)]);
    }

    fn widen(&self, state: &mut State, cpu: CpuNumber, space: SpaceNumber) {
        let is_owed = state.spaces[space].owed != 0 && !self.deviates(Deviation::BroadcastIgnoresOwed);
        let change = if is_owed { Change::Everything } else { Change::Page(OTHER_PAGE) };
        state.cpus[cpu].then(&[Step::Advance(space, change, Then::Wait)]);
    }

    /// What was gone when it looked may not be used from now on.
    fn finish_drain(state: &mut State, space: SpaceNumber, found: [u8; ITEMS]) {
        let floor = &mut state.spaces[space].floor;
        for item in [PAGE, OTHER_PAGE] {
            floor[item] = floor[item].max(found[item]);
        }
    }
}

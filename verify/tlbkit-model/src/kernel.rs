//! What the kernel around the protocol does, within what the protocol asks of it: it changes tables under their lock,
//! keeps a space until every call that leaves it has returned, and ends it only when nobody uses it.

use crate::deviation::Deviation;
use crate::protocol::Protocol;
use crate::state::{Budget, Change, CpuNumber, OTHER_PAGE, PAGE, Presence, SPACES, SpaceNumber, State, Store};
use crate::step::Step;

/// Most flushes that are issued and not waited for at once.
const ISSUED: usize = 3;

/// What the kernel makes a CPU begin.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Task {
    /// A program of a space runs next.
    Switch(SpaceNumber),
    /// Nothing runs next.
    Idle,
    /// Nothing will run for long.
    LeaveForKernel,
    /// The CPU is taken out.
    GoOffline,
    /// The CPU comes back.
    ComeBack,
    /// A space is changed.
    Flush(SpaceNumber, Change),
    /// A space is changed, and the wait is left for later.
    Issue(SpaceNumber, Change),
    /// The wait for one of those that were issued, by age.
    WaitFor(usize),
    /// An entry of a space is taken out, and named in the batch.
    Name(SpaceNumber),
    /// The batch is flushed.
    FlushBatch,
    /// An entry of a space is looked for, and found gone.
    Drain(SpaceNumber),
    /// A page of a space is changed, and the one beside it is found gone.
    Beside(SpaceNumber),
    /// A space is to have the PCID that all CPUs share.
    Share(SpaceNumber),
}

impl Task {
    /// The part of the budget that it draws on.
    pub(crate) const fn budget(self, budget: &mut Budget) -> &mut u8 {
        match self {
            Self::Switch(_) => &mut budget.switches,
            Self::Idle | Self::LeaveForKernel => &mut budget.idles,
            Self::GoOffline | Self::ComeBack => &mut budget.absences,
            Self::Issue(..) => &mut budget.issues,
            Self::WaitFor(_) => &mut budget.waits,
            Self::Name(_) => &mut budget.names,
            Self::FlushBatch => &mut budget.batches,
            Self::Drain(_) => &mut budget.drains,
            Self::Beside(_) => &mut budget.besides,
            Self::Flush(_, Change::Page(_)) => &mut budget.pages,
            Self::Flush(_, Change::Everything) => &mut budget.wholes,
            Self::Flush(_, Change::Table) => &mut budget.tables,
            Self::Share(_) => &mut budget.shares,
            Self::Flush(_, Change::Destroy | Change::Move | Change::Loaded(_)) => &mut budget.destroys,
        }
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let changes =
            [Change::Page(PAGE), Change::Page(OTHER_PAGE), Change::Everything, Change::Table, Change::Destroy];
        let of_space =
            move |space| changes.into_iter().map(move |change| Self::Flush(space, change)).chain([Self::Switch(space)]);
        (0..SPACES)
            .flat_map(of_space)
            .chain([Self::Idle, Self::LeaveForKernel, Self::GoOffline, Self::ComeBack])
            .chain([PAGE, OTHER_PAGE].map(|page| Self::Issue(0, Change::Page(page))))
            .chain((0..ISSUED).map(Self::WaitFor))
            .chain((0..SPACES).map(Self::Name))
            .chain([Self::FlushBatch, Self::Drain(0), Self::Beside(0)])
            .chain((0..SPACES).map(Self::Share))
    }

    /// True if the CPU's program does not go on afterwards.
    pub(crate) const fn leaves_its_program(self) -> bool {
        matches!(self, Self::Switch(_) | Self::Idle | Self::LeaveForKernel | Self::GoOffline | Self::ComeBack)
    }
}

impl Protocol {
    /// True if the kernel may begin `task` on `cpu`: what the protocol asks of its caller.
    pub(crate) fn may_begin(&self, state: &State, cpu: CpuNumber, task: Task) -> bool {
        let this = &state.cpus[cpu];
        if (this.own_presence == Presence::Absent) != (task == Task::ComeBack) {
            return false;
        }
        let is_alive = |space: SpaceNumber| !state.spaces[space].is_dying;
        match task {
            Task::Switch(to) => is_alive(to) && this.task != Some(to),
            Task::Idle => this.task.is_some(),
            Task::GoOffline | Task::ComeBack => true,
            Task::LeaveForKernel => this.own_presence != Presence::Kernel,
            Task::Flush(space, Change::Destroy) => is_alive(space) && !is_in_use(state, space),
            Task::WaitFor(number) => number < state.pending.len(),
            Task::FlushBatch => !is_being_named(state),
            Task::Name(space) => {
                let is_allowed = cpu < self.world.initiators && space < self.world.flushed_spaces;
                is_allowed && is_alive(space) && !self.is_locked(state, space) && !is_being_named(state)
            }
            Task::Drain(space) | Task::Beside(space) => is_alive(space) && !self.is_locked(state, space),
            Task::Share(space) => cpu < self.world.initiators && space < self.world.flushed_spaces && is_alive(space),
            Task::Flush(space, _) | Task::Issue(space, _) => {
                let may_revoke = cpu < self.world.initiators && space < self.world.flushed_spaces;
                may_revoke && is_alive(space) && !self.is_locked(state, space)
            }
        }
    }
}

/// True if a program of the space runs, or something is under way that will use it.
fn is_in_use(state: &State, number: SpaceNumber) -> bool {
    let is_named = state.batch.spaces & 1 << number != 0;
    if is_named || state.pending.iter().any(|pending| pending.request().space == number) {
        return true;
    }
    state.cpus.iter().any(|cpu| {
        let is_used = |step: &Step| match *step {
            Step::Join(space)
            | Step::MarkSwitching(space)
            | Step::ReadGeneration(space)
            | Step::LoadRoot(space)
            | Step::MarkRunning(space)
            | Step::MarkBack(space)
            | Step::Recheck(space)
            | Step::ChangeTable(space, _)
            | Step::Advance(space, ..)
            | Step::Settle(space)
            | Step::LookOwed(space, _)
            | Step::Widen(space)
            | Step::Drained(space, _)
            | Step::BeginMove(space)
            | Step::TakePcid(space)
            | Step::NamePcid(space)
            | Step::EndMove(space) => space == number,
            Step::LookAlone(request, _) | Step::Return(request) => request.space == number,
            _ => false,
        };
        [cpu.task, cpu.leaving].contains(&Some(number)) || cpu.steps.iter().any(is_used)
    })
}

/// True while a CPU names an entry in the batch, which belongs to that CPU until it is done.
fn is_being_named(state: &State) -> bool {
    let names = |step: &Step| matches!(step, Step::Owe(_) | Step::AdvanceNamed(_) | Step::Unite(_));
    state.cpus.iter().any(|cpu| cpu.steps.iter().any(names))
}

impl Protocol {
    /// True while the lock of the page table is held: from the change until memory has it, and a batch knows of it.
    fn is_locked(&self, state: &State, number: SpaceNumber) -> bool {
        let is_early = self.deviates(Deviation::NamedAfterItsLock);
        state.cpus.iter().any(|cpu| {
            let is_under_lock = |step: &Step| match *step {
                Step::ChangeTable(space, _) => space == number,
                Step::Owe(space) | Step::AdvanceNamed(space) | Step::Unite(space) => space == number && !is_early,
                _ => false,
            };
            let is_store = |store: &Store| matches!(store, Store::Table(space, ..) if *space == number);
            cpu.steps.iter().any(is_under_lock) || cpu.buffer.iter().any(is_store)
        })
    }
}

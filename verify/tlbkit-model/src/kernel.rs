//! What the kernel around the protocol does, within what the protocol asks of it: it changes tables under their lock,
//! keeps a space until every call that leaves it has returned, and ends it only when nobody uses it.

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
    /// It is taken out.
    GoOffline,
    /// It comes back.
    ComeBack,
    /// A space is changed.
    Flush(SpaceNumber, Change),
    /// A space is changed, and the wait is left for later.
    Issue(SpaceNumber, Change),
    /// The wait for one of those that were issued, by age.
    WaitFor(usize),
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
            Self::Flush(_, Change::Page(_)) => &mut budget.pages,
            Self::Flush(_, Change::Everything) => &mut budget.wholes,
            Self::Flush(_, Change::Table) => &mut budget.tables,
            Self::Flush(_, Change::Destroy) => &mut budget.destroys,
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
            Task::Flush(space, _) | Task::Issue(space, _) => {
                let may_revoke = cpu < self.world.initiators && space < self.world.flushed_spaces;
                may_revoke && is_alive(space) && !is_locked(state, space)
            }
        }
    }
}

/// True if a program of the space runs, or something is under way that will use it.
fn is_in_use(state: &State, number: SpaceNumber) -> bool {
    if state.pending.iter().any(|pending| pending.request().space == number) {
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
            | Step::Advance(space, ..) => space == number,
            Step::LookAlone(request, _) | Step::Return(request) => request.space == number,
            _ => false,
        };
        [cpu.task, cpu.leaving].contains(&Some(number)) || cpu.steps.iter().any(is_used)
    })
}

/// True while the lock of the page table is held: from the change until memory has it.
fn is_locked(state: &State, number: SpaceNumber) -> bool {
    state.cpus.iter().any(|cpu| {
        let is_change = |step: &Step| matches!(step, Step::ChangeTable(space, _) if *space == number);
        let is_store = |store: &Store| matches!(store, Store::Table(space, ..) if *space == number);
        cpu.steps.iter().any(is_change) || cpu.buffer.iter().any(is_store)
    })
}

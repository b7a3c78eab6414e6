//! The model as stateright sees it: where it begins, what can happen next, and what that does.

use stateright::{Model, Property};

use crate::kernel::Task;
use crate::properties;
use crate::protocol::Protocol;
use crate::state::{
    Batch, Budget, Cpu, CpuNumber, Half, Hosted, Id, Presence, Root, SPACES, Space, SpaceNumber, State, Store, Then,
};
use crate::step::Step;
use crate::world::World;

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A CPU begins something.
    Begin(CpuNumber, Task),
    /// The CPU takes its next step.
    Step(CpuNumber),
    /// Its oldest store reaches memory.
    Drain(CpuNumber),
    /// The CPU is interrupted.
    Interrupt(CpuNumber),
    /// The CPU returns to its program.
    ExitToUser(CpuNumber),
    /// The host takes the CPU away.
    Preempt(CpuNumber),
    /// The host runs it again.
    RunAgain(CpuNumber),
}

fn fresh_cpu() -> Cpu {
    Cpu {
        host: Hosted::Running,
        is_spared: false,
        presence: Presence::Kernel,
        inbox: 0,
        outboxes: Default::default(),
        mailboxes: Default::default(),
        is_several: false,
        turns: Default::default(),
        issued: 0,
        has_interrupt: false,
        buffer: Vec::new(),
        steps: Vec::new(),
        task: None,
        leaving: None,
        own_presence: Presence::Kernel,
        asids: Default::default(),
        next_asid: 0,
        asid: 0,
        newest: 0,
        finds_shared: false,
        has_joined: false,
        pending_user: 0,
        owes_a_flush: false,
        root: Root { id: 0, space: 0, pcid: 0, half: Half::Kernel },
        entries: Default::default(),
    }
}

impl Protocol {
    fn step(&self, state: &mut State, cpu: CpuNumber) {
        let Some(step) = state.cpus[cpu].steps.pop() else { return };
        match step {
            Step::Join(space) => state.spaces[space].members |= 1 << cpu,
            Step::MarkSwitching(to) => self.mark_switching(state, cpu, to),
            Step::Fence => {}
            Step::ReadGeneration(to) => self.read_generation(state, cpu, to),
            Step::LoadRoot(to) => self.load_root(state, cpu, to),
            Step::MarkRunning(to) => Self::mark_running(state, cpu, to),
            Step::MarkBack(to) => self.mark_back(state, cpu, to),
            Step::LeaveSet(space, id) => Self::leave_set(state, cpu, space, id),
            Step::Uncount(space, id) => self.uncount(state, space, id),
            Step::Count(space) => state.spaces[space].lazy_references += 1,
            Step::MarkLazy => Self::mark_lazy(state, cpu),
            Step::Recheck(to) => self.recheck(state, cpu, to),
            Step::Reload(newest) => self.reload(state, cpu, newest),
            Step::MarkLeaving => state.cpus[cpu].store(Store::Presence(Presence::Switching)),
            Step::LoadKernel => Self::load_kernel(state, cpu),
            Step::MarkKernel => state.cpus[cpu].store(Store::Presence(Presence::Kernel)),
            Step::ChangeTable(space, change) => Self::change_table(state, cpu, space, change),
            Step::Advance(space, change, then) => self.advance(state, cpu, space, change, then),
            Step::LookAlone(request, then) => self.look_alone(state, cpu, request, then),
            Step::ReadSet(request, mailbox) => Self::read_set(state, cpu, request, mailbox),
            Step::ReadPresence { request, unread, chosen, mailbox } => {
                self.read_presence(state, cpu, request, unread, chosen, mailbox);
            }
            Step::AskHost { request, unasked, chosen, mailbox } => {
                self.ask_host(state, cpu, request, unasked, chosen, mailbox);
            }
            Step::MarkLate(target) => Self::mark_late(state, target),
            Step::Hint(chosen) => Self::hint(state, cpu, chosen),
            Step::Wait(mailbox) => self.wait(state, cpu, mailbox),
            Step::Return(request) => Self::finish_flush(state, request),
            Step::Ended(space) => self.end(state, space),
            Step::TakeInbox => self.take_inbox(state, cpu),
            Step::ClearInbox => state.cpus[cpu].inbox = 0,
            Step::CheckOutbox(senders) => self.check_outbox(state, cpu, senders),
            Step::ReadMailbox(sender, mailbox) => self.read_mailbox(state, cpu, sender, mailbox),
            Step::CarryOut(request) => self.carry_out(state, cpu, request),
            Step::FlushLoaded(request, newest) => self.flush_loaded(state, cpu, request, newest),
            Step::Acknowledge(sender, mailbox) => state.cpus[sender].outboxes[mailbox] &= !(1 << cpu),
            Step::MarkOwing(owes) => state.cpus[cpu].owes_a_flush = owes,
            Step::MarkAbsent => Self::mark_absent(state, cpu),
            Step::ForgetInbox => state.cpus[cpu].inbox = 0,
            Step::ForgetOutbox(senders) => Self::forget_outbox(state, cpu, senders),
            Step::Restart => Self::restart(state, cpu),
            Step::BeginMove(space) => self.begin_move(state, cpu, space),
            Step::TakePcid(space) => self.take_pcid(state, cpu, space),
            Step::Reach(what, cpus) => Self::reach(state, cpu, what, cpus),
            Step::NamePcid(space) => state.spaces[space].is_shared = true,
            Step::EndMove(space) => state.spaces[space].is_moving = false,
            Step::Follow => Self::follow(state, cpu),
            of_a_batch => self.step_batch(state, cpu, of_a_batch),
        }
        let this = &mut state.cpus[cpu];
        this.leaving = this.leaving.filter(|_| !this.steps.is_empty());
    }

    fn mark_running(state: &mut State, cpu: CpuNumber, to: SpaceNumber) {
        let id = state.spaces[to].id;
        state.cpus[cpu].store(Store::Presence(Presence::Running(id)));
        state.cpus[cpu].task = Some(to);
    }

    fn mark_lazy(state: &mut State, cpu: CpuNumber) {
        if let Presence::Running(id) = state.cpus[cpu].own_presence {
            state.cpus[cpu].store(Store::Presence(Presence::Lazy(id)));
        }
    }

    fn begin(&self, state: &mut State, cpu: CpuNumber, task: Task) {
        let left = task.budget(&mut state.budget);
        *left -= 1;
        if self.is_isolated() {
            Self::enter_kernel(state, cpu);
        }
        if task.leaves_its_program() {
            state.cpus[cpu].leaving = state.cpus[cpu].task.take();
        }
        match task {
            Task::Switch(to) => self.begin_switch(state, cpu, to),
            Task::Idle => self.begin_lazy(state, cpu),
            Task::LeaveForKernel => self.begin_kernel(state, cpu),
            Task::GoOffline => self.begin_absence(state, cpu),
            Task::ComeBack => self.begin_comeback(state, cpu),
            Task::Flush(space, change) => self.begin_flush(state, cpu, space, change),
            Task::Issue(space, change) => Self::begin_revoking(state, cpu, space, change, Then::Return),
            Task::WaitFor(number) => self.begin_wait(state, cpu, number),
            Task::Name(space) => self.begin_naming(state, cpu, space),
            Task::FlushBatch => self.begin_batch_flush(state, cpu),
            Task::Drain(space) => Self::begin_drain(state, cpu, space),
            Task::Beside(space) => self.begin_beside(state, cpu, space),
            Task::Share(space) => state.cpus[cpu].then(&[Step::BeginMove(space)]),
        }
    }

    fn interrupt(&self, state: &mut State, cpu: CpuNumber) {
        if self.is_isolated() {
            Self::enter_kernel(state, cpu);
        }
        state.cpus[cpu].has_interrupt = false;
        state.cpus[cpu].then(&[Step::TakeInbox]);
    }

    /// The state after the world's own switches, which are made without mistake.
    fn first_state(&self) -> State {
        let right = Self::new(World { deviation: None, ..self.world });
        let mut state = State {
            cpus: vec![fresh_cpu(); self.world.cpus],
            spaces: std::array::from_fn(|space| Space::fresh(space as Id + 1)),
            next_id: SPACES as Id + 1,
            pending: Vec::new(),
            batch: Batch::default(),
            is_taken: false,
            budget: Budget { switches: self.world.before.len() as u8, ..Default::default() },
            fault: None,
        };
        for &(cpu, space) in self.world.before {
            right.begin(&mut state, cpu, Task::Switch(space));
            while !state.cpus[cpu].steps.is_empty() || !state.cpus[cpu].buffer.is_empty() {
                if right.can_step(&state, cpu) { right.step(&mut state, cpu) } else { state.drain(cpu) }
            }
        }
        state.budget = self.world.budget;
        state
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.first_state()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_some() {
            return;
        }
        let mut budget = state.budget;
        for (cpu, this) in state.cpus.iter().enumerate() {
            if this.host != Hosted::Running {
                actions.push(Action::RunAgain(cpu));
                continue;
            }
            if budget.preemptions != 0 {
                actions.push(Action::Preempt(cpu));
            }
            if this.steps.is_empty() {
                let tasks = Task::all().filter(|task| *task.budget(&mut budget) != 0);
                let tasks = tasks.filter(|task| self.may_begin(state, cpu, *task));
                actions.extend(tasks.map(|task| Action::Begin(cpu, task)));
                if self.is_isolated() && this.task.is_some() && this.root.half == Half::Kernel {
                    actions.push(Action::ExitToUser(cpu));
                }
            }
            if self.can_step(state, cpu) {
                actions.push(Action::Step(cpu));
            }
            if !this.buffer.is_empty() {
                actions.push(Action::Drain(cpu));
            }
            if self.can_be_interrupted(state, cpu) {
                actions.push(Action::Interrupt(cpu));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin(cpu, task) => self.begin(&mut state, cpu, task),
            Action::Step(cpu) => self.step(&mut state, cpu),
            Action::Drain(cpu) => state.drain(cpu),
            Action::Interrupt(cpu) => self.interrupt(&mut state, cpu),
            Action::ExitToUser(cpu) => Self::exit_to_user(&mut state, cpu),
            Action::Preempt(cpu) => state.preempt(cpu),
            Action::RunAgain(cpu) => self.run_again(&mut state, cpu),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let wanted = |property: &Property<Self>| self.only.is_none_or(|only| only == property.name);
        properties::all().into_iter().filter(wanted).collect()
    }
}

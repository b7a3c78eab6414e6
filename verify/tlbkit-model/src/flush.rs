//! A CPU revokes translations: which CPUs it interrupts, and how it waits: `lib/tlbkit/src/flush/shootdown.rs`
//! and `wait.rs`.

use tlbkit::{CpuSetUpkeep, HostFlush, Lazy, LocalFlush};

use crate::deviation::Deviation;
use crate::protocol::Protocol;
use crate::state::{
    Change, CpuNumber, FIRST, Fault, Generation, Hosted, ITEMS, Mailbox, NEVER, Presence, Request, SECOND, SpaceNumber,
    State, Store, TABLE, Then, TlbEntry,
};
use crate::step::Step;

impl Protocol {
    /// The kernel changes a table, and calls `TlbGather::flush` or `Cpu::flush_range`; or it calls `Cpu::destroy`.
    pub(crate) fn begin_flush(&self, state: &mut State, cpu: CpuNumber, space: SpaceNumber, change: Change) {
        if change != Change::Destroy {
            return Self::begin_revoking(state, cpu, space, change, Then::Wait);
        }
        state.spaces[space].is_dying = true;
        if self.deviates(Deviation::PcidGivenBackEarly) {
            state.is_taken &= !state.spaces[space].is_shared;
        }
        if !self.is_counted() && !self.deviates(Deviation::DestroyInterruptsNobody) {
            state.cpus[cpu].then(&[Step::Advance(space, change, Then::Wait), Step::Ended(space)]);
        } else if state.spaces[space].lazy_references == 0 {
            self.end(state, space);
        }
    }

    /// The kernel changes a table, and calls `TlbGather::flush`, or `TlbGather::issue`.
    pub(crate) fn begin_revoking(state: &mut State, cpu: CpuNumber, space: SpaceNumber, change: Change, then: Then) {
        state.cpus[cpu].then(&[Step::ChangeTable(space, change), Step::Advance(space, change, then)]);
    }

    pub(crate) fn change_table(state: &mut State, cpu: CpuNumber, space: SpaceNumber, change: Change) {
        state.cpus[cpu].finds_shared = state.spaces[space].is_shared;
        let version = state.spaces[space].versions.iter().max().map_or(0, |newest| newest + 1);
        for &item in change.items() {
            state.cpus[cpu].store(Store::Table(space, item, version));
        }
    }

    pub(crate) fn advance(&self, state: &mut State, cpu: CpuNumber, number: SpaceNumber, change: Change, then: Then) {
        let generation = self.next_generation(state, cpu, number, change);
        let is_trim = match self.world.policy.cpu_set {
            CpuSetUpkeep::Trimmed { every } if every != 0 => u32::from(generation).is_multiple_of(every),
            _ => false,
        };
        let request = Request { space: number, id: state.spaces[number].id, generation, change, is_trim };
        if !self.is_broadcast(state, cpu, request) {
            return state.cpus[cpu].then(&[Step::LookAlone(request, then)]);
        }
        let mut steps = self.broadcast(state, request);
        let is_moving = state.spaces[number].is_moving && !self.deviates(Deviation::MovingNotAsked);
        steps.push(if is_moving { Step::LookAlone(request, then) } else { Step::Return(request) });
        if self.deviates(Deviation::SyncsElsewhere) {
            steps.rotate_right(1);
        }
        state.cpus[cpu].then(&steps);
    }

    /// A locked addition, which is a full barrier on x86: its steps wait for an empty store buffer.
    pub(crate) fn next_generation(
        &self,
        state: &mut State,
        cpu: CpuNumber,
        number: SpaceNumber,
        change: Change,
    ) -> Generation {
        let is_plain = self.deviates(Deviation::RevokerUnfenced);
        let versions = self.visible_versions(state, cpu, number);
        let space = &mut state.spaces[number];
        let wraps = self.deviates(Deviation::GenerationWraps) && space.generation == 2;
        let generation = if wraps { 1 } else { space.generation + 1 };
        let mut promise: [u8; ITEMS] = *space.history.last().expect("a history begins with the space");
        for &item in change.items() {
            promise[item] = promise[item].max(versions[item]);
        }
        space.history.push(promise);
        if is_plain {
            state.cpus[cpu].store(Store::Generation(number, generation));
        } else {
            space.generation = generation;
        }
        generation
    }

    /// What a CPU would read of a table, its own stores on their way included.
    fn visible_versions(&self, state: &State, cpu: CpuNumber, space: SpaceNumber) -> [u8; ITEMS] {
        let mut versions = state.spaces[space].versions;
        for store in &state.cpus[cpu].buffer {
            if let Store::Table(number, item, version) = *store
                && number == space
            {
                versions[item] = version;
            }
        }
        versions
    }

    pub(crate) fn look_alone(&self, state: &mut State, cpu: CpuNumber, request: Request, then: Then) {
        let is_alone = state.spaces[request.space].members & !(1 << cpu) == 0;
        let runs_here = state.cpus[cpu].own_presence == Presence::Running(request.id);
        if is_alone && runs_here {
            return state.cpus[cpu].then(&[Step::CarryOut(request), Step::Return(request)]);
        }
        // Which of its mailboxes were issued it knows by itself.
        if state.cpus[cpu].issued == 0 {
            self.send(state, cpu, request, then, FIRST)
        } else {
            state.cpus[cpu].then(&[Step::TakeMailbox(request, then, FIRST)])
        }
    }

    /// The rest of a flush, once there is a mailbox for it.
    pub(crate) fn send(&self, state: &mut State, cpu: CpuNumber, request: Request, then: Then, mailbox: Mailbox) {
        let (here, others) = (Step::CarryOut(request), Step::ReadSet(request, mailbox));
        let first = match self.world.policy.local_flush {
            LocalFlush::BeforeRemote => [here, others],
            LocalFlush::WhileRemote => [others, here],
        };
        match then {
            Then::Wait => state.cpus[cpu].then(&[first[0], first[1], Step::Wait(mailbox), Step::Return(request)]),
            Then::Return => state.cpus[cpu].then(&[first[0], first[1], Step::Leave(request, mailbox)]),
        }
    }

    pub(crate) fn read_set(state: &mut State, cpu: CpuNumber, request: Request, mailbox: Mailbox) {
        let unread = state.spaces[request.space].members & !(1 << cpu);
        if unread != 0 {
            state.cpus[cpu].then(&[Step::ReadPresence { request, unread, chosen: 0, mailbox }]);
        }
    }

    pub(crate) fn read_presence(
        &self,
        state: &mut State,
        cpu: CpuNumber,
        request: Request,
        unread: u8,
        mut chosen: u8,
        mailbox: Mailbox,
    ) {
        let target = unread.trailing_zeros() as CpuNumber;
        let seen = state.cpus[target].presence;
        let must_interrupt = match request.change {
            Change::Move if self.deviates(Deviation::MoveLeavesLazy) && matches!(seen, Presence::Lazy(_)) => false,
            Change::Loaded(spaces) => self.must_interrupt_for_batch(state, seen, spaces),
            _ => self.must_interrupt(seen, &request),
        };
        if must_interrupt {
            chosen |= 1 << target;
            let is_left_alone = self.world.policy.lazy == Lazy::SkipUnlessTablesFreed && !request.is_trim;
            if seen == Presence::Lazy(request.id) && is_left_alone && !request.frees_tables() {
                state.fault = Some(Fault::LazyInterrupted);
            }
        }
        let unread = unread & (unread - 1);
        let this = &mut state.cpus[cpu];
        if unread != 0 {
            return this.then(&[Step::ReadPresence { request, unread, chosen, mailbox }]);
        }
        if chosen != 0 && self.can_be_left_to_host(&request) {
            this.then(&[Step::AskHost { request, unasked: chosen, chosen, mailbox }]);
        } else if chosen != 0 {
            self.post(state, cpu, request, chosen, mailbox);
        }
    }

    fn can_be_left_to_host(&self, request: &Request) -> bool {
        match (self.world.host, request.change) {
            (HostFlush::None, _) => false,
            (_, Change::Destroy) => self.deviates(Deviation::EndLeftToHost),
            (HostFlush::Translations, Change::Table) => self.deviates(Deviation::TablesLeftToHost),
            _ => true,
        }
    }

    pub(crate) fn ask_host(
        &self,
        state: &mut State,
        cpu: CpuNumber,
        request: Request,
        unasked: u8,
        mut chosen: u8,
        mailbox: Mailbox,
    ) {
        let target = unasked.trailing_zeros() as CpuNumber;
        let is_late = self.deviates(Deviation::MarksWhatRuns);
        if state.cpus[target].host != Hosted::Running {
            chosen &= !(1 << target);
            if !is_late {
                Self::mark_late(state, target);
            }
        }
        let unasked = unasked & (unasked - 1);
        if unasked != 0 {
            state.cpus[cpu].then(&[Step::AskHost { request, unasked, chosen, mailbox }]);
        } else if chosen != 0 {
            self.post(state, cpu, request, chosen, mailbox);
        }
        if is_late && chosen & 1 << target == 0 {
            state.cpus[cpu].then(&[Step::MarkLate(target)]);
        }
    }

    pub(crate) fn mark_late(state: &mut State, target: CpuNumber) {
        let target = &mut state.cpus[target];
        target.is_spared = true;
        if target.host == Hosted::Preempted {
            target.host = Hosted::Marked;
        }
    }

    /// The host takes the word, and flushes what it was told to.
    pub(crate) fn run_again(&self, state: &mut State, cpu: CpuNumber) {
        let this = &mut state.cpus[cpu];
        if std::mem::replace(&mut this.host, Hosted::Running) == Hosted::Marked {
            for item in this.entries.iter_mut().flatten().flat_map(|pcid| pcid.iter_mut().enumerate()) {
                if item.0 != TABLE || self.world.host == HostFlush::TranslationsAndPaths {
                    *item.1 = TlbEntry::default();
                }
            }
        }
        state.fill(cpu);
    }

    /// Writes a mailbox that is free, then its outbox; the hints come next.
    fn post(&self, state: &mut State, cpu: CpuNumber, request: Request, chosen: u8, mailbox: Mailbox) {
        let this = &mut state.cpus[cpu];
        let is_marked = mailbox == SECOND && !self.deviates(Deviation::FirstSilent);
        let is_late = is_marked && self.deviates(Deviation::FirstTooLate);
        if is_marked && !is_late {
            this.store(Store::Several);
        }
        this.store(Store::Mailbox(mailbox, request, this.issued != 0));
        this.store(Store::Outbox(mailbox, chosen));
        if is_late {
            this.then(&[Step::MarkSeveralLate]);
        }
        this.then(&[Step::Hint(chosen)]);
    }

    fn must_interrupt(&self, seen: Presence, request: &Request) -> bool {
        let is_everyone = request.is_trim || request.change == Change::Destroy && self.is_exact();
        match seen {
            Presence::Absent => false,
            Presence::Switching => !self.deviates(Deviation::SkipsSwitching),
            Presence::Running(id) if id == request.id => true,
            _ if is_everyone => true,
            Presence::Lazy(id) if id == request.id => self.must_interrupt_lazy(request),
            _ => false,
        }
    }

    /// Whether a batch that named these spaces interrupts a CPU of this presence.
    fn must_interrupt_for_batch(&self, state: &State, seen: Presence, spaces: u8) -> bool {
        match seen {
            Presence::Switching => !self.deviates(Deviation::BatchSkipsSwitching),
            Presence::Running(id) => state.space_named(id).is_some_and(|space| spaces & 1 << space != 0),
            Presence::Kernel | Presence::Lazy(_) | Presence::Absent => false,
        }
    }

    fn must_interrupt_lazy(&self, request: &Request) -> bool {
        let is_due = request.frees_tables() || self.world.policy.lazy != Lazy::SkipUnlessTablesFreed;
        (is_due || self.deviates(Deviation::LazyInterrupted)) && !self.deviates(Deviation::LazySkippedAlways)
    }

    pub(crate) fn hint(state: &mut State, cpu: CpuNumber, chosen: u8) {
        let target = &mut state.cpus[chosen.trailing_zeros() as CpuNumber];
        // An interrupt sent to a CPU that is out is lost.
        target.has_interrupt |= target.inbox == 0 && target.own_presence != Presence::Absent;
        target.inbox |= 1 << cpu;
        let others = chosen & (chosen - 1);
        if others != 0 {
            state.cpus[cpu].then(&[Step::Hint(others)]);
        }
    }

    pub(crate) fn wait(&self, state: &mut State, cpu: CpuNumber, mailbox: Mailbox) {
        let absent = self.absent_targets(state, cpu, mailbox);
        let this = &mut state.cpus[cpu];
        this.outboxes[mailbox] &= !absent;
        if this.outboxes[mailbox] != 0 {
            this.then(&[Step::TakeInbox, Step::Wait(mailbox)]);
        }
    }

    /// What it revoked may not be used from now on.
    pub(crate) fn finish_flush(state: &mut State, request: Request) {
        if request.generation == NEVER {
            return;
        }
        let space = &mut state.spaces[request.space];
        space.completed = space.completed.max(request.generation);
        let promise = space.history[request.generation as usize - 1];
        for &item in request.change.items() {
            space.floor[item] = space.floor[item].max(promise[item]);
        }
    }
}

//! The handshake of `lib/tlbkit/src/flush/sharers.rs`, in a separate model: CPUs whose directories name last-level
//! tables only after they are recorded among their sharers, and flushes that go to the sharers alone.
//!
//! Two or three CPUs, two tables with a page each, one space. A CPU hooks a table, takes a page away from the sharers
//! of its table or from all CPUs, takes out a table and frees it, idles and comes back, or runs something else and
//! comes back. A table may be made again where one was taken out. Stores go through a buffer, as in the large model; a
//! CPU walks through what its directory names as early as it can, and keeps all of it until it flushes.
//!
//! In one world all CPUs load the same tables at first, until one converts the space. It holds the lock of the regions,
//! so no table is hooked or taken out meanwhile; a flush of a page may be under way.
//!
//! Left out: page-table isolation, tables that are kept with grace periods, INVLPGB, the end of a space.

mod state;
mod worlds;

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use state::{Call, Cpu, Kind, Place, Presence, Step, Store};
use worlds::{INCARNATIONS, TABLES_OF_SPACE};

pub use state::State;
pub use worlds::{Mistake, WORLDS, World};

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A CPU takes its next step.
    Step(usize),
    /// Its oldest store reaches memory.
    Drain(usize),
    /// The request of the second CPU interrupts the first.
    Interrupt(usize, usize),
    /// It faults in this place.
    Hook(usize, usize),
    /// It takes away the page in this place, from the sharers.
    Page(usize, usize),
    /// The same, from all CPUs.
    PageOfAll(usize, usize),
    /// It takes out the table in this place.
    Table(usize, usize),
    /// It gives each CPU tables of its own.
    Convert(usize),
    /// It idles.
    Idle(usize),
    /// It runs something else.
    Leave(usize),
    /// It comes back.
    Return(usize),
}

/// The handshake.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// What happens.
    pub world: World,
    /// The mistake in it, if there is one.
    pub mistake: Option<Mistake>,
}

impl Sharing {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Locked operations, fences, and what comes after one, find an empty buffer.
    fn needs_empty_buffer(&self, step: Step) -> bool {
        match step {
            Step::Lock | Step::Fence | Step::Advance | Step::Answer(_) | Step::Send => true,
            Step::Record => !self.has(Mistake::RecordsUnfenced),
            Step::Change => !self.has(Mistake::ChangesUnfenced),
            _ => false,
        }
    }

    fn is_possible(&self, state: &State, by: usize, step: Step) -> bool {
        let cpu = &state.cpus[by];
        let place = &state.places[cpu.call.place];
        let is_free = match step {
            Step::Lock => !place.is_locked,
            Step::Change => !place.is_closed,
            Step::Wait => cpu.outbox == 0,
            _ => true,
        };
        is_free && (cpu.buffer.is_empty() || !self.needs_empty_buffer(step))
    }

    fn begin_hook(&self, cpu: &mut Cpu, place: usize) {
        cpu.call = Call { kind: Kind::Page, place, ..cpu.call };
        let mut middle = [Step::Record, Step::Hook];
        if self.has(Mistake::HooksFirst) {
            middle.reverse();
        }
        if self.has(Mistake::HooksWithoutLock) {
            cpu.then(&[&[Step::Find][..], &middle].concat());
        } else {
            cpu.then(&[&[Step::Lock, Step::Find][..], &middle, &[Step::Unlock]].concat());
        }
    }

    fn begin_call(&self, cpu: &mut Cpu, kind: Kind, place: usize) {
        cpu.call = Call { kind, place, incarnation: 0, version: 0, reach: 0, targets: 0, generation: 0 };
        let mut steps = match kind {
            Kind::Table => vec![Step::Lock, Step::TakeOut, Step::ReadSharers],
            Kind::Page | Kind::PageOfAll => vec![Step::Change, Step::ReadSharers],
            Kind::Convert => vec![],
        };
        if self.has(Mistake::ReadsSharersFirst) && kind == Kind::Page {
            steps.swap(0, 1);
        }
        steps.push(Step::Decide);
        cpu.then(&steps);
    }

    fn begin_conversion(&self, cpus: &mut [Cpu], by: usize) {
        self.begin_call(&mut cpus[by], Kind::Convert, 0);
        cpus[by].steps.clear();
        let ask = (0..cpus.len()).filter(|&other| other != by).map(Step::Look);
        let ask = [Step::Advance].into_iter().chain(ask).chain([Step::Send, Step::FlushHere, Step::Wait]);
        let mut steps: Vec<_> = ask.collect();
        let name = if self.has(Mistake::NamesAfterTheFlush) { steps.len() } else { 0 };
        steps.insert(name, Step::Name);
        steps.push(Step::End);
        cpus[by].then(&steps);
    }

    fn step(&self, state: &mut State, by: usize) {
        let Some(step) = state.cpus[by].steps.pop() else { return };
        let call = state.cpus[by].call;
        match step {
            Step::Lock => {
                let place = &mut state.places[call.place];
                place.is_locked = true;
                place.is_closed |= call.kind == Kind::Table;
            }
            Step::Find => Self::find(state, by),
            Step::Record => {
                let place = &mut state.places[call.place];
                let recorded = place.sharers[usize::from(call.incarnation)] | 1 << by;
                if self.has(Mistake::RecordsUnfenced) {
                    state.cpus[by].buffer.push(Store::Sharers(call.place, call.incarnation, recorded));
                } else {
                    place.sharers[usize::from(call.incarnation)] = recorded;
                }
            }
            Step::Hook => state.cpus[by].buffer.push(Store::Directory(by, call.place, call.incarnation)),
            Step::Unlock => state.cpus[by].buffer.push(Store::Unlock(call.place)),
            Step::Change | Step::TakeOut => self.change(state, by, step),
            Step::ReadSharers => self.read_sharers(state, by),
            Step::ClearDirectory(cpu) => state.cpus[by].buffer.push(Store::Directory(cpu, call.place, 0)),
            Step::Decide => self.decide(state, by),
            Step::Advance => {
                if !self.has(Mistake::NeverAdvances) || call.kind != Kind::Page {
                    state.generation += 1;
                }
                state.cpus[by].call.generation = state.generation;
            }
            Step::Look(other) => {
                let is_meant = match state.cpus[other].presence {
                    Presence::Running => true,
                    Presence::Switching => !self.has(Mistake::SkipsSwitching),
                    Presence::Lazy => match call.kind {
                        Kind::Table => !self.has(Mistake::SkipsLazy),
                        Kind::Convert => !self.has(Mistake::ConvertsPastLazy),
                        Kind::Page | Kind::PageOfAll => false,
                    },
                    Presence::Elsewhere => false,
                };
                state.cpus[by].call.targets |= u8::from(is_meant) << other;
            }
            Step::Send => state.cpus[by].outbox = call.targets,
            Step::FlushHere => self.carry_out(state, by, by),
            Step::End => Self::end(state, by),
            Step::Say(presence) => state.cpus[by].say(presence),
            Step::ReadGeneration => state.cpus[by].newest = state.generation,
            Step::Load => {
                let cpu = &mut state.cpus[by];
                let is_stale = cpu.held < cpu.newest;
                if is_stale {
                    cpu.flush_all(cpu.newest);
                }
                if !cpu.is_loaded || is_stale && !self.has(Mistake::ReturnsToTheSharedRoot) {
                    cpu.is_own = state.is_named;
                }
                cpu.is_loaded = true;
            }
            Step::Name => {
                state.is_converted = self.has(Mistake::ConvertsUnderNoLock);
                state.cpus[by].buffer.push(Store::Name);
            }
            Step::Unload => state.cpus[by].is_loaded = false,
            Step::CarryOut(sender) => self.carry_out(state, by, sender),
            Step::Answer(sender) => state.cpus[sender].outbox &= !(1 << by),
            Step::Fence | Step::Wait => {}
        }
    }

    /// The table in the master tree, which is made if there is none.
    fn find(state: &mut State, by: usize) {
        let cpu = &mut state.cpus[by];
        let place = &mut state.places[cpu.call.place];
        if place.master == 0 && !place.is_closed && usize::from(place.made) < INCARNATIONS {
            place.made += 1;
            place.master = place.made;
            place.version += 1;
            place.entries[usize::from(place.made)] = place.version;
        }
        cpu.call.incarnation = place.master;
        if place.master == 0 {
            let is_locked = cpu.steps.contains(&Step::Unlock);
            cpu.steps.clear();
            cpu.then(if is_locked { &[Step::Unlock] } else { &[] });
        }
    }

    /// The page gets another frame, or the table goes out of the master tree.
    fn change(&self, state: &mut State, by: usize, step: Step) {
        let cpu = &mut state.cpus[by];
        let place = &mut state.places[cpu.call.place];
        let table = place.master;
        if table == 0 {
            cpu.steps.clear();
            if step == Step::TakeOut {
                place.is_closed = false;
                cpu.then(&[Step::Unlock]);
            }
            return;
        }
        place.version += 1;
        cpu.call.incarnation = table;
        cpu.call.version = place.version;
        if step == Step::TakeOut {
            (place.master, place.entries[usize::from(table)]) = (0, 0);
            if self.has(Mistake::FreesFirst) {
                place.is_freed[usize::from(table)] = true;
            }
        } else if self.has(Mistake::ChangesUnfenced) {
            cpu.buffer.push(Store::Entry(cpu.call.place, table, place.version));
        } else {
            place.entries[usize::from(table)] = place.version;
        }
    }

    fn read_sharers(&self, state: &mut State, by: usize) {
        let all = (1 << state.cpus.len()) - 1;
        let cpu = &mut state.cpus[by];
        let place = &mut state.places[cpu.call.place];
        let call = &mut cpu.call;
        // What is read before the change is of the table that is there then.
        let table = if call.incarnation == 0 { place.master } else { call.incarnation };
        if call.kind == Kind::Table && self.has(Mistake::ForgetsSharersFirst) {
            place.sharers[usize::from(table)] = 0;
        }
        let sharers = place.sharers[usize::from(table)];
        call.reach = if call.kind == Kind::PageOfAll || !state.is_converted { all } else { sharers };
        if self.has(Mistake::LeavesItselfOut) {
            call.reach &= !(1 << by);
        }
        if call.kind != Kind::Table {
            return;
        }
        cpu.then(&[Step::Unlock, Step::Fence]);
        let is_cleared =
            |other: &usize| sharers & 1 << other != 0 && (*other == by || !self.has(Mistake::KeepsOtherDirectories));
        let cleared: Vec<_> = (0..state.cpus.len()).filter(is_cleared).map(Step::ClearDirectory).collect();
        state.cpus[by].then(&cleared);
    }

    fn decide(&self, state: &mut State, by: usize) {
        let others = state.cpus.iter().enumerate().any(|(n, cpu)| n != by && cpu.presence == Presence::Running);
        let cpu = &mut state.cpus[by];
        let call = cpu.call;
        let is_only = call.reach == 1 << by || call.reach.count_ones() == 1 && self.has(Mistake::AloneWhereverItIs);
        let is_here = cpu.own_presence == Presence::Running || self.has(Mistake::AloneElsewhere);
        if call.kind != Kind::PageOfAll && (call.reach == 0 || is_only && is_here) {
            if call.reach != 0 && cpu.own_presence == Presence::Running {
                if call.kind == Kind::Table { cpu.flush_all(cpu.held) } else { cpu.flush_page(call.place) }
            }
            cpu.then(&[Step::End]);
            state.was_alone |= others;
            return;
        }
        let others = (0..self.world.cpus).filter(|&other| other != by && call.reach & 1 << other != 0);
        let looks = others.map(Step::Look);
        let all = [Step::Advance].into_iter().chain(looks);
        let all = all.chain([Step::Send, Step::FlushHere, Step::Wait, Step::End]);
        state.cpus[by].then(&all.collect::<Vec<_>>());
    }

    /// INV-4 is decided here.
    fn carry_out(&self, state: &mut State, by: usize, sender: usize) {
        let (newest, request, is_named) = (state.generation, state.cpus[sender].call, state.is_named);
        let cpu = &mut state.cpus[by];
        let flush_all = |cpu: &mut Cpu| {
            cpu.flush_all(newest);
            if !self.has(Mistake::KeepsTheSharedRoot) {
                cpu.is_own = is_named;
            }
        };
        match cpu.own_presence {
            Presence::Running if request.generation > cpu.held || self.has(Mistake::NeverAdvances) => {
                let is_next = request.generation == cpu.held + 1 && request.generation == newest;
                match request.kind {
                    Kind::Table | Kind::Convert => flush_all(cpu),
                    _ if is_next => {
                        cpu.flush_page(request.place);
                        cpu.held = newest;
                    }
                    Kind::PageOfAll if self.has(Mistake::BehindFlushesThePage) => {
                        cpu.flush_page(request.place);
                        cpu.held = newest;
                    }
                    Kind::PageOfAll => flush_all(cpu),
                    Kind::Page => {
                        if !self.has(Mistake::BehindFlushesNothing) {
                            cpu.flush_page(request.place);
                        }
                        if self.has(Mistake::PageRaisesGeneration) {
                            cpu.held = newest;
                        }
                        state.was_behind = true;
                    }
                }
            }
            // It leaves the space.
            Presence::Lazy if by != sender => {
                cpu.is_loaded = false;
                cpu.say(Presence::Elsewhere);
            }
            _ => {}
        }
    }

    fn end(state: &mut State, by: usize) {
        let call = state.cpus[by].call;
        if call.kind == Kind::Convert {
            state.is_converted = true;
            return;
        }
        let place = &mut state.places[call.place];
        place.floor = place.floor.max(call.version);
        if call.kind == Kind::Table {
            place.is_freed[usize::from(call.incarnation)] = true;
            place.is_closed = false;
        }
    }

    fn begin_return(&self, cpu: &mut Cpu) {
        let fence = if self.has(Mistake::ReturnsUnfenced) { &[][..] } else { &[Step::Fence] };
        let look = [Step::ReadGeneration, Step::Load, Step::Say(Presence::Running)];
        cpu.then(&[&[Step::Say(Presence::Switching)][..], fence, &look].concat());
    }

    fn drain(&self, state: &mut State, by: usize) {
        match state.cpus[by].buffer.remove(0) {
            Store::Presence(presence) => state.cpus[by].presence = presence,
            Store::Directory(cpu, place, table) => state.cpus[cpu].directory[place] = table,
            Store::Sharers(place, table, sharers) => state.places[place].sharers[usize::from(table)] = sharers,
            Store::Name => state.is_named = true,
            Store::Entry(place, table, version) => state.places[place].entries[usize::from(table)] = version,
            Store::Unlock(place) => {
                state.places[place].is_locked = false;
                state.places[place].is_closed &= !self.has(Mistake::MakesTableTooEarly);
            }
        }
    }
}

impl Model for Sharing {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let World { cpus, sharers, budget, .. } = self.world;
        let place = |sharers: u8| Place {
            master: 1,
            made: 1,
            is_locked: false,
            is_closed: false,
            sharers: [0, sharers, 0],
            entries: [0, 1, 0],
            is_freed: [false; INCARNATIONS + 1],
            version: 1,
            floor: 1,
        };
        let call = Call { kind: Kind::Page, place: 0, incarnation: 0, version: 0, reach: 0, targets: 0, generation: 0 };
        let cpu = |number: usize| Cpu {
            presence: Presence::Running,
            own_presence: Presence::Running,
            outbox: 0,
            directory: sharers.map(|sharers| sharers >> number & 1),
            buffer: Vec::new(),
            steps: Vec::new(),
            call,
            is_loaded: true,
            is_own: budget.conversions == 0,
            newest: 1,
            held: 1,
            paths: [0; TABLES_OF_SPACE],
            cached: [0; TABLES_OF_SPACE],
        };
        let mut state = State {
            generation: 1,
            places: sharers.map(place),
            cpus: (0..cpus).map(cpu).collect(),
            budget,
            is_named: budget.conversions == 0,
            is_converted: budget.conversions == 0,
            was_alone: false,
            was_behind: false,
        };
        state.fill();
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let budget = state.budget;
        let is_converting = |cpu: &Cpu| cpu.call.kind == Kind::Convert && cpu.steps.contains(&Step::End);
        let is_closed = state.cpus.iter().any(is_converting) && !self.has(Mistake::ConvertsUnderNoLock);
        for (by, cpu) in state.cpus.iter().enumerate() {
            if !cpu.buffer.is_empty() {
                actions.push(Action::Drain(by));
            }
            if !cpu.is_quiet() {
                let asks = |&other: &usize| other != by && state.cpus[other].outbox & 1 << by != 0;
                actions.extend((0..self.world.cpus).filter(asks).map(|other| Action::Interrupt(by, other)));
            }
            if let Some(&step) = cpu.steps.last() {
                if self.is_possible(state, by, step) {
                    actions.push(Action::Step(by));
                }
                continue;
            }
            for place in 0..TABLES_OF_SPACE {
                let is_running = cpu.own_presence == Presence::Running;
                if is_closed {
                    continue;
                }
                if is_running && budget.hooks > 0 && cpu.is_own && cpu.named(by, place) == 0 {
                    actions.push(Action::Hook(by, place));
                }
                if by >= self.world.initiators {
                    continue;
                }
                // A kernel takes away what another CPU runs, too.
                if budget.pages > 0 && cpu.own_presence != Presence::Lazy {
                    actions.push(Action::Page(by, place));
                }
                if budget.pages_of_all > 0 && is_running {
                    actions.push(Action::PageOfAll(by, place));
                }
                if budget.tables > 0 && is_running {
                    actions.push(Action::Table(by, place));
                }
            }
            if cpu.own_presence != Presence::Running {
                actions.push(Action::Return(by));
            } else {
                let is_first = by == 0 && budget.conversions > 0 && !state.cpus.iter().any(Cpu::holds_regions);
                actions.extend(is_first.then_some(Action::Convert(by)));
                actions.extend((budget.idles > 0).then_some(Action::Idle(by)));
                actions.extend((budget.switches > 0).then_some(Action::Leave(by)));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let State { cpus, budget, .. } = &mut state;
        match action {
            Action::Step(by) => self.step(&mut state, by),
            Action::Drain(by) => self.drain(&mut state, by),
            Action::Interrupt(by, sender) => {
                let mut steps = [Step::CarryOut(sender), Step::Answer(sender)];
                if self.has(Mistake::AnswersFirst) {
                    steps.reverse();
                }
                cpus[by].then(&steps);
            }
            Action::Hook(by, place) => {
                budget.hooks -= 1;
                self.begin_hook(&mut cpus[by], place);
            }
            Action::Page(by, place) => {
                budget.pages -= 1;
                let kind = if last.is_converted { Kind::Page } else { Kind::PageOfAll };
                self.begin_call(&mut cpus[by], kind, place);
            }
            Action::PageOfAll(by, place) => {
                budget.pages_of_all -= 1;
                self.begin_call(&mut cpus[by], Kind::PageOfAll, place);
            }
            Action::Table(by, place) => {
                budget.tables -= 1;
                self.begin_call(&mut cpus[by], Kind::Table, place);
            }
            Action::Convert(by) => {
                budget.conversions -= 1;
                self.begin_conversion(cpus, by);
            }
            Action::Idle(by) => {
                budget.idles -= 1;
                cpus[by].then(&[Step::Say(Presence::Lazy)]);
            }
            Action::Leave(by) => {
                budget.switches -= 1;
                cpus[by].then(&[Step::Say(Presence::Switching), Step::Unload, Step::Say(Presence::Elsewhere)]);
            }
            Action::Return(by) => self.begin_return(&mut cpus[by]),
        }
        state.fill();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(USE, |_, state: &State| state.cpus.iter().all(|cpu| uses_nothing_stale(state, cpu))),
            Property::always(WALK, |_, state: &State| state.cpus.iter().all(|cpu| walks_nothing_freed(state, cpu))),
            Property::always(RECORDED, |_, state: &State| {
                state.cpus.iter().enumerate().all(|(number, cpu)| is_recorded(state, number, cpu))
            }),
            Property::sometimes("a flush interrupts nobody beside a CPU that runs", |_, state: &State| state.was_alone),
            Property::sometimes("a CPU that was passed by flushes a page", |_, state: &State| state.was_behind),
            Property::sometimes("a table is hooked where one was freed", |_, state: &State| {
                state.cpus.iter().flat_map(|cpu| cpu.directory).any(|table| table > 1)
            }),
        ]
    }
}

const USE: &str = "INV-6 a CPU that says that it runs uses nothing that was taken away";
const WALK: &str = "INV-6 no CPU walks a table that was freed";
const RECORDED: &str = "a CPU whose directory names a table is among its sharers";

fn uses_nothing_stale(state: &State, cpu: &Cpu) -> bool {
    let is_new = |(cached, place): (&u8, &Place)| *cached == 0 || *cached >= place.floor;
    cpu.own_presence != Presence::Running || cpu.cached.iter().zip(&state.places).all(is_new)
}

fn walks_nothing_freed(state: &State, cpu: &Cpu) -> bool {
    let is_there = |(path, place): (&u8, &Place)| !place.is_freed[usize::from(*path)];
    !cpu.is_loaded || cpu.paths.iter().zip(&state.places).all(is_there)
}

fn is_recorded(state: &State, number: usize, cpu: &Cpu) -> bool {
    let is_known = |(table, place): (&u8, &Place)| *table == 0 || place.sharers[usize::from(*table)] >> number & 1 != 0;
    cpu.directory.iter().zip(&state.places).all(is_known)
}

/// What the exploration of the handshake came to.
#[derive(Debug)]
pub struct Found {
    /// Distinct states.
    pub unique_states: usize,
    /// The properties that do not hold.
    pub broken: Vec<&'static str>,
    /// What must happen in some world, and was not seen in this one.
    pub unseen: Vec<&'static str>,
}

/// Explores `world` to its end, or until the mistake is found.
#[must_use]
pub fn explore(world: World, mistake: Option<Mistake>) -> Found {
    let finish = if mistake.is_some() { HasDiscoveries::AnyFailures } else { HasDiscoveries::All };
    let model = Sharing { world, mistake };
    let checker = model.checker().finish_when(finish).spawn_bfs().join();
    let is_found = |property: &Property<Sharing>| checker.discovery(property.name).is_some();
    let (always, sometimes): (Vec<_>, Vec<_>) =
        model.properties().into_iter().partition(|property| property.expectation == Expectation::Always);
    let broken = always.iter().filter(|one| is_found(one)).map(|one| one.name).collect();
    let unseen = sometimes.iter().filter(|one| !is_found(one)).map(|one| one.name).collect();
    Found { unique_states: checker.unique_state_count(), broken, unseen }
}

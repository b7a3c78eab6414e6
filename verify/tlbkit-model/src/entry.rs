//! The other handshake of `lib/tlbkit/src/flush/spared.rs`, in a separate model: one CPU enters and leaves the kernel,
//! and takes NMIs, while two others take a kernel page or a kernel page table each away.
//!
//! Each word that they share is memory behind a store buffer, as in the large model. The CPU caches what is mapped as
//! early as it can, in user mode too, and uses it wherever the kernel runs.

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

/// What an initiator takes away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Taken {
    /// A page, which is deferred.
    Page,
    /// A page table, which never is.
    Table,
}

/// One mistake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mistake {
    /// An entry does not flush what was deferred.
    EntersWithoutLook,
    /// An entry forgets what was deferred before it has flushed it.
    ForgetsFirst,
    /// An entry reads the word, and writes it later.
    EntryUnlocked,
    /// An initiator reads the word, and writes it later.
    MarkUnlocked,
    /// An initiator defers before it changes the page table.
    MarksBeforeTheChange,
    /// The CPU says that it is in user mode before the kernel's last use.
    SaysUserEarly,
    /// A page table that is freed is deferred.
    DefersTables,
    /// An NMI uses what it likes.
    NmiWithoutLook,
    /// An NMI that came into the kernel says user mode on its way out.
    NmiSaysUser,
    /// An NMI that came into user mode leaves the CPU to be interrupted: harmless, and nothing is found.
    NmiKeepsSilent,
}

impl Mistake {
    /// Those that do harm.
    pub const ALL: [Self; 9] = [
        Self::EntersWithoutLook,
        Self::ForgetsFirst,
        Self::EntryUnlocked,
        Self::MarkUnlocked,
        Self::MarksBeforeTheChange,
        Self::SaysUserEarly,
        Self::DefersTables,
        Self::NmiWithoutLook,
        Self::NmiSaysUser,
    ];
}

const USER: u8 = 1;
const WORK: u8 = 2;
/// Initiators.
const OTHERS: usize = 2;
/// How often the CPU leaves the kernel, and how many NMIs come.
const EXITS: u8 = 2;
const NMIS: u8 = 2;

/// A store on its way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Store {
    Word(u8),
    Change,
}

/// A step of an initiator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Revoke {
    Change,
    Fence,
    Mark,
    /// Only with a mistake: what was read, to be written.
    Write(u8),
    Interrupt,
    Wait,
    Free,
    Over,
}

/// A step of the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Run {
    Exchange,
    /// Only with a mistake: what was read, to be written over.
    Overwrite(u8),
    Flush,
    Finish,
    /// The kernel uses all that is cached.
    Use,
    SayUser,
    Answer,
}

/// Where the CPU is when it has no step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Mode {
    Kernel,
    User,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The word.
    word: u8,
    /// Whether each page is mapped, or each table linked.
    is_there: [bool; OTHERS],
    /// What the CPU has cached of them.
    is_cached: [bool; OTHERS],
    is_freed: [bool; OTHERS],
    /// By initiator.
    steps: [Revoke; OTHERS],
    buffers: [Vec<Store>; OTHERS],
    is_marked: [bool; OTHERS],
    is_interrupting: [bool; OTHERS],
    /// The CPU's steps, the next last; those of an NMI lie on top.
    run: Vec<Run>,
    own: Vec<Store>,
    mode: Mode,
    /// Steps that lie below those of the NMI that runs.
    below_nmi: Option<usize>,
    exits: u8,
    nmis: u8,
}

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// An initiator goes on.
    Revoke(usize),
    /// Its oldest store reaches memory.
    Drain(usize),
    /// The CPU takes its next step.
    Run,
    /// Its oldest store reaches memory.
    DrainOwn,
    /// It goes to user mode.
    Exit,
    /// It comes back.
    Enter,
    /// It takes the interrupt.
    Interrupt,
    /// It takes an NMI.
    Nmi,
}

/// The handshake.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What each initiator takes away.
    pub taken: [Taken; OTHERS],
    /// The mistake in it, if there is one.
    pub mistake: Option<Mistake>,
}

impl Entry {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn revoke(&self, state: &mut State, by: usize) {
        let may_defer = self.taken[by] == Taken::Page || self.has(Mistake::DefersTables);
        let early = self.has(Mistake::MarksBeforeTheChange);
        state.steps[by] = match state.steps[by] {
            Revoke::Change => {
                state.buffers[by].push(Store::Change);
                Revoke::Fence
            }
            Revoke::Fence if early => {
                if state.is_marked[by] {
                    Revoke::Free
                } else {
                    Revoke::Interrupt
                }
            }
            Revoke::Fence => {
                if may_defer {
                    Revoke::Mark
                } else {
                    Revoke::Interrupt
                }
            }
            Revoke::Mark if self.has(Mistake::MarkUnlocked) => {
                if state.word & USER != 0 {
                    Revoke::Write(USER | WORK)
                } else {
                    Revoke::Interrupt
                }
            }
            Revoke::Mark => {
                state.is_marked[by] = state.word & USER != 0;
                if state.is_marked[by] {
                    state.word |= WORK;
                }
                match (early, state.is_marked[by]) {
                    (true, _) => Revoke::Change,
                    (false, true) => Revoke::Free,
                    (false, false) => Revoke::Interrupt,
                }
            }
            Revoke::Write(value) => {
                state.buffers[by].push(Store::Word(value));
                Revoke::Free
            }
            Revoke::Interrupt => {
                state.is_interrupting[by] = true;
                Revoke::Wait
            }
            Revoke::Wait => Revoke::Free,
            Revoke::Free => {
                state.is_freed[by] = true;
                Revoke::Over
            }
            Revoke::Over => Revoke::Over,
        };
    }

    fn run(&self, state: &mut State) {
        let Some(step) = state.run.pop() else { return };
        match step {
            Run::Exchange if self.has(Mistake::EntryUnlocked) => state.run.push(Run::Overwrite(state.word)),
            Run::Exchange => {
                let before = state.word;
                state.word = if self.has(Mistake::ForgetsFirst) { 0 } else { WORK };
                self.after_exchange(state, before);
            }
            Run::Overwrite(before) => {
                state.own.push(Store::Word(WORK));
                self.after_exchange(state, before);
            }
            Run::Flush => {
                state.is_cached = [false; OTHERS];
                fill(state);
            }
            Run::Finish => state.own.push(Store::Word(0)),
            Run::Use => {}
            Run::SayUser => state.own.push(Store::Word(USER)),
            Run::Answer => {
                state.is_cached = [false; OTHERS];
                fill(state);
                state.is_interrupting = [false; OTHERS];
            }
        }
        if state.below_nmi == Some(state.run.len()) {
            state.below_nmi = None;
        }
    }

    fn after_exchange(&self, state: &mut State, before: u8) {
        let mut steps = Vec::new();
        if before & WORK != 0 && !self.has(Mistake::EntersWithoutLook) {
            steps.push(Run::Flush);
        }
        steps.push(Run::Finish);
        if state.below_nmi.is_some() {
            steps.push(Run::Use);
            let says = before & USER != 0 && !self.has(Mistake::NmiKeepsSilent);
            steps.extend((says || self.has(Mistake::NmiSaysUser)).then_some(Run::SayUser));
        }
        state.run.extend(steps.into_iter().rev());
    }
}

fn fill(state: &mut State) {
    for (cached, there) in state.is_cached.iter_mut().zip(state.is_there) {
        *cached |= there;
    }
}

fn arrive(state: &mut State, store: Store, from: usize) {
    match store {
        Store::Word(value) => state.word = value,
        Store::Change => state.is_there[from] = false,
    }
}

/// The kernel may use what the CPU has cached at this moment.
fn kernel_runs(state: &State) -> bool {
    state.run.is_empty() && state.mode == Mode::Kernel || state.run.last() == Some(&Run::Use)
}

impl Model for Entry {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let first = if self.has(Mistake::MarksBeforeTheChange) { Revoke::Mark } else { Revoke::Change };
        vec![State {
            word: 0,
            is_there: [true; OTHERS],
            is_cached: [true; OTHERS],
            is_freed: [false; OTHERS],
            steps: [first; OTHERS],
            buffers: Default::default(),
            is_marked: [false; OTHERS],
            is_interrupting: [false; OTHERS],
            run: Vec::new(),
            own: Vec::new(),
            mode: Mode::Kernel,
            below_nmi: None,
            exits: 0,
            nmis: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for by in 0..OTHERS {
            let can_go_on = match state.steps[by] {
                Revoke::Over => false,
                Revoke::Wait => !state.is_interrupting[by],
                // A locked operation or a fence.
                Revoke::Mark if self.has(Mistake::MarkUnlocked) => true,
                Revoke::Fence | Revoke::Mark | Revoke::Interrupt => state.buffers[by].is_empty(),
                Revoke::Change | Revoke::Write(_) | Revoke::Free => true,
            };
            if can_go_on {
                actions.push(Action::Revoke(by));
            }
            if !state.buffers[by].is_empty() {
                actions.push(Action::Drain(by));
            }
        }
        if !state.own.is_empty() {
            actions.push(Action::DrainOwn);
        }
        let needs_empty = matches!(state.run.last(), Some(Run::Exchange | Run::Answer | Run::Flush))
            && !(state.run.last() == Some(&Run::Exchange) && self.has(Mistake::EntryUnlocked));
        if !state.run.is_empty() && (!needs_empty || state.own.is_empty()) {
            actions.push(Action::Run);
        }
        let is_interrupted = state.is_interrupting.contains(&true);
        if state.run.is_empty() {
            match state.mode {
                Mode::Kernel if state.exits < EXITS => actions.push(Action::Exit),
                Mode::User => actions.push(Action::Enter),
                Mode::Kernel => {}
            }
            if is_interrupted {
                actions.push(Action::Interrupt);
            }
        }
        if state.below_nmi.is_none() && state.nmis < NMIS {
            actions.push(Action::Nmi);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Revoke(by) => self.revoke(&mut state, by),
            Action::Drain(by) => {
                let store = state.buffers[by].remove(0);
                arrive(&mut state, store, by);
            }
            Action::DrainOwn => {
                let store = state.own.remove(0);
                arrive(&mut state, store, 0);
            }
            Action::Run => self.run(&mut state),
            Action::Exit => {
                state.exits += 1;
                state.mode = Mode::User;
                let early = self.has(Mistake::SaysUserEarly).then_some(Run::Use);
                state.run = early.into_iter().chain([Run::SayUser]).collect();
            }
            Action::Enter => {
                state.mode = Mode::Kernel;
                state.run = vec![Run::Exchange];
            }
            // In user mode the entry comes first, and the way out says USER again.
            Action::Interrupt if state.mode == Mode::User => state.run = vec![Run::SayUser, Run::Answer, Run::Exchange],
            Action::Interrupt => state.run = vec![Run::Answer],
            Action::Nmi => {
                state.nmis += 1;
                state.below_nmi = Some(state.run.len());
                state.run.push(if self.has(Mistake::NmiWithoutLook) { Run::Use } else { Run::Exchange });
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(USE, |_, state: &State| !kernel_runs(state) || reaches_nothing_freed(state)),
            Property::always(WALK, |model: &Self, state: &State| {
                (0..OTHERS).all(|n| model.taken[n] == Taken::Page || !state.is_freed[n] || !state.is_cached[n])
            }),
            Property::always(SERVED, |model: &Self, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || state.steps == [Revoke::Over; OTHERS]
            }),
            Property::sometimes("a flush is deferred", |model: &Self, state: &State| {
                state.word == USER | WORK || model.taken == [Taken::Table; OTHERS]
            }),
            Property::sometimes("a CPU in user mode is interrupted", |_, state: &State| {
                state.mode == Mode::User && state.run.last() == Some(&Run::Answer)
            }),
        ]
    }
}

const USE: &str = "INV-6 the kernel uses nothing that was freed";
const WALK: &str = "INV-6 no walk of a freed kernel table";
const SERVED: &str = "INV-7 every initiator goes on";

fn reaches_nothing_freed(state: &State) -> bool {
    (0..OTHERS).all(|n| !state.is_freed[n] || !state.is_cached[n])
}

/// What the exploration of the handshake came to.
#[derive(Debug)]
pub struct Found {
    /// Distinct states.
    pub unique_states: usize,
    /// The properties that do not hold, or are never seen.
    pub broken: Vec<&'static str>,
}

/// Explores the handshake to its end.
#[must_use]
pub fn explore(taken: [Taken; OTHERS], mistake: Option<Mistake>) -> Found {
    let finish = if mistake.is_some() { HasDiscoveries::AnyFailures } else { HasDiscoveries::All };
    let checker = Entry { taken, mistake }.checker().finish_when(finish).spawn_bfs().join();
    let properties = Entry { taken, mistake }.properties();
    let is_broken = |property: &Property<Entry>| match property.expectation {
        // An exploration that ends with its mistake has not seen all that can be.
        Expectation::Sometimes => mistake.is_none() && checker.discovery(property.name).is_none(),
        _ => checker.discovery(property.name).is_some(),
    };
    let broken = properties.iter().filter(|property| is_broken(property)).map(|property| property.name).collect();
    Found { unique_states: checker.unique_state_count(), broken }
}

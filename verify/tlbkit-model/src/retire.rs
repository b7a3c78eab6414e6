//! The handshake of `lib/tlbkit/src/flush/retire.rs`, in a separate model: two owners retire a page each and free it
//! when its grace period is over, while two CPUs use the pages, pass, idle and come back. And that of `defer.rs` there:
//! the owners wait for no grace period, and interrupt the CPUs that have not passed; or one of them folds both pages
//! into one flush, which it leaves out if all have passed.
//!
//! Each word that they share is memory behind a store buffer, as in the large model. A CPU caches what is mapped as
//! early as it can, and keeps it until it flushes. The generation is a locked addition, as it is a full barrier.

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

/// One mistake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mistake {
    /// An owner reads the epoch before it advances the generation.
    EpochFirst,
    /// A CPU that has passed in the same epoch counts.
    SameEpochCounts,
    /// A CPU that is on its way into the space counts as one that idles.
    SkipsSwitching,
    /// A CPU passes without a flush.
    PassesWithoutFlush,
    /// A CPU says that it has passed before it flushes.
    PassesEarly,
    /// A CPU reads the generation before the epoch.
    GenerationFirst,
    /// A CPU comes back before others can see that it does.
    ReturnUnfenced,
    /// One CPU that has passed is enough.
    AsksOne,
    /// A CPU that is interrupted answers before it flushes: only where CPUs are interrupted.
    AnswersEarly,
    /// Who folds both keeps the epoch of its own: only there.
    FoldsIntoItsOwn,
}

/// How an owner gets its page back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It waits until each CPU has passed, or idles.
    Awaited,
    /// It interrupts each CPU that has not.
    Interrupted,
    /// The same, and one owner does so for both pages.
    Folded,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::EpochFirst,
        Self::SameEpochCounts,
        Self::SkipsSwitching,
        Self::PassesWithoutFlush,
        Self::PassesEarly,
        Self::GenerationFirst,
        Self::ReturnUnfenced,
        Self::AsksOne,
        Self::AnswersEarly,
        Self::FoldsIntoItsOwn,
    ];

    /// The endings in which the mistake can be made.
    #[must_use]
    pub const fn endings(self) -> &'static [Ending] {
        match self {
            Self::AnswersEarly => &[Ending::Interrupted],
            Self::FoldsIntoItsOwn => &[Ending::Folded],
            _ => &[Ending::Awaited, Ending::Interrupted],
        }
    }
}

impl Ending {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Awaited, Self::Interrupted, Self::Folded];
}

const OWNERS: usize = 2;
const USERS: usize = 2;
/// How often each CPU passes, and how often the one that does idles. Where CPUs are interrupted by both owners that one
/// alone passes.
const PASSES: u8 = 1;
const IDLES: u8 = 1;
const IDLER: usize = 1;
/// The owner that folds what the other one has left to it.
const FOLDER: usize = 0;

/// What a CPU publishes of itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Presence {
    Running,
    Lazy,
    Switching,
}

/// A store of a CPU on its way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Store {
    Presence(Presence),
    Passed(u8),
}

/// The next step of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Owner {
    Change,
    Advance,
    ReadEpoch,
    EndEpoch,
    /// Takes over the page of the other owner.
    Fold,
    /// Looks at the presence of this CPU.
    Look(usize),
    /// Looks at what it has passed.
    LookPassed(usize),
    /// Sends it a request.
    Ask(usize),
    /// Waits for its answer.
    Wait(usize),
    Free,
    Over,
}

/// The next steps of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    ReadEpoch,
    Fence,
    ReadGeneration,
    Flush,
    SayPassed,
    Say(Presence),
    /// Clears the bits of those who had asked when it began: a locked operation.
    SayAnswered([bool; OWNERS]),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct User {
    presence: Presence,
    passed: u8,
    own_presence: Presence,
    own_passed: u8,
    buffer: Vec<Store>,
    steps: Vec<Step>,
    epoch: u8,
    newest: u8,
    held: u8,
    is_cached: [bool; OWNERS],
    passes: u8,
    idles: u8,
    /// Whose request it has not answered.
    is_asked: [bool; OWNERS],
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    epoch: u8,
    generation: u8,
    is_there: [bool; OWNERS],
    is_freed: [bool; OWNERS],
    owners: [Owner; OWNERS],
    /// An owner's change of its entry is on its way.
    is_buffered: [bool; OWNERS],
    after: [u8; OWNERS],
    users: [User; USERS],
}

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// An owner goes on.
    Owner(usize),
    /// Its change reaches memory.
    DrainOwner(usize),
    /// A CPU takes its next step.
    Step(usize),
    /// Its oldest store reaches memory.
    Drain(usize),
    /// It passes.
    Pass(usize),
    /// It idles, or comes back.
    Turn(usize),
    /// It takes an interrupt.
    Answer(usize),
}

/// The handshake.
#[derive(Clone, Copy, Debug)]
pub struct Retiring {
    /// How pages come back.
    pub ending: Ending,
    /// The mistake in it, if there is one.
    pub mistake: Option<Mistake>,
}

impl Retiring {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn own(&self, state: &mut State, by: usize) {
        let early = self.has(Mistake::EpochFirst);
        state.owners[by] = match state.owners[by] {
            Owner::Change => {
                state.is_buffered[by] = true;
                if early { Owner::ReadEpoch } else { Owner::Advance }
            }
            Owner::Advance => {
                state.generation += 1;
                if early { Owner::EndEpoch } else { Owner::ReadEpoch }
            }
            Owner::ReadEpoch => {
                state.after[by] = state.epoch;
                if early { Owner::Advance } else { Owner::EndEpoch }
            }
            Owner::EndEpoch => {
                state.epoch = state.epoch.max(state.after[by] + 1);
                match (self.ending, by) {
                    (Ending::Folded, FOLDER) => Owner::Fold,
                    (Ending::Folded, _) => Owner::Over,
                    _ => self.look(0),
                }
            }
            Owner::Fold => {
                if !self.has(Mistake::FoldsIntoItsOwn) {
                    state.after[by] = state.after[by].max(state.after[1 - by]);
                }
                self.look(0)
            }
            Owner::Look(user) => match (state.users[user].presence, self.ending) {
                (Presence::Lazy, _) => self.passed(user),
                (Presence::Switching, _) if self.has(Mistake::SkipsSwitching) => self.passed(user),
                (_, Ending::Awaited) => Owner::LookPassed(user),
                (_, Ending::Interrupted | Ending::Folded) => Owner::Ask(user),
            },
            Owner::LookPassed(user) => {
                let (passed, after) = (state.users[user].passed, state.after[by]);
                let is_enough = passed > after || self.has(Mistake::SameEpochCounts) && passed == after;
                // Where it waits, it asks again.
                if is_enough { self.passed(user) } else { Owner::Look(user) }
            }
            Owner::Ask(user) => {
                state.users[user].is_asked[by] = true;
                Owner::Wait(user)
            }
            Owner::Wait(user) if state.users[user].is_asked[by] => Owner::Wait(user),
            Owner::Wait(user) => self.passed(user),
            Owner::Free => {
                if self.ending == Ending::Folded {
                    state.is_freed = [true; OWNERS];
                } else {
                    state.is_freed[by] = true;
                }
                Owner::Over
            }
            Owner::Over => Owner::Over,
        };
    }

    /// What an owner looks at first.
    fn look(&self, user: usize) -> Owner {
        match self.ending {
            Ending::Awaited => Owner::Look(user),
            Ending::Interrupted | Ending::Folded => Owner::LookPassed(user),
        }
    }

    fn passed(&self, user: usize) -> Owner {
        if user + 1 == USERS || self.has(Mistake::AsksOne) { Owner::Free } else { self.look(user + 1) }
    }

    fn step(&self, state: &mut State, by: usize) {
        let (epoch, generation, is_there) = (state.epoch, state.generation, state.is_there);
        let user = &mut state.users[by];
        match user.steps.pop() {
            Some(Step::ReadEpoch) => {
                user.epoch = epoch;
                if user.epoch == user.own_passed {
                    user.steps.clear(); // there is nothing to do
                }
            }
            Some(Step::ReadGeneration) => user.newest = generation,
            Some(Step::Flush) if user.held < user.newest => {
                user.held = user.newest;
                user.is_cached = is_there;
            }
            Some(Step::SayPassed) => {
                user.own_passed = user.epoch;
                user.buffer.push(Store::Passed(user.epoch));
            }
            Some(Step::Say(presence)) => {
                user.own_presence = presence;
                user.buffer.push(Store::Presence(presence));
            }
            Some(Step::SayAnswered(asked)) => {
                for owner in (0..OWNERS).filter(|&owner| asked[owner]) {
                    user.is_asked[owner] = false;
                }
            }
            Some(Step::Flush | Step::Fence) | None => {}
        }
    }

    fn pass(&self, user: &mut User) {
        user.passes += 1;
        let mut steps = vec![Step::ReadEpoch, Step::Fence];
        if user.own_presence == Presence::Running && !self.has(Mistake::PassesWithoutFlush) {
            steps.extend([Step::ReadGeneration, Step::Flush]);
        }
        let said = if self.has(Mistake::PassesEarly) { 2 } else { steps.len() };
        steps.insert(said, Step::SayPassed);
        if self.has(Mistake::GenerationFirst) && steps.len() == 5 {
            steps.swap(0, 2);
        }
        user.steps = steps.into_iter().rev().collect();
    }

    /// A CPU that idles answers, and flushes nothing: it compares generations when it comes back.
    fn answer(&self, user: &mut User) {
        let mut steps = vec![Step::SayAnswered(user.is_asked)];
        if user.own_presence == Presence::Running {
            steps.extend([Step::Flush, Step::ReadGeneration]);
        }
        if self.has(Mistake::AnswersEarly) {
            steps.rotate_left(1);
        }
        user.steps = steps;
    }

    fn turn(&self, user: &mut User) {
        user.steps = if user.own_presence == Presence::Running {
            user.idles += 1;
            vec![Step::Say(Presence::Lazy)]
        } else {
            let fence = (!self.has(Mistake::ReturnUnfenced)).then_some(Step::Fence);
            let look = [Step::ReadGeneration, Step::Flush, Step::Say(Presence::Running)];
            let steps: Vec<_> = [Step::Say(Presence::Switching)].into_iter().chain(fence).chain(look).collect();
            steps.into_iter().rev().collect()
        };
    }
}

impl Model for Retiring {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let user = User {
            presence: Presence::Running,
            passed: 0,
            own_presence: Presence::Running,
            own_passed: 0,
            buffer: Vec::new(),
            steps: Vec::new(),
            epoch: 0,
            newest: 1,
            held: 1,
            is_cached: [true; OWNERS],
            passes: 0,
            idles: 0,
            is_asked: [false; OWNERS],
        };
        vec![State {
            epoch: 1,
            generation: 1,
            is_there: [true; OWNERS],
            is_freed: [false; OWNERS],
            owners: [Owner::Change; OWNERS],
            is_buffered: [false; OWNERS],
            after: [0; OWNERS],
            users: [user.clone(), user],
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for by in 0..OWNERS {
            // Locked operations, and what comes after one, find an empty buffer.
            let waits = state.is_buffered[by] && matches!(state.owners[by], Owner::Advance | Owner::EndEpoch);
            let is_unanswered = matches!(state.owners[by], Owner::Wait(user) if state.users[user].is_asked[by]);
            let is_alone = state.owners[by] == Owner::Fold && state.owners[1 - by] != Owner::Over;
            if state.owners[by] != Owner::Over && !waits && !is_unanswered && !is_alone {
                actions.push(Action::Owner(by));
            }
            if state.is_buffered[by] {
                actions.push(Action::DrainOwner(by));
            }
        }
        for (by, user) in state.users.iter().enumerate() {
            match user.steps.last() {
                Some(Step::Fence | Step::Flush | Step::SayAnswered(_)) if !user.buffer.is_empty() => {}
                Some(_) => actions.push(Action::Step(by)),
                None => {
                    if user.passes < PASSES && (by == IDLER || self.ending != Ending::Interrupted) {
                        actions.push(Action::Pass(by));
                    }
                    if by == IDLER && (user.own_presence == Presence::Lazy || user.idles < IDLES) {
                        actions.push(Action::Turn(by));
                    }
                    if user.is_asked.contains(&true) {
                        actions.push(Action::Answer(by));
                    }
                }
            }
            if !user.buffer.is_empty() {
                actions.push(Action::Drain(by));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Owner(by) => self.own(&mut state, by),
            Action::DrainOwner(by) => (state.is_buffered[by], state.is_there[by]) = (false, false),
            Action::Step(by) => self.step(&mut state, by),
            Action::Drain(by) => match state.users[by].buffer.remove(0) {
                Store::Presence(presence) => state.users[by].presence = presence,
                Store::Passed(epoch) => state.users[by].passed = epoch,
            },
            Action::Pass(by) => self.pass(&mut state.users[by]),
            Action::Turn(by) => self.turn(&mut state.users[by]),
            Action::Answer(by) => self.answer(&mut state.users[by]),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(USE, |_, state: &State| state.users.iter().all(|user| uses_nothing_freed(state, user))),
            Property::sometimes("both are freed", |_, state: &State| state.is_freed == [true; OWNERS]),
            Property::sometimes("both are freed, and a CPU has passed for one of them", |_, state: &State| {
                state.is_freed == [true; OWNERS] && state.users.iter().any(|user| user.passed > state.after[0])
            }),
            Property::sometimes("both are freed, and all have passed", |model: &Self, state: &State| {
                let have_passed = state.users.iter().all(|user| user.passed > state.after[FOLDER]);
                model.ending == Ending::Interrupted || state.is_freed == [true; OWNERS] && have_passed
            }),
            Property::sometimes("one is freed while a CPU idles", |_, state: &State| {
                state.is_freed.contains(&true) && state.users.iter().any(|user| user.presence == Presence::Lazy)
            }),
        ]
    }
}

const USE: &str = "INV-6 a CPU that says that it runs reaches nothing that was freed";

/// A handler may come between any two steps, and believes what the CPU says of itself (C-54).
fn uses_nothing_freed(state: &State, user: &User) -> bool {
    user.own_presence != Presence::Running || (0..OWNERS).all(|n| !state.is_freed[n] || !user.is_cached[n])
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
pub fn explore(ending: Ending, mistake: Option<Mistake>) -> Found {
    let finish = if mistake.is_some() { HasDiscoveries::AnyFailures } else { HasDiscoveries::All };
    let model = Retiring { ending, mistake };
    let checker = model.checker().finish_when(finish).spawn_bfs().join();
    let is_broken = |property: &Property<Retiring>| match property.expectation {
        // An exploration that ends with its mistake has not seen all that can be.
        Expectation::Sometimes => mistake.is_none() && checker.discovery(property.name).is_none(),
        _ => checker.discovery(property.name).is_some(),
    };
    let broken = model.properties().iter().filter(|one| is_broken(one)).map(|one| one.name).collect();
    Found { unique_states: checker.unique_state_count(), broken }
}

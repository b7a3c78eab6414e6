//! One run: a program on a machine under a policy, as a chooser decides.

use std::cell::{OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, CpuState, GracePeriods, Passed, Policy, Sharers, Tlb, Unaccessed};
use tlbkit_pmap::KernelMap;

use crate::finding::{Finding, Oracle};
use crate::machine::action::Action;
use crate::machine::bus::Bus;
use crate::machine::core::Progress;
use crate::machine::fiber::Fiber;
use crate::machine::memory::Use;
use crate::machine::observation::Observation;
use crate::machine::world::World;
use crate::machine::{Machine, MachineConfig, observer};
use crate::oracle::Oracles;
use crate::program::kernel::{End, Kernel};
use crate::program::{Program, execute};
use crate::quiet::quietly;
use crate::schedule::Chooser;
use crate::timeline::{Line, Log};

/// What is run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The machine; its number of CPUs is the program's.
    pub config: MachineConfig,
    /// The kernel's choices.
    pub policy: Policy,
    /// What the CPUs do.
    pub program: Program,
    /// The one property that is looked at, besides those that end a run by themselves; all if none.
    pub only: Option<Oracle>,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What must never be, and was.
    pub finding: Option<Finding>,
    /// Steps taken.
    pub steps: u64,
    /// What was chosen wherever there was a choice.
    pub choices: Vec<u8>,
    /// What happened, if it was to be kept.
    pub lines: Vec<Line>,
}

/// Runs `scenario` as `chooser` decides.
pub(crate) fn run(scenario: &Scenario, chooser: Box<dyn Chooser>, log: Log) -> Outcome {
    crate::quiet::silence_panics();
    let cpus = scenario.program.cpus.len();
    let config = MachineConfig { cpus, ..scenario.config };
    let monitor = Box::new(Oracles::new(scenario.only));
    let machine = RefCell::new(Machine::new(&config, scenario.policy.isolation, monitor, chooser, log));
    let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let states: Vec<CpuState> = (0..cpus).map(|_| CpuState::new()).collect();
    let (matrix, windows) = (words(Tlb::matrix_words(cpus)), words(1));
    let spaces: Vec<_> = (0..scenario.program.spaces()).map(|_| OnceCell::new()).collect();
    let sets = words(spaces.len() * AddressSpace::set_words(cpus));
    let frames = if scenario.program.has_directories() { machine.borrow().memory.frames() } else { 0 };
    let sharers: Vec<_> = (0..frames).map(|_| Sharers::new()).collect();
    let bus = Bus { machine: &machine, sharers: &sharers };
    let kernel_map = KernelMap::new(&bus, &windows).expect("frames for the kernel's tables");
    let policy = scenario.program.adapt(scenario.policy);
    machine.borrow_mut().marks_first = policy.unaccessed == Unaccessed::Spared;
    let tlb = Tlb::new(&states, &matrix, kernel_map.root(), policy);
    name_words(&mut machine.borrow_mut(), &states, &matrix);
    let of_kernel = machine.borrow().memory.in_use().collect::<Vec<_>>();
    let passed: Vec<_> = (0..cpus).map(|_| Passed::new()).collect();
    let periods = GracePeriods::new(&passed);
    let kernel = Kernel::new(scenario.program.clone());
    let world = World::new(bus, &tlb, &periods, &kernel_map, &spaces, &sets, kernel);
    observer::with_world_set(&world, || {
        execute::set_up(&world);
        run_fibers(&world, execute::cpu_body);
        look_for_leaks(&world);
        look_for_lost_frames(&world, &of_kernel);
        abandon(&world);
    });
    drop(world);
    let machine = machine.into_inner();
    Outcome { finding: machine.finding, steps: machine.step, choices: machine.choices, lines: machine.log.into_lines() }
}

/// Runs the bodies of all CPUs, a fiber each, until all have ended or something was found.
fn run_fibers(world: &World<'_>, body: fn(&World<'_>, usize)) {
    let machine = world.machine;
    let cpus = machine.borrow().cpus.len();
    let mut fibers: Vec<_> = (0..cpus)
        .map(|cpu| Fiber::new(move || observer::with_world(|world| body(world, cpu)).unwrap_or_default()))
        .collect();
    machine.borrow_mut().is_live = true;
    loop {
        let Some(action) = next(&mut machine.borrow_mut()) else { break };
        machine.borrow_mut().current = action.cpu();
        let resumed = quietly(|| catch_unwind(AssertUnwindSafe(|| fibers[action.cpu()].resume())));
        if let Err(panic) = resumed {
            machine.borrow_mut().report(&Observation::Panicked(&*panic));
        }
    }
    machine.borrow_mut().is_live = false;
    world.is_abandoned.set(true);
    fibers.iter_mut().for_each(Fiber::retire);
}

/// What was stored and reached nobody must not be written later.
fn abandon(world: &World<'_>) {
    world.machine.borrow_mut().cpus.iter_mut().for_each(|core| core.buffer.abandon());
}

/// If all programs are over: which space has ended, and is not known to be free?
fn look_for_leaks(world: &World<'_>) {
    let mut machine = world.machine.borrow_mut();
    if !is_whole(&machine) || world.kernel.may_leak() {
        return;
    }
    for space in world.kernel.ended(End::Awaited) {
        let root = world.spaces[space].get().expect("a space that has ended").space().root().0;
        machine.report(&Observation::SpaceNotFreed { space, root });
    }
}

/// If all programs are over: everything is given back, and no frame may be left but those that were there before the
/// first space.
fn look_for_lost_frames(world: &World<'_>, before: &[(u64, Use)]) {
    if !is_whole(&world.machine.borrow()) || world.kernel.may_leak_frames() {
        return;
    }
    let given_back = quietly(|| catch_unwind(AssertUnwindSafe(|| world.wind_up())));
    world.machine.borrow_mut().report(&match &given_back {
        Err(panic) => Observation::Panicked(&**panic),
        Ok(()) => Observation::AllGivenBack { before },
    });
}

/// True if all programs came to their end, and nothing was found.
fn is_whole(machine: &Machine) -> bool {
    machine.finding.is_none() && machine.cpus.iter().all(|core| core.progress == Progress::Ended)
}

/// What a CPU does next: what was granted already, or what is decided now.
fn next(machine: &mut Machine) -> Option<Action> {
    if machine.is_over() {
        return None;
    }
    machine.granted().or_else(|| machine.decide())
}

/// Tells the log what the protocol's words are called.
fn name_words(machine: &mut Machine, states: &[CpuState], matrix: &[AtomicU64]) {
    let cpus = states.len();
    for (cpu, state) in states.iter().enumerate() {
        machine.log.name_words(state, &format!("the state of CPU {cpu}"));
    }
    // The inboxes come first, and may be longer than the other rows.
    let row_words = AddressSpace::set_words(cpus);
    let (inboxes, rows) = matrix.split_at(matrix.len() - (cpus + 2) * row_words);
    for (cpu, inbox) in inboxes.chunks(inboxes.len() / cpus).enumerate() {
        inbox.iter().for_each(|word| machine.log.name_words(word, &format!("the inbox of CPU {cpu}")));
    }
    for (row, words) in rows.chunks(row_words).enumerate() {
        let name = match row.checked_sub(cpus) {
            None => format!("the outbox of CPU {row}"),
            Some(0) => "the online CPUs".to_owned(),
            Some(_) => "the kernel's set".to_owned(),
        };
        words.iter().for_each(|word| machine.log.name_words(word, &name));
    }
}

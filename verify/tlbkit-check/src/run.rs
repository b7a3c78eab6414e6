//! One run: a program on a machine under a policy, as a chooser decides.

use std::cell::RefCell;

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, CpuState, Policy, Tlb};
use tlbkit_pmap::KernelMap;

use crate::machine::bus::Bus;
use crate::machine::world::{SPACES, World};
use crate::machine::{Config, Machine, door};
use crate::oracle::Finding;
use crate::program::Program;
use crate::program::execute::{self, Kernel};
use crate::schedule::Chooser;
use crate::timeline::{Line, Log};

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The machine; its number of CPUs is the program's.
    pub config: Config,
    /// The kernel's choices.
    pub policy: Policy,
    /// What the CPUs do.
    pub program: Program,
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

/// Runs `setup` as `chooser` decides.
pub(crate) fn run(setup: &Setup, chooser: Box<dyn Chooser>, log: Log) -> Outcome {
    crate::quiet::silence_panics();
    let cpus = setup.program.cpus.len();
    let config = Config { cpus, ..setup.config };
    let is_isolated = setup.policy.isolation == tlbkit::Isolation::On;
    let machine = RefCell::new(Machine::new(&config, is_isolated, chooser, log));
    let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let states: Vec<CpuState> = (0..cpus).map(|_| CpuState::new()).collect();
    let (matrix, windows) = (words(Tlb::matrix_words(cpus)), words(1));
    let sets = words(SPACES * AddressSpace::set_words(cpus));
    let bus = Bus { machine: &machine };
    let kernel_map = KernelMap::new(&bus, &windows).expect("frames for the kernel's tables");
    let tlb = Tlb::new(&states, &matrix, kernel_map.root(), setup.policy);
    name_words(&mut machine.borrow_mut(), &states, &matrix);
    let world = World::new(&machine, &tlb, &kernel_map, &sets, Kernel::new(setup.program.clone()));
    door::with_world_set(&world, || {
        execute::set_up(&world);
        world.run(execute::cpu_body);
    });
    drop(world);
    let machine = machine.into_inner();
    Outcome { finding: machine.finding, steps: machine.step, choices: machine.choices, lines: machine.log.into_lines() }
}

/// Tells the log what the protocol's words are called.
fn name_words(machine: &mut Machine, states: &[CpuState], matrix: &[AtomicU64]) {
    let cpus = states.len();
    for (cpu, state) in states.iter().enumerate() {
        machine.name_words(state, &format!("the state of CPU {cpu}"));
    }
    // The inboxes come first, and may be longer than the other rows.
    let row_words = AddressSpace::set_words(cpus);
    let (inboxes, rows) = matrix.split_at(matrix.len() - (cpus + 2) * row_words);
    for (cpu, inbox) in inboxes.chunks(inboxes.len() / cpus).enumerate() {
        inbox.iter().for_each(|word| machine.name_words(word, &format!("the inbox of CPU {cpu}")));
    }
    for (row, words) in rows.chunks(row_words).enumerate() {
        let name = match row.checked_sub(cpus) {
            None => format!("the outbox of CPU {row}"),
            Some(0) => "the online CPUs".to_owned(),
            Some(_) => "the kernel's set".to_owned(),
        };
        words.iter().for_each(|word| machine.name_words(word, &name));
    }
}

//! Every execution of one program on each CPU, up to loom's bound.

use std::rc::Rc;

use loom::thread;

use crate::cpu::Cpu;
use crate::machine::{EARLY, Machine, POLICY, Setup};

/// Before the programs begin each CPU runs a task of the space in table 1.
pub(crate) fn all_run_one_space<const N: usize>(cpus: &[Cpu; N]) {
    cpus.iter().for_each(|cpu| cpu.switch(1));
}

/// Explores the executions of `programs`, the nth on CPU n, all at once, after `prepare` has run alone.
pub(crate) fn check<const N: usize>(setup: Setup, prepare: fn(&[Cpu; N]), programs: [fn(&Cpu); N]) {
    check_end(setup, prepare, programs, |_| ());
}

/// The same where a responder acknowledges after its flush, and where it does before.
pub(crate) fn check_both<const N: usize>(setup: Setup, prepare: fn(&[Cpu; N]), programs: [fn(&Cpu); N]) {
    [POLICY, EARLY].iter().for_each(|&policy| check(Setup { policy, ..setup }, prepare, programs));
}

/// As [`check`], and what is true at the end of each.
pub(crate) fn check_end<const N: usize>(
    setup: Setup,
    prepare: fn(&[Cpu; N]),
    programs: [fn(&Cpu); N],
    end: fn(&Machine),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(setup.preemptions));
    model.max_branches = 20_000;
    model.check(move || end(&run(setup, prepare, programs)));
}

fn run<const N: usize>(setup: Setup, prepare: fn(&[Cpu; N]), programs: [fn(&Cpu); N]) -> Rc<Machine> {
    let machine = Rc::new(Machine::new(setup, N));
    let cpus: [Cpu; N] = std::array::from_fn(|n| Cpu::new(Rc::clone(&machine), n));
    cpus.iter().take(setup.up).for_each(Cpu::bring_up);
    prepare(&cpus);
    let mut jobs = cpus.into_iter().zip(programs);
    let first = jobs.next();
    let work = |(cpu, program): (Cpu, fn(&Cpu))| {
        program(&cpu);
        cpu.rest();
    };
    let others: Vec<_> = jobs.map(|job| thread::spawn(move || work(job))).collect();
    first.into_iter().for_each(work);
    for other in others {
        assert!(other.join().is_ok(), "a CPU's program panicked");
    }
    machine
}

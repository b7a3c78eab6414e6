//! Every execution of one program on each of two CPUs, up to loom's bound.

use loom::thread;

use crate::cpu::Cpu;
use crate::machine::{Machine, POLICY};
use tlbkit::Policy;

/// Switches, in one execution, away from a CPU that could go on: what bounds the exploration.
const PREEMPTIONS: usize = 2;

/// Explores the executions of both programs at once, after `prepare` has run alone on CPU 0 and 1; `end` comes when
/// both are over. `prepare` returns the address that the others are told.
pub(crate) fn check(prepare: fn(&[Cpu; 2]) -> u64, programs: [fn(&Cpu, u64); 2], end: fn(&Cpu, u64)) {
    check_under(POLICY, prepare, programs, end);
}

/// The same under another policy.
pub(crate) fn check_under(
    policy: Policy,
    prepare: fn(&[Cpu; 2]) -> u64,
    programs: [fn(&Cpu, u64); 2],
    end: fn(&Cpu, u64),
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(PREEMPTIONS));
    model.max_branches = 20_000;
    model.check(move || {
        let machine = Machine::new(policy);
        let cpus = [Cpu::new(machine, 0), Cpu::new(machine, 1)];
        cpus.iter().for_each(Cpu::bring_up);
        let va = prepare(&cpus);
        let [first, second] = cpus;
        let work = move |cpu: Cpu, program: fn(&Cpu, u64)| {
            program(&cpu, va);
            cpu.rest();
        };
        let other = thread::spawn(move || work(second, programs[1]));
        work(first, programs[0]);
        assert!(other.join().is_ok(), "a CPU's program panicked");
        end(&Cpu::new(machine, 0), va);
    });
}

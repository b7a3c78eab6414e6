//! How a run is carried out: the machine and its kernel are built, they run to the end, and they are taken down.

use std::sync::atomic::Ordering;

use tlbkit::sync::{Observer as AtomicsObserver, set_observer};
use tlbkit::{Accounting, CpuState, CpuStats, GracePeriods, IrqsOff, Passed, Tlb};
use tlbkit_machine::MOST_CPUS;
use tlbkit_pmap::KernelMap;

use super::Run;
use super::audit::audit;
use super::outcome::RunOutcome;
use crate::error::RunError;
use crate::keep::{Keep, KeptWords};
use crate::kernel::{Kernel, Phys};
use crate::multiprocessor::{Fiber, MachineSettings, Multiprocessor, answer_flush, observe};

/// Words of the map of the kernel's windows: one bit a window.
const WINDOW_WORDS: usize = 128;

/// After how many turns a run notes how far it has come: several times in a second of the host.
const TURNS_A_NOTE: u64 = 1 << 12;

/// Objects of one run. Fields drop in order: the kernel before the machine, and both before what they borrow.
pub(crate) struct Stage {
    /// What each CPU does while it runs no task.
    pub(crate) idle_fibers: Vec<Option<Fiber>>,
    kernel: Keep<Kernel>,
    _machine: Keep<Multiprocessor>,
    _map: Keep<KernelMap<'static>>,
    _states: Keep<[CpuState]>,
    stats: Keep<[CpuStats]>,
    _passed: Keep<[Passed]>,
    _words: [KeptWords; 2],
}

impl Run<'_> {
    /// Carries out the run.
    ///
    /// # Errors
    /// If a program found a wrong value, the kernel gave up, or nothing can happen any more.
    pub fn execute(&self) -> Result<RunOutcome, RunError> {
        if !(1..=MOST_CPUS).contains(&self.cpus) {
            return Err(RunError::Cpus(self.cpus));
        }
        with_stage(self, |stage, kernel| stage.act(kernel, self))
    }
}

/// Puts the stage of a run up, lets `body` use it, and takes it down.
fn with_stage<R>(
    run: &Run<'_>,
    body: impl FnOnce(&mut Stage, &'static Kernel) -> Result<R, RunError>,
) -> Result<R, RunError> {
    let mut stage = Stage::new(run)?;
    let kernel = stage.kernel.get();
    let before = set_observer(AtomicsObserver { before: observe, ..AtomicsObserver::NOBODY });
    Multiprocessor::install(Some(kernel.machine()));
    let result = body(&mut stage, kernel);
    Multiprocessor::install(None);
    set_observer(before);
    result
}

/// For tests: a stage of one socket and no workload, on which nobody acts yet.
#[cfg(test)]
pub(crate) fn rehearse(cpus: usize, body: impl FnOnce(&mut Stage, &'static Kernel)) {
    rehearse_with(cpus, |run| run, body);
}

/// For tests: such a stage for a run that `change` has changed.
#[cfg(test)]
pub(crate) fn rehearse_with(
    cpus: usize,
    change: impl FnOnce(Run<'_>) -> Run<'_>,
    body: impl FnOnce(&mut Stage, &'static Kernel),
) {
    let machine = tlbkit_machine::Machine::builtin("ivybridge-8thread").expect("a built-in machine");
    let policy = tlbkit::Policy::preset("linux-6.18").expect("a preset");
    let workload = tlbkit_workloads::by_name("pingpong").expect("a workload");
    let run = change(Run { cpus, ..Run::new(&machine, policy, workload) });
    let done = with_stage(&run, |stage, kernel| {
        body(stage, kernel);
        kernel.machine().stop();
        Ok(())
    });
    done.expect("a stage");
}

impl Stage {
    fn new(run: &Run<'_>) -> Result<Self, RunError> {
        let states = Keep::new((0..run.cpus).map(|_| CpuState::new()).collect::<Box<[_]>>());
        let words = [Tlb::matrix_words(run.cpus), WINDOW_WORDS].map(KeptWords::zeroed);
        let [matrix, windows] = [words[0].get(), words[1].get()];
        let phys = Phys::new(run.pressure);
        let map = KernelMap::new(&phys, windows);
        let map = Keep::new(Box::new(map.map_err(|error| RunError::Kernel(error.to_string()))?));
        let tlb = Tlb::new(states.get(), matrix, map.get().root(), run.policy);
        // Big, so only for runs that ask.
        let counted = if run.policy.history.accounting == Accounting::On { run.cpus } else { 0 };
        let stats = Keep::new((0..counted).map(|_| CpuStats::new()).collect::<Box<[_]>>());
        let tlb = if counted > 0 { tlb.counting_into(stats.get()) } else { tlb };
        let passed = Keep::new((0..run.cpus).map(|_| Passed::new()).collect::<Box<[_]>>());
        let periods = GracePeriods::new(passed.get());
        let settings = MachineSettings {
            model: run.machine,
            cpus: run.cpus,
            code: run.kernel.code,
            noise: run.noise,
            seed: run.seed,
            defect: run.defect,
            kernel_flushes: run.kernel.kernel_flushes,
            paravirtual_flush: run.kernel.paravirtual_flush,
            guests: run.guests,
            sample_cycles: run.sample_cycles,
        };
        let machine = Keep::new(Box::new(Multiprocessor::new(&settings, tlb, periods, answer_flush)));
        machine.get().mark_cpu_set(machine.get().tlb().kernel_set().words());
        let kernel = Kernel::new(machine.get(), phys, map.get(), run.kernel, run.seed, run.limit_cycles);
        let kernel = Keep::new(Box::new(kernel));
        let idle_fibers = Vec::new();
        Ok(Self {
            idle_fibers,
            kernel,
            _machine: machine,
            _map: map,
            _states: states,
            stats,
            _passed: passed,
            _words: words,
        })
    }

    fn act(&mut self, kernel: &'static Kernel, run: &Run<'_>) -> Result<RunOutcome, RunError> {
        self.boot(kernel)?;
        kernel.start_first(run.workload.first_task());
        kernel.machine().schedule(0, 0);
        let mut turns = 0_u64;
        self.turn(kernel, || {
            turns += 1;
            if turns.is_multiple_of(TURNS_A_NOTE)
                && let Some(clock) = run.clock
            {
                // Relaxed: the number is only shown, and orders nothing.
                clock.store(kernel.machine().turn_began_at(), Ordering::Relaxed);
            }
            kernel.is_done()
        });
        kernel.machine().stop();
        kernel.drop_fibers();
        self.idle_fibers.clear();
        match kernel.failure() {
            Some(error) => Err(error.clone()),
            None if kernel.live_tasks() > 0 => Err(stuck(kernel)),
            None => {
                kernel.idle_to_the_end();
                audit(kernel)?;
                Ok(RunOutcome::of(kernel, self.stats.get(), run))
            }
        }
    }

    /// Before the first cycle: every CPU is up and idle.
    pub(crate) fn boot(&mut self, kernel: &'static Kernel) -> Result<(), RunError> {
        for cpu in 0..kernel.machine().cpus() {
            kernel.machine().with_cpu(cpu, |handle| handle.bring_up(&IrqsOff::assume()));
            kernel.set_idle(cpu);
            let fiber = Fiber::new(move || kernel.idle_main(cpu));
            self.idle_fibers.push(Some(fiber.map_err(|error| RunError::Stack(error.to_string()))?));
        }
        Ok(())
    }

    /// The main loop: the CPU that is furthest behind acts, until `is_done` or until no CPU will ever act again.
    pub(crate) fn turn(&mut self, kernel: &'static Kernel, mut is_done: impl FnMut() -> bool) {
        while !is_done() {
            let Some(turn) = kernel.machine().next() else { return };
            if let Some(after) = turn.after {
                kernel.prefetch(after);
            }
            kernel.resume(turn.cpu, || {
                if let Some(fiber) = &mut self.idle_fibers[turn.cpu] {
                    fiber.resume();
                }
            });
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.idle_fibers.clear();
        self.kernel.get().drop_fibers();
    }
}

fn stuck(kernel: &Kernel) -> RunError {
    const SHOWN: usize = 4;
    let shown = kernel.busy_cpus().take(SHOWN);
    let cpus: Vec<_> = shown.map(|cpu| format!("cpu{cpu} {}", kernel.machine().processor(cpu))).collect();
    RunError::Stuck { tasks: kernel.live_tasks(), cpus: cpus.join("; ") }
}

//! Putting a world up, letting it run, and taking it down.

use tlbkit::sync::{AtomicU64, Observer, set_observer};
use tlbkit::{Accounting, AddressSpace, CpuState, CpuStats, IrqsOff, Tlb};
use tlbkit_pmap::KernelMap;

use super::fault_injection::Sabotage;
use super::insight::Insight;
use super::keep::Keep;
use super::outcome::{Outcome, reasons};
use super::{Run, RunError};
use crate::engine::core::{Irqs, NEVER};
use crate::engine::fiber::{Fiber, Progress};
use crate::engine::observe::observe;
use crate::engine::world::{Parts, World};
use crate::kernel::phys::Phys;
use crate::kernel::{Kernel, Running};

/// Words of one cache line.
const LINE_WORDS: usize = 8;
/// Words of the map of the kernel's windows: one bit a window.
const WINDOW_WORDS: usize = 128;

/// Objects of one run. Fields drop in order: the world before what it borrows.
pub(crate) struct Stage {
    /// What each CPU does while it runs no task.
    pub(crate) idle_fibers: Vec<Option<Fiber>>,
    world: Keep<World>,
    _map: Keep<KernelMap<'static>>,
    _states: Keep<[CpuState]>,
    stats: Keep<[CpuStats]>,
    _words: [Keep<[AtomicU64]>; 2],
}

/// Runs a whole run.
pub(super) fn play(run: &Run<'_>) -> Result<Outcome, RunError> {
    with_stage(run, |stage, world| stage.act(world, run))
}

/// Puts the stage of a run up, lets `body` use it, and takes it down.
fn with_stage<R>(
    run: &Run<'_>,
    body: impl FnOnce(&mut Stage, &'static World) -> Result<R, RunError>,
) -> Result<R, RunError> {
    let mut stage = Stage::new(run)?;
    let world = stage.world.get();
    let observer = set_observer(Observer { before: observe, ..Observer::NOBODY });
    World::install(Some(world));
    let result = body(&mut stage, world);
    World::install(None);
    set_observer(observer);
    result
}

/// For tests: a stage of one socket and no workload, on which nobody acts yet. Its turns go on until nobody will act.
#[cfg(test)]
pub(crate) fn rehearse(cpus: usize, body: impl FnOnce(&mut Stage, &'static World)) {
    let machine = crate::machine::Machine::builtin("ivybridge-8thread").expect("a built-in machine");
    let policy = tlbkit::Policy::preset("linux-6.18").expect("a preset");
    let workload = tlbkit_workloads::by_name("pingpong").expect("a workload");
    let run = Run { cpus, ..Run::new(&machine, policy, workload) };
    let done = with_stage(&run, |stage, world| {
        world.kernel.live_tasks.set(1);
        body(stage, world);
        world.stop();
        Ok(())
    });
    done.expect("a stage");
}

impl Stage {
    fn new(run: &Run<'_>) -> Result<Self, RunError> {
        let states = Keep::new((0..run.cpus).map(|_| CpuState::new()).collect::<Box<[_]>>());
        let words = [Tlb::matrix_words(run.cpus), WINDOW_WORDS]
            .map(|words| Keep::new(zeros(words.next_multiple_of(LINE_WORDS) + LINE_WORDS)));
        let phys = Phys::new(run.pressure);
        let map = KernelMap::new(&phys, &aligned(&words[1])[..WINDOW_WORDS]);
        let map = Keep::new(Box::new(map.map_err(|error| RunError::Kernel(error.to_string()))?));
        let tlb = Tlb::new(states.get(), aligned(&words[0]), map.get().root(), run.policy);
        // Big, so only for runs that ask.
        let counted = if run.policy.history.accounting == Accounting::On { run.cpus } else { 0 };
        let stats = Keep::new((0..counted).map(|_| CpuStats::new()).collect::<Box<[_]>>());
        let tlb = if counted > 0 { tlb.counting_into(stats.get()) } else { tlb };
        let parts = Parts {
            tlb,
            phys,
            map: map.get(),
            kernel: Kernel::new(run.cpus, run.seed, run.limit_cycles, run.sample_cycles),
            insight: Insight::new(run.cpus),
            sabotage: Sabotage::new(run.fault),
        };
        let world = Keep::new(Box::new(World::new(run.machine, run.cpus, parts)));
        let (start, end) = kernel_set(&words[0], run.cpus);
        world.get().lines.borrow_mut().mark_set(start, end);
        Ok(Self { idle_fibers: Vec::new(), world, _map: map, _states: states, stats, _words: words })
    }

    fn act(&mut self, world: &'static World, run: &Run<'_>) -> Result<Outcome, RunError> {
        self.boot(world)?;
        let process = world.new_process();
        let first = world.new_task(run.workload.first_task(), process);
        world.make_runnable(first);
        world.schedule(0, 0);
        self.turn(world);
        world.stop();
        world.drop_fibers();
        self.idle_fibers.clear();
        match world.failure.get() {
            Some(error) => Err(error.clone()),
            None if world.kernel.live_tasks.get() > 0 => Err(stuck(world)),
            None => {
                world.idle_to_the_end();
                let mut outcome = Outcome::of(world, run.machine.system.frequency_mhz.value);
                outcome.reasons = reasons(self.stats.get());
                Ok(outcome)
            }
        }
    }

    /// Before the first cycle: every CPU is up and idle.
    pub(crate) fn boot(&mut self, world: &'static World) -> Result<(), RunError> {
        for cpu in 0..world.cores.len() {
            world.with_cpu(cpu, |handle| handle.bring_up(&IrqsOff::assume()));
            world.kernel.idle.insert(cpu);
            world.cores[cpu].irqs.set(Irqs::On);
            let fiber = Fiber::new(move || world.idle_main(cpu));
            self.idle_fibers.push(Some(fiber.map_err(|error| RunError::Stack(error.to_string()))?));
        }
        Ok(())
    }

    /// The main loop: whoever is furthest behind acts.
    pub(crate) fn turn(&mut self, world: &'static World) {
        while !world.is_done() {
            let Some(cpu) = world.next() else { return };
            match world.kernel.runs[cpu].running.get() {
                Running::Idle => {
                    if let Some(fiber) = &mut self.idle_fibers[cpu] {
                        fiber.resume();
                    }
                }
                Running::Task(index) => {
                    let mut fiber = world.kernel.task(index).fiber.borrow_mut();
                    let resumed = fiber.as_mut().map(Fiber::resume).expect("a queued task has a coroutine");
                    if resumed == Progress::Ended
                        && let Some(ended) = fiber.take()
                    {
                        ended.recycle();
                    }
                }
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.idle_fibers.clear();
        self.world.get().drop_fibers();
    }
}

fn zeros(words: usize) -> Box<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// The words from the first line boundary on: which words share lines must not depend on the host's allocator.
fn aligned(words: &Keep<[AtomicU64]>) -> &'static [AtomicU64] {
    let all = words.get();
    let first = (0..LINE_WORDS).find(|&at| (&raw const all[at]).addr().is_multiple_of(64)).unwrap_or(0);
    &all[first..]
}

/// Where the set of CPUs that run the kernel's own tables lies: the last row of the protocol's words.
fn kernel_set(words: &Keep<[AtomicU64]>, cpus: usize) -> (usize, usize) {
    let bytes = 8 * AddressSpace::set_words(cpus);
    let end = aligned(words).as_ptr().addr() + 8 * Tlb::matrix_words(cpus);
    (end - bytes, end)
}

fn stuck(world: &World) -> RunError {
    const SHOWN: usize = 4;
    let cpus: Vec<_> = (0..world.cores.len())
        .filter(|&cpu| world.kernel.runs[cpu].running.get() != Running::Idle)
        .take(SHOWN)
        .map(|cpu| {
            let core = &world.cores[cpu];
            let (cause, clock, irqs, due) = (core.cause.get(), core.clock.get(), core.irqs.get(), core.flush_due.get());
            let due = if due == NEVER { "none".into() } else { due.to_string() };
            format!("cpu{cpu} {cause:?} at {clock}, interrupts {irqs:?}, next due {due}")
        })
        .collect();
    RunError::Stuck { tasks: world.kernel.live_tasks.get(), cpus: cpus.join("; ") }
}

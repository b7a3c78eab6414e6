//! The system calls of the simulated kernel.

use tlbkit_pmap::{Access as FaultAccess, Fault};
use tlbkit_workloads::os::{Backing, Channel, Os, Part, Protection, TaskId};
use tlbkit_workloads::{Task, calls};

use super::memory::KernelMemory;
use super::process::Process;
use super::sched::Fate;
use super::task::TaskState;
use super::{Clock, TaskIndex};
use crate::engine::ledger::Cause;
use crate::engine::world::World;
use crate::mmu::{Access, Overlap};
use crate::run::RunError;

/// What one task's program sees of the kernel.
struct Calls {
    world: &'static World,
    me: TaskIndex,
    program: Task,
    process: &'static Process,
}

/// Runs a task's program.
pub(crate) fn run(world: &'static World, me: TaskIndex, program: Task) {
    let process = world.kernel.task(me).process;
    program.run(&Calls { world, me, program, process });
}

impl Calls {
    /// Into the kernel, the call, and back.
    fn call<R>(&self, body: impl FnOnce(&'static World) -> R) -> R {
        let world = self.world;
        world.kernel.count(|counters| counters.syscalls += 1);
        world.kernel.note_progress(world.core().clock.get());
        world.enter_kernel();
        world.core().advance(world.costs.syscall);
        let result = body(world);
        world.return_to_user();
        // What the call made others wait for must not be waited for by a loop of calls.
        world.pace(self.me);
        result
    }

    /// An operation on the task's own space, over a range that the clairvoyant is told.
    fn on_range<R>(&self, va: u64, pages: u64, body: impl FnOnce(&'static World, KernelMemory) -> R) -> R {
        self.call(|world| {
            world.insight.begin_range(world, self.process.space().root(), va, pages);
            let result = body(world, KernelMemory(world));
            world.insight.end_operation(world);
            result
        })
    }

    fn expect<T>(&self, result: Result<T, tlbkit_pmap::Error>) -> T {
        result.unwrap_or_else(|error| self.world.fail(RunError::Kernel(error.to_string())))
    }

    fn start(&self, world: &'static World, part: Part, process: &'static Process) -> TaskId {
        let index = world.new_task(self.program.starts(part), process);
        world.make_runnable(index);
        TaskId(index)
    }
}

impl World {
    /// A page fault of the running program.
    pub(crate) fn page_fault(&'static self, me: TaskIndex, va: u64, access: Access) {
        let process = self.kernel.task(me).process;
        self.kernel.count(|counters| counters.faults += 1);
        self.kernel.note_progress(self.core().clock.get());
        self.enter_kernel();
        let cpu = self.cpu();
        let core = &self.cores[cpu];
        core.cause.set(Cause::Fault);
        core.advance(self.costs.page_fault);
        self.insight.begin_range(self, process.space().root(), va, 1);
        let access = if access == Access::Write { FaultAccess::Write } else { FaultAccess::Read };
        let fault = if self.sabotage.loses_repair() {
            Fault::Spurious
        } else {
            self.with_cpu(cpu, |handle| process.vm.fault(&handle, &KernelMemory(self), va, access))
        };
        self.insight.end_operation(self);
        match fault {
            Fault::Bad => self.fail(RunError::BadAccess { va }),
            Fault::OutOfMemory => self.fail(RunError::Kernel("no frame left".into())),
            _ => {}
        }
        self.return_to_user();
    }
}

impl Os for Calls {
    fn map(&self, pages: u64, backing: Backing, protection: Protection) -> u64 {
        let region = calls::region(pages, backing, protection);
        let mapped = self.call(|world| world.with_cpu(world.cpu(), |cpu| self.process.vm.map_region(&cpu, region)));
        self.expect(mapped)
    }

    fn unmap(&self, va: u64, pages: u64) {
        let done = self.on_range(va, pages, |world, memory| {
            world.with_cpu(world.cpu(), |cpu| self.process.vm.unmap(&cpu, &memory, va, pages))
        });
        self.expect(done);
    }

    fn protect(&self, va: u64, pages: u64, protection: Protection) {
        let done = self.on_range(va, pages, |world, memory| {
            world.with_cpu(world.cpu(), |cpu| self.process.vm.protect(&cpu, &memory, va, pages, protection))
        });
        self.expect(done);
    }

    fn dontneed(&self, va: u64, pages: u64) {
        let done = self.on_range(va, pages, |world, memory| {
            world.with_cpu(world.cpu(), |cpu| self.process.vm.dontneed(&cpu, &memory, va, pages))
        });
        self.expect(done);
    }

    fn read(&self, va: u64) -> u64 {
        let at = self.world.touch(self.me, va, Access::Read, Overlap::Independent);
        self.world.phys.word(at)
    }

    fn write(&self, va: u64, value: u64) {
        let at = self.world.touch(self.me, va, Access::Write, Overlap::Independent);
        self.world.phys.set_word(at, value);
    }

    fn chase(&self, va: u64) -> u64 {
        let at = self.world.touch(self.me, va, Access::Read, Overlap::Dependent);
        self.world.phys.word(at)
    }

    fn fork(&self, part: Part) -> TaskId {
        self.call(|world| {
            let process = world.new_process();
            let memory = KernelMemory(world);
            world.insight.begin_everything(world, self.process.space().root());
            let done =
                world.with_cpu(world.cpu(), |cpu| self.process.vm.fork(&cpu, &memory, &process.vm, calls::CHILD_FILL));
            world.insight.end_operation(world);
            self.expect(done);
            self.start(world, part, process)
        })
    }

    fn thread(&self, part: Part) -> TaskId {
        self.call(|world| self.start(world, part, self.process))
    }

    fn exec(&self) {
        self.call(|world| {
            world.insight.begin_everything(world, self.process.space().root());
            world.with_cpu(world.cpu(), |cpu| self.process.vm.clear(&cpu, &KernelMemory(world)));
            world.insight.end_operation(world);
        });
    }

    fn join(&self, task: TaskId) {
        self.call(|world| {
            let target = world.kernel.task(task.0);
            if target.state.get() != TaskState::Ended {
                target.joiners.borrow_mut().push(self.me);
                world.block(self.me);
            }
        });
    }

    fn pin(&self, cpu: u32) {
        self.call(|world| {
            let cpu = cpu as usize % world.cores.len();
            world.kernel.task(self.me).pinned.set(Some(cpu));
            if world.cpu() != cpu {
                world.switch_away(self.me, Fate::Move);
            }
        });
    }

    fn wait(&self, channel: Channel) {
        self.call(|world| {
            let taken = world.kernel.with_channel(channel.0, |state| {
                let available = state.count > 0;
                if available {
                    state.count -= 1;
                } else {
                    state.waiters.push_back(self.me);
                }
                available
            });
            if !taken {
                world.block(self.me);
            }
        });
    }

    fn post(&self, channel: Channel) {
        self.call(|world| {
            let woken = world.kernel.with_channel(channel.0, |state| {
                let waiter = state.waiters.pop_front();
                state.count += u64::from(waiter.is_none());
                waiter
            });
            if let Some(waiter) = woken {
                world.make_runnable(waiter);
            }
        });
    }

    fn yield_now(&self) {
        self.call(|world| world.switch_away(self.me, Fate::Queue));
    }

    fn compute(&self, cycles: u64) {
        self.world.compute(self.me, cycles);
    }

    fn read_file(&self, file: u32, pages: u64) {
        self.call(|world| world.read_through_window(file, pages));
    }

    fn count(&self, units: u64) {
        let kernel = &self.world.kernel;
        kernel.score.set(kernel.score.get() + units);
        kernel.samples.look(self.world.core().clock.get(), kernel.score.get());
    }

    fn is_over(&self) -> bool {
        let (world, kernel) = (self.world, &self.world.kernel);
        // A program that only asks must not stop the clock.
        world.core().advance(1);
        world.pace(self.me);
        if world.core().clock.get() >= kernel.limit_cycles {
            kernel.clock.set(Clock::Over);
        }
        kernel.clock.get() == Clock::Over
    }

    fn random(&self) -> u64 {
        self.world.kernel.task(self.me).random()
    }

    fn cpus(&self) -> u32 {
        self.world.cores.len() as u32
    }

    fn wrong_value(&self, va: u64, found: u64, expected: u64) {
        let kernel = &self.world.kernel;
        kernel.wrong_values.set(kernel.wrong_values.get() + 1);
        let cpu = self.world.cpu();
        self.world.fail(RunError::WrongValue { va, found, expected, cpu });
    }
}

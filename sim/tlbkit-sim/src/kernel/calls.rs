//! The system calls of the simulated kernel, and the tasks that make them.

use tlbkit::{Cpu, PAGE_BYTES, Unmapping};
use tlbkit_pmap::{Region, USER_END, Withdrawal};
use tlbkit_workloads::Task as Program;
use tlbkit_workloads::calls::{self, TaskRandom};
use tlbkit_workloads::os::{Backing, Channel, FileLimit, Os, Part, Protection, TaskId, WorkTime};

use super::TaskIndex;
use super::held_locks::HeldLocks;
use super::memory::KernelMemory;
use super::sched::Fate;
use super::settings::LockWanted;
use super::spaces::Ends;
use super::state::Kernel;
use super::task::{Affinity, Process, Task};
use crate::error::RunError;
use crate::mmu::{Access, Overlap};
use crate::multiprocessor::{Fiber, Multiprocessor, Port};
use crate::observer::{Intent, KernelEvent};

/// What lies in the kernel's own pages that come and go: a file that no program reads.
const KERNEL_PAGES_FILE: u32 = u32::MAX;

impl Kernel {
    /// Starts the first program, in a separate process.
    pub(crate) fn start_first(&'static self, program: Program) {
        let process = self.new_process();
        self.start(program, process);
    }

    /// Starts `program` in `process`.
    fn start(&'static self, program: Program, process: &'static Process) -> TaskIndex {
        let index = self.tasks.next_index();
        let fiber = match Fiber::new(move || self.task_main(index, program)) {
            Ok(fiber) => fiber,
            Err(error) => self.fail(RunError::Stack(error.to_string())),
        };
        let random = TaskRandom::new(self.seed, u64::from(index));
        self.add_task(Task::new(process, self.machine.running_cpu().unwrap_or(0), random, fiber));
        self.observer().kernel_event(KernelEvent::TaskStart);
        process.threads.set(process.threads.get() + 1);
        self.make_runnable(index);
        index
    }

    /// A task from its first to its last instruction.
    fn task_main(&'static self, me: TaskIndex, program: Program) {
        let task = self.tasks.get(me);
        let machine = self.machine;
        machine.running().advance(machine.noise().start_delay(machine.cpu()));
        machine.enable_interrupts();
        self.return_to_user();
        program.run(&Calls { kernel: self, machine: self.machine, me, program, process: task.process });
        self.enter_kernel();
        self.leave_process(task.process);
        task.has_ended.set(true);
        task.joiners.take().into_iter().for_each(|joiner| self.make_runnable(joiner));
        self.note_task_end();
        // The run ends with its last task: there is nothing to switch to, and what comes after belongs to no account.
        if !self.is_done() {
            self.switch_away(me, Fate::End);
        }
    }
}

/// What one task's program sees of the kernel.
struct Calls {
    kernel: &'static Kernel,
    machine: &'static Multiprocessor,
    me: TaskIndex,
    program: Program,
    process: &'static Process,
}

impl Calls {
    /// Makes one system call: enters the kernel, runs `body`, and returns to the program.
    fn call<R>(&self, body: impl FnOnce(&'static Kernel) -> R) -> R {
        let (kernel, machine) = (self.kernel, self.machine);
        kernel.observer().kernel_event(KernelEvent::Syscall);
        kernel.note_progress();
        kernel.enter_kernel();
        machine.execute(machine.costs().syscall);
        let result = body(kernel);
        kernel.return_to_user();
        // A loop of calls must let the CPUs act that wait for what this call did.
        kernel.pace(self.me);
        result
    }

    /// Makes the call that sets the task's affinity, which moves it to `cpu`.
    fn set_affinity(&self, affinity: fn(usize) -> Affinity, cpu: usize) {
        self.call(|kernel| {
            kernel.tasks.get(self.me).affinity.set(affinity(cpu));
            if self.machine.cpu() != cpu {
                kernel.switch_away(self.me, Fate::Move);
            }
        });
    }

    /// Makes a call that works on a range of the task's own space, under the lock that it wants. The observer is told
    /// of the range.
    fn on_range<R>(
        &self,
        (va, pages): (u64, u64),
        intent: Intent,
        wanted: LockWanted,
        body: impl FnOnce(&Cpu<'_, 'static, Port>, KernelMemory, &HeldLocks) -> R,
    ) -> R {
        self.call_holding(wanted, |kernel, held| {
            if wanted == LockWanted::MmapWrite {
                held.write_vmas_of(va, pages);
            }
            let here = self.machine.cpu();
            kernel.observer().begin_range(here, self.process.space().root(), va, pages, intent);
            let result = self.machine.with_cpu(here, |cpu| body(&cpu, KernelMemory(kernel), held));
            kernel.observer().end_operation(here);
            result
        })
    }

    /// Makes a call that takes pages of a range away, which a sweep of the page tables does.
    fn on_sweep<R>(
        &self,
        range: (u64, u64),
        intent: Intent,
        wanted: LockWanted,
        body: impl FnOnce(&Cpu<'_, 'static, Port>, KernelMemory, &HeldLocks) -> R,
    ) -> R {
        self.on_range(range, intent, wanted, |cpu, memory, held| {
            memory.begin_sweep();
            body(cpu, memory, held)
        })
    }

    /// Makes a call that changes all regions of the space.
    fn call_with_regions<R>(&self, body: impl FnOnce(&'static Kernel) -> R) -> R {
        self.call_holding(LockWanted::MmapWrite, |kernel, held| {
            held.write_vmas(0..u64::MAX);
            body(kernel)
        })
    }

    /// Makes a call that holds a lock of the space's regions from its beginning to its end.
    fn call_holding<R>(&self, wanted: LockWanted, body: impl FnOnce(&'static Kernel, &HeldLocks) -> R) -> R {
        self.call(|kernel| {
            let held = kernel.hold_locks(self.me, wanted);
            let result = body(kernel, &held);
            held.release();
            result
        })
    }

    /// Works on all of the task's space, and tells the observer so.
    fn on_everything<R>(
        &self,
        kernel: &'static Kernel,
        intent: Intent,
        body: impl FnOnce(&Cpu<'_, 'static, Port>, KernelMemory) -> R,
    ) -> R {
        let here = self.machine.cpu();
        kernel.observer().begin_everything(here, self.process.space().root(), intent);
        let result = self.machine.with_cpu(here, |cpu| body(&cpu, KernelMemory(kernel)));
        kernel.observer().end_operation(here);
        result
    }

    /// Unmaps, and waits for the flush if the policy says so.
    fn unmap_by_policy(
        &self,
        cpu: &Cpu<'_, 'static, Port>,
        memory: KernelMemory,
        va: u64,
        pages: u64,
    ) -> Result<(), tlbkit_pmap::Error> {
        let Process { vm, retired, .. } = self.process;
        if cpu.tlb().policy().unmapping == Unmapping::Awaited {
            return vm.unmap(cpu, &memory, va, pages);
        }
        self.kernel.give_back_retired(self.process, Ends::No);
        let retirement = vm.unmap_and_retire(cpu, &memory, self.machine.periods(), va, pages)?;
        if let Some(retirement) = retirement {
            self.kernel.observer().retired(retirement.pages());
            retired.borrow_mut().push_back(retirement);
        }
        Ok(())
    }

    fn expect<T>(&self, result: Result<T, tlbkit_pmap::Error>) -> T {
        result.unwrap_or_else(|error| match error {
            tlbkit_pmap::Error::OutOfMemory => self.kernel.fail_without_frame(),
            _ => self.kernel.fail(RunError::Kernel(error.to_string())),
        })
    }
}

impl Os for Calls {
    fn map_file(&self, file: u32, pages: u64, backing: Backing, protection: Protection) -> u64 {
        let is_apart = self.machine.with_cpu(self.machine.cpu(), |cpu| self.process.vm.has_directories(cpu.hardware()));
        let first = if is_apart { calls::address_apart(self.me) } else { 0 };
        let region = Region { first, file, ..calls::region(pages, backing, protection) };
        self.call_holding(LockWanted::MmapWrite, |_, held| {
            let mapped = self.machine.with_cpu(self.machine.cpu(), |cpu| self.process.vm.map_region(&cpu, region));
            let first = self.expect(mapped);
            self.kernel.observer().mapped(self.process.space().root(), first, pages, self.me);
            // A region that continues another one makes that larger, so its readers are waited for.
            if self.process.vm.region_at(first).is_some_and(|grown| grown.pages > pages) {
                held.write_vmas_of(first, pages);
            }
            if backing == Backing::FilePrivate && self.kernel.reclaimer.is_limited() {
                self.kernel.reclaimer.mapped(self.process, file, first, pages);
            }
            first
        })
    }

    fn unmap(&self, va: u64, pages: u64) {
        self.expect(self.on_sweep((va, pages), Intent::GivesAway, LockWanted::MmapWrite, |cpu, memory, held| {
            held.downgrade();
            self.kernel.reclaimer.unmapped(self.process, Some(va));
            let result = self.unmap_by_policy(cpu, memory, va, pages);
            self.kernel.observer().unmapped(self.process.space().root(), va, pages);
            result
        }));
    }

    fn limit_file_pages(&self, limit: FileLimit) {
        self.call(|kernel| kernel.reclaimer.limit(limit));
        self.machine.begin_reclaim();
    }

    fn protect(&self, va: u64, pages: u64, protection: Protection) {
        let vm = &self.process.vm;
        self.expect(self.on_range((va, pages), Intent::Keeps, LockWanted::MmapWrite, |cpu, memory, _| {
            vm.protect(cpu, &memory, va, pages, protection)
        }));
    }

    fn dontneed(&self, va: u64, pages: u64) {
        let wanted = self.kernel.settings.per_vma_locks.wanted_by_sweep(va, pages);
        self.expect(self.on_sweep((va, pages), Intent::Empties, wanted, |cpu, memory, held| {
            self.process.vm.dontneed_with(cpu, &memory, va, pages, || held.release_vma())
        }));
    }

    /// The kernel's own work is not preempted: interrupts are taken when it is done.
    fn dontneed_and_work(&self, va: u64, pages: u64, cycles: u64, when: WorkTime) {
        let wanted = self.kernel.settings.per_vma_locks.wanted_by_sweep(va, pages);
        self.on_sweep((va, pages), Intent::Empties, wanted, |cpu, memory, held| {
            let withdrawal = Withdrawal::take(cpu, &memory, &self.process.vm, va, pages);
            held.release_vma();
            let work = || self.machine.execute(cycles);
            match when {
                WorkTime::AfterTheWait => {
                    withdrawal.finish(cpu, &memory);
                    work();
                }
                WorkTime::BeforeTheWait => {
                    work();
                    withdrawal.finish(cpu, &memory);
                }
            }
        });
    }

    fn read(&self, va: u64) -> u64 {
        let at = self.kernel.touch(self.me, va, Access::Read, Overlap::Independent);
        self.kernel.phys.word(at)
    }

    fn write(&self, va: u64, value: u64) {
        let at = self.kernel.touch(self.me, va, Access::Write, Overlap::Independent);
        self.kernel.phys.set_word(at, value);
    }

    fn chase(&self, va: u64) -> u64 {
        let at = self.kernel.touch(self.me, va, Access::Read, Overlap::Dependent);
        self.kernel.phys.word(at)
    }

    fn fork(&self, part: Part) -> TaskId {
        self.call_with_regions(|kernel| {
            let process = kernel.new_process();
            let done = self.on_everything(kernel, Intent::Keeps, |cpu, memory| {
                self.process.vm.fork(cpu, &memory, &process.vm, calls::CHILD_FILL)
            });
            self.expect(done);
            kernel.observer().forked(self.process.space().root(), process.space().root());
            TaskId(kernel.start(self.program.starts(part), process))
        })
    }

    fn thread(&self, part: Part) -> TaskId {
        let start = |kernel: &'static Kernel| TaskId(kernel.start(self.program.starts(part), self.process));
        if !self.kernel.is_to_be_parted(self.process) {
            return self.call(start);
        }
        self.call_with_regions(|kernel| {
            self.on_everything(kernel, Intent::Keeps, |cpu, memory| {
                // A process that has large pages, or finds no frame, goes on as it was.
                let _parted = self.process.vm.give_directories(cpu, &memory);
            });
            start(kernel)
        })
    }

    fn exec(&self) {
        self.call_with_regions(|kernel| {
            self.on_everything(kernel, Intent::GivesAway, |cpu, memory| self.process.vm.clear(cpu, &memory));
            kernel.observer().unmapped(self.process.space().root(), 0, USER_END / PAGE_BYTES);
        });
    }

    fn join(&self, task: TaskId) {
        self.call(|kernel| {
            let target = kernel.tasks.get(task.0);
            if !target.has_ended.get() {
                target.joiners.borrow_mut().push(self.me);
                kernel.block(self.me);
            }
        });
    }

    fn pin(&self, cpu: u32) {
        self.set_affinity(Affinity::Cpu, cpu as usize % self.machine.cpus());
    }

    fn pin_to_core(&self, core: u32) {
        self.pin(self.machine.topology().first_thread(core as usize) as u32);
    }

    fn pin_to_whole_core(&self, core: u32) {
        self.set_affinity(Affinity::Core, self.machine.topology().first_thread(core as usize));
    }

    fn wait(&self, channel: Channel) {
        self.call(|kernel| {
            let taken = kernel.with_channel(channel.0, |state| {
                let available = state.count > 0;
                if available {
                    state.count -= 1;
                } else {
                    state.waiters.push_back(self.me);
                }
                available
            });
            if !taken {
                kernel.block(self.me);
            }
        });
    }

    fn post(&self, channel: Channel) {
        self.call(|kernel| {
            let woken = kernel.with_channel(channel.0, |state| {
                let waiter = state.waiters.pop_front();
                state.count += u64::from(waiter.is_none());
                waiter
            });
            if let Some(waiter) = woken {
                kernel.make_runnable(waiter);
            }
        });
    }

    fn yield_now(&self) {
        self.call(|kernel| kernel.switch_away(self.me, Fate::Queue));
    }

    fn compute(&self, cycles: u64) {
        self.kernel.compute(self.me, cycles);
    }

    fn read_file(&self, file: u32, pages: u64) {
        self.call(|kernel| kernel.read_file(file, pages));
    }

    fn renew_kernel_pages(&self, pages: u64) {
        self.call(|kernel| kernel.read_through_windows(KERNEL_PAGES_FILE, pages));
    }

    fn timed(&self, call: &dyn Fn()) {
        let begin = self.machine.running().now();
        call();
        self.kernel.observer().timed(self.machine.running().now() - begin);
    }

    fn count(&self, units: u64) {
        self.kernel.observer().scored(units, self.machine.running().now());
    }

    fn is_over(&self) -> bool {
        // A program that only asks must not stop the clock.
        self.machine.running().advance(1);
        self.kernel.pace(self.me);
        self.kernel.is_over(self.machine.running().now())
    }

    fn random(&self) -> u64 {
        self.kernel.tasks.get(self.me).random()
    }

    fn cpus(&self) -> u32 {
        self.machine.cpus() as u32
    }

    fn wrong_value(&self, va: u64, found: u64, expected: u64) {
        self.kernel.fail(RunError::WrongValue { at: va, found, expected, cpu: self.machine.cpu() });
    }
}

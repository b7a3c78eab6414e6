//! Making and ending processes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tlbkit::{AddressSpace, CpuId, Directories, Hardware};
use tlbkit_pmap::{TABLE_LOCKS, TableLock, Vm};

use super::memory::KernelMemory;
use super::state::Kernel;
use super::task::Process;
use super::vma_locks::VmaLocks;
use crate::error::RunError;
use crate::keep::{Keep, KeptWords};

/// Whether the process that gives something back ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ends {
    No,
    Yes,
}

/// So many retirements are kept before it is asked whether the oldest is over: each time that it is asked, every CPU
/// flushes once more.
const FEW_RETIRED: usize = 16;

/// 16 KiB for each process that runs.
const MOST_TABLE_LOCKS: usize = 256;

impl Kernel {
    /// Makes a process with an empty space.
    pub(super) fn new_process(&'static self) -> &'static Process {
        self.reclaim();
        let machine = self.machine;
        let set = KeptWords::zeroed(AddressSpace::set_words(machine.cpus()));
        let words = set.get();
        machine.mark_cpu_set(words);
        self.sets.borrow_mut().push(set);
        let token = machine.new_token();
        self.processes.borrow_mut().push(None);
        let vm = match Vm::new(machine.tlb(), &KernelMemory(self), self.map, token, words) {
            Ok(vm) => vm,
            Err(error) => self.fail(RunError::Kernel(error.to_string())),
        };
        let table_locks = self.lend_table_locks();
        let process = Keep::new(Box::new(Process {
            vm: vm.with_table_locks(table_locks),
            table_locks,
            mmap_lock: RefCell::new(self.new_mmap_lock()),
            vma_locks: VmaLocks::default(),
            retired: RefCell::default(),
            threads: Cell::new(0),
        }));
        let lent = process.get();
        machine.set_space(token, lent.space());
        if machine.tlb().policy().directories == Directories::OfEachCpu {
            machine.find_roots_by(token, Rc::new(|cpu| lent.vm.root_on(&self.phys, CpuId(cpu as u32))));
        }
        self.processes.borrow_mut()[token.0 as usize] = Some(process);
        lent
    }

    /// The locks of last-level tables that a space is lent: one for each CPU, if there are more CPUs than the space has
    /// separate locks. Linux has a lock for each table, so two threads never share one merely because there are many.
    fn lend_table_locks(&self) -> &'static [TableLock] {
        let locks = self.machine.cpus().next_power_of_two().min(MOST_TABLE_LOCKS);
        if locks <= TABLE_LOCKS {
            return &[];
        }
        self.free_locks.borrow_mut().pop().unwrap_or_else(|| {
            let made = Keep::new((0..locks).map(|_| TableLock::new()).collect::<Box<[_]>>());
            let lent = made.get();
            self.table_locks.borrow_mut().push(made);
            lent
        })
    }

    /// True if a second thread of `process` is about to start, and the policy gives CPUs directories of their own then.
    pub(super) fn is_to_be_parted(&self, process: &Process) -> bool {
        let policy = self.machine.tlb().policy();
        let machine = self.machine;
        policy.directories == Directories::OfEachCpu
            && process.threads.get() == 1
            && !machine.with_cpu(machine.cpu(), |cpu| process.vm.has_directories(cpu.hardware()))
    }

    /// Frees what is left of spaces that have ended while a CPU held them lazily, once no CPU holds them any more.
    fn reclaim(&'static self) {
        for token in self.machine.take_unreferenced() {
            let process = self.processes.borrow()[token.0 as usize].as_ref().map(Keep::get);
            let process = process.expect("only a space that was made has references");
            process.vm.reclaim(&KernelMemory(self));
        }
    }

    /// Gives back what the process has retired, as far as its grace periods are over, or all of it if it ends.
    pub(super) fn give_back_retired(&'static self, process: &'static Process, ends: Ends) {
        let (machine, memory) = (self.machine, KernelMemory(self));
        let periods = machine.periods();
        if ends == Ends::No && process.retired.borrow().len() < FEW_RETIRED {
            return;
        }
        machine.with_cpu(machine.cpu(), |cpu| {
            loop {
                let Some(mut oldest) = process.retired.borrow_mut().pop_front() else { return };
                if ends == Ends::No && !oldest.is_over(&cpu, periods) {
                    // Another CPU may have retired more meanwhile, but nothing older.
                    return process.retired.borrow_mut().push_front(oldest);
                }
                self.observer().given_back(oldest.pages());
                oldest.finish(&cpu, &memory, periods, &process.vm);
            }
        });
    }

    /// A thread of the process ends on the running CPU; with the last one the space does.
    ///
    /// Only a CPU whose thread is still counted may run the space, because a space may be destroyed only when no CPU
    /// runs it. So a CPU whose thread is not the last one goes lazy before the count is lowered:
    ///
    /// ```text
    /// a thread ends                      the last thread ends
    /// its CPU goes lazy
    /// lowers the count
    ///                                    lowers the count: no thread is left
    ///                                    destroys the space: the other CPU is lazy at most
    /// switches to the next task
    /// ```
    pub(super) fn leave_process(&'static self, process: &'static Process) {
        let (memory, here) = (KernelMemory(self), self.machine.cpu());
        let go_lazy = || {
            self.machine.with_cpu(here, |cpu| {
                if cpu.is_running(process.space()) {
                    cpu.hardware().with_irqs_off(|irqs| cpu.enter_lazy(irqs));
                }
            });
        };
        if process.threads.get() > 1 {
            go_lazy();
        }
        process.threads.set(process.threads.get() - 1);
        if process.threads.get() > 0 {
            return;
        }
        self.reclaimer.unmapped(process, None);
        self.observer().begin_exit(here, process.space().root());
        self.machine.with_cpu(here, |cpu| process.vm.exit(&cpu, &memory));
        go_lazy();
        self.give_back_retired(process, Ends::Yes);
        self.machine.with_cpu(here, |cpu| {
            let _freed_now_or_by_reclaim = process.vm.destroy(&cpu, &memory);
        });
        if !process.table_locks.is_empty() {
            self.free_locks.borrow_mut().push(process.table_locks);
        }
        self.observer().end_exit(here);
    }
}

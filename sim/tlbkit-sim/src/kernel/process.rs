//! An address space and the threads that run in it.

use std::cell::Cell;

use tlbkit::sync::AtomicU64;
use tlbkit::{AddressSpace, Hardware, SpaceToken};
use tlbkit_pmap::Vm;

use super::memory::KernelMemory;
use crate::engine::world::World;
use crate::run::RunError;
use crate::run::keep::Keep;

/// Words of one cache line.
const LINE_WORDS: usize = 8;

/// One process. Aligned to a line, so that which fields share lines does not depend on the host's allocator.
#[repr(align(64))]
pub(crate) struct Process {
    pub(crate) vm: Vm<'static>,
    /// Threads that have not ended.
    pub(crate) threads: Cell<usize>,
}

impl Process {
    pub(crate) fn space(&self) -> &AddressSpace<'static> {
        self.vm.space()
    }

    /// A thread ends; with the last one the space does.
    pub(crate) fn leave(&'static self, world: &'static World) {
        self.threads.set(self.threads.get() - 1);
        if self.threads.get() > 0 {
            return;
        }
        let memory = KernelMemory(world);
        world.insight.begin_exit(world, self.space().root());
        world.with_cpu(world.cpu(), |cpu| {
            self.vm.exit(&cpu, &memory);
            if cpu.is_running(self.space()) {
                cpu.hardware().with_irqs_off(|irqs| cpu.enter_lazy(irqs));
            }
            let _freed_now_or_by_reclaim = self.vm.destroy(&cpu, &memory);
        });
        world.insight.end_exit(world);
    }
}

impl World {
    /// A process with an empty space.
    pub(crate) fn new_process(&'static self) -> &'static Process {
        self.reclaim();
        let set = self.new_set();
        let token = self.new_token();
        let memory = KernelMemory(self);
        let vm = match Vm::new(&self.tlb, &memory, self.map, token, set) {
            Ok(vm) => vm,
            Err(error) => self.fail(RunError::Kernel(error.to_string())),
        };
        let process = Keep::new(Box::new(Process { vm, threads: Cell::new(0) }));
        let lent = process.get();
        let before = self.spaces.borrow_mut()[token.0 as usize].replace(lent);
        assert!(before.is_none(), "a token names one space");
        self.kernel.processes.borrow_mut().push(process);
        lent
    }

    /// Takes the next token. The space comes later: making it takes time, in which other CPUs make spaces too.
    fn new_token(&self) -> SpaceToken {
        let mut spaces = self.spaces.borrow_mut();
        spaces.push(None);
        SpaceToken(spaces.len() as u64 - 1)
    }

    /// Frees what was left of spaces that a CPU had held lazily beyond their end.
    fn reclaim(&'static self) {
        let Some(cpu) = self.running_cpu() else { return };
        for index in self.kernel.unreferenced.take() {
            let Some(process) = self.spaces.borrow()[index] else { unreachable!("it has been destroyed") };
            self.with_cpu(cpu, |handle| process.vm.reclaim(&handle, &KernelMemory(self)));
        }
    }

    /// Zeroed words for a CPU set, alone on their lines.
    fn new_set(&self) -> &'static [AtomicU64] {
        let words = AddressSpace::set_words(self.cores.len());
        let lines = words.div_ceil(LINE_WORDS);
        let storage = (0..(lines + 1) * LINE_WORDS).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        let kept = Keep::new(storage);
        let all = kept.get();
        let first = (0..LINE_WORDS).find(|&at| (&raw const all[at]).addr().is_multiple_of(64)).unwrap_or(0);
        let set = &all[first..first + words];
        let start = set.as_ptr().addr();
        self.lines.borrow_mut().mark_set(start, start + 8 * words);
        self.kernel.sets.borrow_mut().push(kept);
        set
    }
}

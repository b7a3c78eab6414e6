//! On which CPU a woken task goes: where it ran last if that is idle, else an idle CPU near, else a short queue.

use std::cell::RefCell;

use super::task::TaskSlot;
use crate::engine::world::World;

/// Neighbours whose queues are compared when no CPU is idle: looking at all would make a wake-up cost more with every
/// CPU.
const NEIGHBOURS: usize = 8;

/// Some of the CPUs.
pub(crate) struct CpuBits(RefCell<Vec<u64>>);

impl CpuBits {
    pub(crate) fn new(cpus: usize) -> Self {
        Self(RefCell::new(vec![0; cpus.div_ceil(64)]))
    }

    pub(crate) fn insert(&self, cpu: usize) {
        self.0.borrow_mut()[cpu / 64] |= 1 << (cpu % 64);
    }

    pub(crate) fn remove(&self, cpu: usize) {
        self.0.borrow_mut()[cpu / 64] &= !(1 << (cpu % 64));
    }

    pub(crate) fn contains(&self, cpu: usize) -> bool {
        self.0.borrow()[cpu / 64] >> (cpu % 64) & 1 == 1
    }

    /// The first of them from `cpu` upwards, around the end.
    pub(crate) fn from(&self, cpu: usize) -> Option<usize> {
        let words = self.0.borrow();
        let above = words[cpu / 64] >> (cpu % 64) << (cpu % 64);
        let first = std::iter::once((cpu / 64, above));
        let rest = (1..=words.len()).map(|step| (cpu / 64 + step) % words.len()).map(|at| (at, words[at]));
        let found = first.chain(rest).find(|&(_, word)| word != 0);
        found.map(|(at, word)| at * 64 + word.trailing_zeros() as usize)
    }
}

impl World {
    /// The CPU for a task that becomes runnable.
    pub(crate) fn place(&self, task: &TaskSlot) -> usize {
        if let Some(cpu) = task.on_cpu.get().or(task.pinned.get()) {
            return cpu;
        }
        let last = task.cpu.get();
        let kernel = &self.kernel;
        if kernel.idle.contains(last) {
            return last;
        }
        if let Some(cpu) = kernel.idle.from(last) {
            return cpu;
        }
        let cpus = self.cores.len();
        let near = (0..NEIGHBOURS.min(cpus)).map(|step| (last + step) % cpus);
        near.min_by_key(|&cpu| kernel.runs[cpu].queue.borrow().len()).unwrap_or(last)
    }
}

#[cfg(test)]
mod tests {
    use super::CpuBits;

    #[test]
    fn the_search_goes_round() {
        let set = CpuBits::new(130);
        assert_eq!(set.from(5), None);
        set.insert(3);
        assert_eq!(set.from(5), Some(3));
        set.insert(129);
        assert_eq!((set.from(5), set.from(0)), (Some(129), Some(3)));
        set.remove(129);
        assert_eq!(set.from(129), Some(3));
    }
}

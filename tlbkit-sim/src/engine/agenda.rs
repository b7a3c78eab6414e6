//! Which CPU acts next: a tree of earliest times whose leaves are the CPUs. The times of a node's eight children are
//! one line of the host, so thousands of CPUs are four lines deep.

use super::core::NEVER;

/// Children of a node.
const CHILDREN: usize = 8;

/// The earliest time below each child.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node([u64; CHILDREN]);

/// At most one time for each CPU; ties go to the lower CPU.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// The times of the CPUs, then those of the nodes below, up to a single node.
    levels: Vec<Box<[Node]>>,
    first: u64,
}

impl Agenda {
    pub(crate) fn new(cpus: usize) -> Self {
        let (mut levels, mut count) = (Vec::new(), cpus);
        while levels.is_empty() || count > 1 {
            count = count.div_ceil(CHILDREN);
            levels.push(vec![Node([NEVER; CHILDREN]); count].into());
        }
        Self { levels, first: NEVER }
    }

    /// The earliest time, or never.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// When the CPU acts next, or never.
    pub(crate) fn when(&self, cpu: u32) -> u64 {
        let cpu = cpu as usize;
        self.levels[0][cpu / CHILDREN].0[cpu % CHILDREN]
    }

    /// Adds the CPU, or moves it.
    pub(crate) fn set(&mut self, cpu: u32, at: u64) {
        let (mut index, mut earliest) = (cpu as usize, at);
        for level in &mut self.levels {
            let Node(times) = &mut level[index / CHILDREN];
            times[index % CHILDREN] = earliest;
            earliest = times.iter().copied().fold(NEVER, u64::min);
            index /= CHILDREN;
        }
        self.first = earliest;
    }

    /// Takes the earliest.
    pub(crate) fn pop(&mut self) -> Option<(u64, u32)> {
        let at = self.first;
        if at == NEVER {
            return None;
        }
        let mut index = 0;
        for level in self.levels.iter().rev() {
            let child = level[index].0.iter().position(|&time| time == at);
            index = CHILDREN * index + child.expect("a node knows the earliest time below each child");
        }
        self.set(index as u32, NEVER);
        Some((at, index as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::{Agenda, NEVER};

    #[test]
    fn cpus_come_out_by_time_and_then_by_number() {
        let mut agenda = Agenda::new(5);
        for (cpu, at) in [(3, 20), (0, 30), (4, 10), (1, 20), (2, 40)] {
            agenda.set(cpu, at);
        }
        agenda.set(2, 5);
        agenda.set(4, 35);
        assert_eq!((agenda.when(4), agenda.first()), (35, 5));
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop()).collect();
        assert_eq!(order, [(5, 2), (20, 1), (20, 3), (30, 0), (35, 4)]);
        assert_eq!((agenda.when(4), agenda.first()), (NEVER, NEVER));
    }

    #[test]
    fn a_deep_tree_agrees_with_a_sorted_set() {
        const CPUS: u32 = 300;
        let (mut agenda, mut sorted) = (Agenda::new(CPUS as usize), std::collections::BTreeSet::new());
        for step in 0..2000_u32 {
            let (cpu, at) = (step * 7919 % CPUS, u64::from(step * step % 1009));
            sorted.remove(&(agenda.when(cpu), cpu));
            agenda.set(cpu, at);
            sorted.insert((at, cpu));
            if step % 3 == 0 {
                assert_eq!(agenda.pop(), sorted.pop_first());
            }
        }
        assert!(sorted.len() > 100, "the tree has three levels");
        std::iter::from_fn(|| agenda.pop()).for_each(|next| assert_eq!(Some(next), sorted.pop_first()));
        assert!(sorted.is_empty());
    }
}

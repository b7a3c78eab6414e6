//! Which CPU acts next: a heap of (time, CPU) in which a CPU's time can be brought forward. Each node has four children
//! next to each other: half the levels of a binary heap.

/// Children of a node.
const CHILDREN: usize = 4;
/// Not in the heap.
const ABSENT: u32 = u32::MAX;

/// At most one time for each CPU; ties go to the lower CPU.
#[derive(Debug)]
pub(crate) struct Agenda {
    heap: Vec<(u64, u32)>,
    place: Vec<u32>,
}

impl Agenda {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { heap: Vec::with_capacity(cpus), place: vec![ABSENT; cpus] }
    }

    /// The earliest time.
    pub(crate) fn first(&self) -> Option<u64> {
        self.heap.first().map(|&(at, _)| at)
    }

    /// When the CPU acts next, if it is known.
    pub(crate) fn when(&self, cpu: u32) -> Option<u64> {
        match self.place[cpu as usize] {
            ABSENT => None,
            at => Some(self.heap[at as usize].0),
        }
    }

    /// Adds the CPU, or moves it.
    pub(crate) fn set(&mut self, cpu: u32, at: u64) {
        let place = match self.place[cpu as usize] {
            ABSENT => {
                self.heap.push((at, cpu));
                self.heap.len() - 1
            }
            place => {
                self.heap[place as usize].0 = at;
                place as usize
            }
        };
        self.place[cpu as usize] = place as u32;
        let place = self.rise(place);
        self.sink(place);
    }

    /// Takes the earliest.
    pub(crate) fn pop(&mut self) -> Option<(u64, u32)> {
        let first = *self.heap.first()?;
        let last = self.heap.len() - 1;
        self.swap(0, last);
        self.heap.pop();
        self.place[first.1 as usize] = ABSENT;
        self.sink(0);
        Some(first)
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.heap[parent] <= self.heap[at] {
                break;
            }
            self.swap(parent, at);
            at = parent;
        }
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let first = CHILDREN * at + 1;
            let children = first..(first + CHILDREN).min(self.heap.len());
            let Some(child) = children.min_by_key(|&child| self.heap[child]) else { return };
            if self.heap[at] <= self.heap[child] {
                return;
            }
            self.swap(at, child);
            at = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        for at in [a, b] {
            self.place[self.heap[at].1 as usize] = at as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Agenda;

    #[test]
    fn cpus_come_out_by_time_and_then_by_number() {
        let mut agenda = Agenda::new(5);
        for (cpu, at) in [(3, 20), (0, 30), (4, 10), (1, 20), (2, 40)] {
            agenda.set(cpu, at);
        }
        agenda.set(2, 5);
        agenda.set(4, 35);
        assert_eq!((agenda.when(4), agenda.first()), (Some(35), Some(5)));
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop()).collect();
        assert_eq!(order, [(5, 2), (20, 1), (20, 3), (30, 0), (35, 4)]);
        assert_eq!(agenda.when(4), None);
    }

    #[test]
    fn a_large_heap_agrees_with_a_sorted_set() {
        const CPUS: u32 = 300;
        let (mut agenda, mut sorted) = (Agenda::new(CPUS as usize), std::collections::BTreeSet::new());
        for step in 0..2000_u32 {
            let (cpu, at) = (step * 7919 % CPUS, u64::from(step * step % 1009));
            if let Some(before) = agenda.when(cpu) {
                sorted.remove(&(before, cpu));
            }
            agenda.set(cpu, at);
            sorted.insert((at, cpu));
            if step % 3 == 0 {
                assert_eq!(agenda.pop(), sorted.pop_first());
            }
        }
        assert!(sorted.len() > 100, "the heap has many levels");
        std::iter::from_fn(|| agenda.pop()).for_each(|next| assert_eq!(Some(next), sorted.pop_first()));
        assert!(sorted.is_empty());
    }
}

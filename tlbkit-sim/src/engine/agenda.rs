//! Which CPU acts next: a heap of the CPUs that will act, with the place of each, so that one can be moved. It is as
//! deep as there are CPUs that do something, however many the machine has.

use super::core::NEVER;

/// Children of a place: four entries are one line of the host.
const CHILDREN: usize = 4;
/// The place of a CPU that is not in the heap.
const ABSENT: u32 = u32::MAX;

/// A time and a CPU: ordered by time, and CPUs that act at the same time by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry(u128);

impl Entry {
    fn new(at: u64, cpu: u32) -> Self {
        Self(u128::from(at) << 64 | u128::from(cpu))
    }

    fn at(self) -> u64 {
        (self.0 >> 64) as u64
    }

    fn cpu(self) -> u32 {
        self.0 as u32
    }
}

/// At most one time for each CPU.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// No entry is earlier than its parent's.
    heap: Vec<Entry>,
    /// Where each CPU's entry is.
    places: Box<[u32]>,
}

impl Agenda {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { heap: Vec::with_capacity(cpus), places: vec![ABSENT; cpus].into() }
    }

    /// The earliest.
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().map(|entry| (entry.at(), entry.cpu()))
    }

    /// The earliest time but that of the first, or never.
    pub(crate) fn second(&self) -> u64 {
        self.heap.iter().take(CHILDREN + 1).skip(1).min().map_or(NEVER, |entry| entry.at())
    }

    /// When the CPU acts next, or never.
    pub(crate) fn when(&self, cpu: u32) -> u64 {
        self.heap.get(self.places[cpu as usize] as usize).map_or(NEVER, |entry| entry.at())
    }

    /// Adds the CPU, or moves it.
    pub(crate) fn set(&mut self, cpu: u32, at: u64) {
        let entry = Entry::new(at, cpu);
        match self.places[cpu as usize] {
            ABSENT => {
                self.heap.push(entry);
                self.rise(self.heap.len() - 1, entry);
            }
            place => self.settle(place as usize, entry),
        }
    }

    /// Takes the CPU out, if it is there.
    pub(crate) fn remove(&mut self, cpu: u32) {
        let place = std::mem::replace(&mut self.places[cpu as usize], ABSENT);
        if place == ABSENT {
            return;
        }
        if let Some(last) = self.heap.pop()
            && last.cpu() != cpu
        {
            self.settle(place as usize, last);
        }
    }

    /// Puts the entry at the place of another, and then where it belongs.
    fn settle(&mut self, place: usize, entry: Entry) {
        if entry < self.heap[place] {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    /// Puts the entry at the place, or above it as far as it is earlier.
    fn rise(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let above = (place - 1) / CHILDREN;
            if self.heap[above] < entry {
                break;
            }
            self.put(place, self.heap[above]);
            place = above;
        }
        self.put(place, entry);
    }

    /// Puts the entry at the place, or below it as far as others are earlier.
    fn sink(&mut self, mut place: usize, entry: Entry) {
        loop {
            let first = CHILDREN * place + 1;
            let end = self.heap.len().min(first + CHILDREN);
            let children = self.heap.get(first..end).unwrap_or_default().iter().copied();
            let Some((offset, earliest)) = children.enumerate().min_by_key(|&(_, child)| child) else { break };
            if entry < earliest {
                break;
            }
            self.put(place, earliest);
            place = first + offset;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.places[entry.cpu() as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::{Agenda, NEVER};

    fn pop(agenda: &mut Agenda) -> Option<(u64, u32)> {
        let first = agenda.first()?;
        agenda.remove(first.1);
        Some(first)
    }

    #[test]
    fn cpus_come_out_by_time_and_then_by_number() {
        let mut agenda = Agenda::new(5);
        for (cpu, at) in [(3, 20), (0, 30), (4, 10), (1, 20), (2, 40)] {
            agenda.set(cpu, at);
        }
        agenda.set(2, 5);
        agenda.set(4, 35);
        assert_eq!((agenda.when(4), agenda.first(), agenda.second()), (35, Some((5, 2)), 20));
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut agenda)).collect();
        assert_eq!(order, [(5, 2), (20, 1), (20, 3), (30, 0), (35, 4)]);
        assert_eq!((agenda.when(4), agenda.first(), agenda.second()), (NEVER, None, NEVER));
    }

    #[test]
    fn a_deep_heap_agrees_with_a_sorted_set() {
        const CPUS: u32 = 300;
        let (mut agenda, mut sorted) = (Agenda::new(CPUS as usize), std::collections::BTreeSet::new());
        for step in 0..2000_u32 {
            let (cpu, at) = (step * 7919 % CPUS, u64::from(step * step % 1009));
            sorted.remove(&(agenda.when(cpu), cpu));
            agenda.set(cpu, at);
            sorted.insert((at, cpu));
            let second = sorted.iter().nth(1).map_or(NEVER, |&(at, _)| at);
            assert_eq!((agenda.first(), agenda.second()), (sorted.first().copied(), second));
            match step % 5 {
                0 | 3 => assert_eq!(pop(&mut agenda), sorted.pop_first()),
                1 => {
                    let cpu = step * 31 % CPUS;
                    sorted.remove(&(agenda.when(cpu), cpu));
                    agenda.remove(cpu);
                }
                _ => {}
            }
        }
        assert!(sorted.len() > 100, "the heap is several places deep");
        std::iter::from_fn(|| pop(&mut agenda)).for_each(|next| assert_eq!(Some(next), sorted.pop_first()));
        assert!(sorted.is_empty());
    }
}

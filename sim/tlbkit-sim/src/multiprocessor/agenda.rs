//! Which CPU acts next: a heap of the CPUs that will act, with the place of each, so that one can be moved. It is as
//! deep as there are CPUs that do something, however many the machine has.

/// Never: no time is later.
pub(crate) const NEVER: u64 = u64::MAX;

/// Entries of a group: the children of one entry, in one line of the host.
const GROUP: usize = 4;
/// The place of the first entry: so the children of each entry fill a separate group.
const ROOT: usize = GROUP - 1;
/// The place of a CPU that is not in the heap.
const ABSENT: u32 = u32::MAX;

/// A time and a CPU: ordered by time, and CPUs that act at the same time by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct NextAct(u128);

impl NextAct {
    /// Later than all others: an empty place.
    const NONE: Self = Self(u128::MAX);

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

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Group([NextAct; GROUP]);

impl Group {
    /// The earliest entry, and where in the group it is. Which one it is cannot be foreseen: two rounds of choices,
    /// none of which the others wait for, instead of branches.
    #[inline]
    fn earliest(&self) -> (usize, NextAct) {
        let [a, b, c, d] = self.0;
        let left = if b < a { (1, b) } else { (0, a) };
        let right = if d < c { (3, d) } else { (2, c) };
        if right.1 < left.1 { right } else { left }
    }
}

/// At most one time for each CPU.
#[derive(Debug)]
pub(crate) struct Agenda {
    /// No entry is earlier than its parent's.
    groups: Box<[Group]>,
    /// The first place beyond the entries.
    end: usize,
    /// Where each CPU's entry is.
    places: Box<[u32]>,
}

impl Agenda {
    pub(crate) fn new(cpus: usize) -> Self {
        let groups = vec![Group([NextAct::NONE; GROUP]); (ROOT + cpus).div_ceil(GROUP)];
        Self { groups: groups.into(), end: ROOT, places: vec![ABSENT; cpus].into() }
    }

    /// The earliest.
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        let first = self.entry(ROOT);
        (first != NextAct::NONE).then(|| (first.at(), first.cpu()))
    }

    /// The earliest but the first.
    pub(crate) fn second(&self) -> Option<(u64, u32)> {
        let (_, second) = self.groups.get(children_of(ROOT))?.earliest();
        (second != NextAct::NONE).then(|| (second.at(), second.cpu()))
    }

    /// When the CPU acts next, or never.
    pub(crate) fn when(&self, cpu: u32) -> u64 {
        match self.places[cpu as usize] {
            ABSENT => NEVER,
            place => self.entry(place as usize).at(),
        }
    }

    /// Adds the CPU, or moves it.
    pub(crate) fn set(&mut self, cpu: u32, at: u64) {
        let entry = NextAct::new(at, cpu);
        match self.places[cpu as usize] {
            ABSENT => {
                self.end += 1;
                self.rise(self.end - 1, entry);
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
        self.end -= 1;
        let last = std::mem::replace(self.entry_mut(self.end), NextAct::NONE);
        if last.cpu() != cpu {
            self.settle(place as usize, last);
        }
    }

    /// Puts the entry at the place of another, and then where it belongs.
    fn settle(&mut self, place: usize, entry: NextAct) {
        if entry < self.entry(place) {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    /// Puts the entry at the place, or above it as far as it is earlier.
    fn rise(&mut self, mut place: usize, entry: NextAct) {
        while place > ROOT {
            let above = parent_of(place);
            if self.entry(above) < entry {
                break;
            }
            self.put(place, self.entry(above));
            place = above;
        }
        self.put(place, entry);
    }

    /// Puts the entry at the place, or below it as far as others are earlier.
    fn sink(&mut self, mut place: usize, entry: NextAct) {
        while let Some(children) = self.groups.get(children_of(place)) {
            let (offset, earliest) = children.earliest();
            if entry < earliest {
                break;
            }
            self.put(place, earliest);
            place = GROUP * children_of(place) + offset;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: NextAct) {
        *self.entry_mut(place) = entry;
        self.places[entry.cpu() as usize] = place as u32;
    }

    fn entry(&self, place: usize) -> NextAct {
        self.groups[place / GROUP].0[place % GROUP]
    }

    fn entry_mut(&mut self, place: usize) -> &mut NextAct {
        &mut self.groups[place / GROUP].0[place % GROUP]
    }
}

/// The group of the children of the entry at `place`.
const fn children_of(place: usize) -> usize {
    place - ROOT + 1
}

/// The place of the parent of the entry at `place`, which is not the root.
const fn parent_of(place: usize) -> usize {
    place / GROUP - 1 + ROOT
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
        assert_eq!((agenda.when(4), agenda.first(), agenda.second()), (35, Some((5, 2)), Some((20, 1))));
        let order: Vec<_> = std::iter::from_fn(|| pop(&mut agenda)).collect();
        assert_eq!(order, [(5, 2), (20, 1), (20, 3), (30, 0), (35, 4)]);
        assert_eq!((agenda.when(4), agenda.first(), agenda.second()), (NEVER, None, None));
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
            let mut earliest = sorted.iter().copied();
            assert_eq!((agenda.first(), agenda.second()), (earliest.next(), earliest.next()));
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

//! A set of CPUs that is searched from any CPU on, on machines of thousands.

use std::cell::RefCell;

/// A bit for each CPU, and a bit for each word of those that is not zero.
pub(super) struct CpuBits {
    words: RefCell<Vec<u64>>,
    summary: RefCell<Vec<u64>>,
}

impl CpuBits {
    pub(super) fn new(cpus: usize) -> Self {
        let words = cpus.div_ceil(64);
        Self { words: RefCell::new(vec![0; words]), summary: RefCell::new(vec![0; words.div_ceil(64)]) }
    }

    pub(super) fn insert(&self, cpu: usize) {
        self.words.borrow_mut()[cpu / 64] |= 1 << (cpu % 64);
        self.summary.borrow_mut()[cpu / 64 / 64] |= 1 << (cpu / 64 % 64);
    }

    pub(super) fn remove(&self, cpu: usize) {
        let word = &mut self.words.borrow_mut()[cpu / 64];
        *word &= !(1 << (cpu % 64));
        if *word == 0 {
            self.summary.borrow_mut()[cpu / 64 / 64] &= !(1 << (cpu / 64 % 64));
        }
    }

    pub(super) fn contains(&self, cpu: usize) -> bool {
        self.words.borrow()[cpu / 64] >> (cpu % 64) & 1 == 1
    }

    /// The first of them from `cpu` upwards, around the end.
    pub(super) fn from(&self, cpu: usize) -> Option<usize> {
        if self.summary.borrow().iter().all(|&word| word == 0) {
            return None;
        }
        self.at_or_above(cpu).or_else(|| self.at_or_above(0))
    }

    fn at_or_above(&self, cpu: usize) -> Option<usize> {
        let words = self.words.borrow();
        let rest = words[cpu / 64] >> (cpu % 64);
        if rest != 0 {
            return Some(cpu + rest.trailing_zeros() as usize);
        }
        let word = first_bit(&self.summary.borrow(), cpu / 64 + 1)?;
        Some(word * 64 + words[word].trailing_zeros() as usize)
    }
}

/// The first set bit from `from` upwards.
fn first_bit(words: &[u64], from: usize) -> Option<usize> {
    let above = |at: usize, word: u64| if at == from / 64 { word >> (from % 64) << (from % 64) } else { word };
    let mut rest = words.iter().enumerate().skip(from / 64).map(|(at, &word)| (at, above(at, word)));
    let (at, word) = rest.find(|&(_, word)| word != 0)?;
    Some(at * 64 + word.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::CpuBits;
    use tlbkit_machine::MOST_CPUS as CPUS;

    #[test]
    fn the_search_finds_what_looking_at_every_cpu_finds() {
        let set = CpuBits::new(CPUS);
        let mut members = std::collections::BTreeSet::new();
        for step in 0..400 {
            let cpu = step * step * 37 % CPUS;
            if members.insert(cpu) {
                set.insert(cpu);
            } else {
                members.remove(&cpu);
                set.remove(cpu);
            }
            for start in [0, cpu, (cpu + 1) % CPUS, step * 20, CPUS - 1] {
                let expected = members.range(start..).next().or(members.first());
                assert_eq!(set.from(start), expected.copied(), "from {start}");
            }
        }
        members.into_iter().for_each(|cpu| set.remove(cpu));
        assert_eq!(set.from(63), None);
    }

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

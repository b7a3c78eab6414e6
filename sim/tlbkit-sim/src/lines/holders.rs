//! The set of CPUs that hold a line: by number while they are few, as bits only for a line that many read.

use std::ops::Range;

use tlbkit::sync::Access;

use crate::topology::Topology;

/// No CPU.
const NOBODY: u32 = u32::MAX;
/// CPUs that are kept by number: with them a line of the model is a line of the host.
const FEW: usize = 5;

/// Who holds a line. The owner, if there is one, is the only holder and may write; it is nowhere else.
#[derive(Debug)]
pub(super) struct Holders {
    owner: u32,
    few: [u32; FEW],
    /// Those that came when there were no more places.
    many: Box<[u64]>,
}

impl Default for Holders {
    fn default() -> Self {
        Self { owner: NOBODY, few: [NOBODY; FEW], many: Box::default() }
    }
}

impl Holders {
    pub(super) fn owns(&self, cpu: u32) -> bool {
        self.owner == cpu
    }

    pub(super) fn holds(&self, cpu: u32) -> bool {
        self.owns(cpu) || self.shares(cpu)
    }

    /// True if somebody may write the line.
    pub(super) fn has_owner(&self) -> bool {
        self.owner != NOBODY
    }

    /// True if the CPU's own cache answers the access.
    pub(super) fn answers(&self, cpu: u32, access: Access) -> bool {
        self.owns(cpu) || (access == Access::Load && self.shares(cpu))
    }

    /// Adds a reader; the owner stays a reader.
    pub(super) fn share(&mut self, cpu: u32) {
        let owner = std::mem::replace(&mut self.owner, NOBODY);
        if owner != NOBODY {
            self.add(owner);
        }
        self.add(cpu);
    }

    /// Everybody else loses the line.
    pub(super) fn own(&mut self, cpu: u32) {
        self.owner = cpu;
        // Places are taken in order, and more only when there are none left.
        if self.few[FEW - 1] != NOBODY {
            self.many.fill(0);
        }
        self.few = [NOBODY; FEW];
    }

    /// True if a holder is beyond these CPUs.
    pub(super) fn any_beyond(&self, cpus: Range<usize>) -> bool {
        let (first, end) = (cpus.start as u32, cpus.end as u32);
        let is_beyond = |holder: u32| holder != NOBODY && !(first..end).contains(&holder);
        if is_beyond(self.owner) || self.few.into_iter().any(is_beyond) {
            return true;
        }
        let beyond_of = |(at, &word): (usize, &u64)| word & !window(at as u32, first, end);
        self.many.iter().enumerate().any(|word| beyond_of(word) != 0)
    }

    /// True if somebody holds the line, and all who do are in the group of `cpu`.
    pub(super) fn are_in_group(&self, cpu: u32, topology: &Topology) -> bool {
        let mut others = std::iter::once(self.owner).chain(self.few).filter(|&holder| holder != NOBODY).peekable();
        let is_near = |other: u32| topology.same_group(cpu as usize, other as usize);
        let of_word = |(at, &word): (usize, &u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
        };
        others.peek().is_some() && others.all(is_near) && self.many.iter().enumerate().flat_map(of_word).all(is_near)
    }

    fn shares(&self, cpu: u32) -> bool {
        self.few.contains(&cpu) || self.many.get((cpu / 64) as usize).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    fn add(&mut self, cpu: u32) {
        if self.shares(cpu) {
            return;
        }
        if let Some(place) = self.few.iter_mut().find(|place| **place == NOBODY) {
            *place = cpu;
            return;
        }
        let at = (cpu / 64) as usize;
        if self.many.len() <= at {
            let mut more = vec![0; at + 1];
            more[..self.many.len()].copy_from_slice(&self.many);
            self.many = more.into();
        }
        self.many[at] |= 1 << (cpu % 64);
    }
}

/// Bits of word `at` for the CPUs `first .. end`.
fn window(at: u32, first: u32, end: u32) -> u64 {
    below(end.saturating_sub(at * 64)) & !below(first.saturating_sub(at * 64))
}

fn below(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

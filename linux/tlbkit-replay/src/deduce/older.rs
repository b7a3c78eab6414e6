//! Spaces that were there before the trace: which CPUs held them when it began.
//!
//! The first time that a CPU turns to such a space, the kernel's own record of that switch tells. The tag was kept: the
//! CPU had run the space before, and nothing was revoked since. No record at all: the space was still loaded, unused.
//! And a space whose first flush asks others, though no other CPU has run it in the trace, had been somewhere else.

use crate::op::Space;
use rustc_hash::FxHashSet;
use tlbkit_trace::FlushSize;

/// A CPU that held a space when the trace began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resident {
    /// The CPU that held it.
    pub cpu: u32,
    /// The space that it held.
    pub space: Space,
    /// Whether the space was loaded, or only its tag was kept.
    pub how: Held,
}

/// How a CPU holds a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// Loaded, whether it runs or not.
    Loaded,
    /// Under a tag of its own.
    Tagged,
}

/// What one CPU has shown so far.
#[derive(Clone, Default)]
struct Shown {
    /// A space that it turns to for the first time; what the kernel says of that comes next, if it says anything.
    coming: Option<Space>,
    /// It has run a program.
    has_run: bool,
}

/// What is known of the time before.
#[derive(Default)]
pub(super) struct Older {
    spaces: FxHashSet<Space>,
    cpus: Vec<Shown>,
    /// Who has been where.
    seen: FxHashSet<(u32, Space)>,
    pub(super) residents: Vec<Resident>,
}

impl Older {
    pub(super) fn new(cpus: u32) -> Self {
        Self { cpus: vec![Shown::default(); cpus as usize], ..Self::default() }
    }

    /// The space was there before.
    pub(super) fn add(&mut self, space: Space) {
        self.spaces.insert(space);
    }

    /// The CPU runs the space, and nothing in the trace has brought it there.
    pub(super) fn runs(&mut self, cpu: u32, space: Space) {
        if self.is_first(cpu, space) {
            self.residents.push(Resident { cpu, space, how: Held::Loaded });
        }
        self.cpus[cpu as usize].has_run = true;
    }

    /// The CPU turns to the space.
    pub(super) fn comes(&mut self, cpu: u32, space: Space) {
        if self.is_first(cpu, space) {
            self.cpus[cpu as usize].coming = Some(space);
        } else {
            self.cpus[cpu as usize].has_run = true;
        }
    }

    fn is_first(&mut self, cpu: u32, space: Space) -> bool {
        self.seen.insert((cpu, space)) && self.spaces.contains(&space)
    }

    /// The kernel says what the switch did.
    pub(super) fn switched(&mut self, cpu: u32, size: FlushSize) {
        let shown = &mut self.cpus[cpu as usize];
        shown.has_run |= shown.coming.is_some();
        if let Some(space) = shown.coming.take().filter(|_| size == FlushSize::Pages(0)) {
            self.residents.push(Resident { cpu, space, how: Held::Tagged });
        }
    }

    /// Anything else happens on the CPU: the kernel had nothing to say of the switch.
    pub(super) fn goes_on(&mut self, cpu: u32) {
        let shown = &mut self.cpus[cpu as usize];
        let Some(space) = shown.coming.take() else { return };
        if !std::mem::replace(&mut shown.has_run, true) {
            self.residents.push(Resident { cpu, space, how: Held::Loaded });
        }
    }

    /// A thread of the space on this CPU has others asked.
    pub(super) fn asks(&mut self, cpu: u32, space: Space) {
        let others = || (0..self.cpus.len() as u32).filter(|&other| other != cpu);
        if !self.spaces.contains(&space) || others().any(|other| self.seen.contains(&(other, space))) {
            return;
        }
        if let Some(other) = others().next() {
            self.seen.insert((other, space));
            self.residents.push(Resident { cpu: other, space, how: Held::Tagged });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Space = Space(0);
    const B: Space = Space(1);

    fn older() -> Older {
        let mut older = Older::new(2);
        older.add(A);
        older.add(B);
        older
    }

    fn resident(cpu: u32, space: Space, how: Held) -> Resident {
        Resident { cpu, space, how }
    }

    #[test]
    fn a_switch_that_kept_its_tag_tells_that_the_space_was_there() {
        let mut older = older();
        older.comes(0, A);
        older.switched(0, FlushSize::Pages(0));
        older.comes(0, B);
        older.switched(0, FlushSize::All);
        older.comes(0, Space(7));
        older.switched(0, FlushSize::Pages(0));
        assert_eq!(older.residents, [resident(0, A, Held::Tagged)], "B was not, and 7 is not older");
    }

    #[test]
    fn a_first_switch_of_which_the_kernel_says_nothing_had_nothing_to_load() {
        let mut older = older();
        older.comes(0, A);
        older.goes_on(0);
        older.comes(0, B);
        older.goes_on(0);
        older.runs(1, B);
        assert_eq!(older.residents, [resident(0, A, Held::Loaded), resident(1, B, Held::Loaded)]);
    }

    #[test]
    fn others_are_asked_only_if_the_space_was_elsewhere() {
        let mut older = older();
        older.runs(0, A);
        older.asks(0, A);
        older.asks(0, A);
        assert_eq!(older.residents, [resident(0, A, Held::Loaded), resident(1, A, Held::Tagged)]);
    }
}

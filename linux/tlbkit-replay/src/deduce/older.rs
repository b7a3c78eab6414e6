//! Deduces which CPUs held which spaces when the trace began, for spaces that are older than the trace.
//!
//! The kernel records what it does when a CPU switches to such a space for the first time. If it keeps the entries of
//! the tag, the CPU had run the space before, and nothing was revoked since then. If it records nothing, the space was
//! still loaded. And if the first flush of a space asks other CPUs, although none of them has run the space in the
//! trace, then one of them had run it before.

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
    /// The space is loaded, whether a program of it runs or not.
    Loaded,
    /// The space is not loaded, but has a tag on this CPU.
    Tagged,
}

/// What the trace has shown of one CPU so far.
#[derive(Clone, Default)]
struct Shown {
    /// A space that the CPU is switching to for the first time. The kernel's record of the switch comes next, if there
    /// is one.
    coming: Option<Space>,
    /// Whether the CPU has run a program.
    has_run: bool,
}

/// What is known of the time before the trace.
#[derive(Default)]
pub(super) struct Older {
    spaces: FxHashSet<Space>,
    cpus: Vec<Shown>,
    /// Which CPU has run which space in the trace.
    seen: FxHashSet<(u32, Space)>,
    pub(super) residents: Vec<Resident>,
}

impl Older {
    pub(super) fn new(cpus: u32) -> Self {
        Self { cpus: vec![Shown::default(); cpus as usize], ..Self::default() }
    }

    /// The space is older than the trace.
    pub(super) fn add(&mut self, space: Space) {
        self.spaces.insert(space);
    }

    /// The CPU runs the space, and no switch in the trace has led to that.
    pub(super) fn runs(&mut self, cpu: u32, space: Space) {
        if self.is_first(cpu, space) {
            self.residents.push(Resident { cpu, space, how: Held::Loaded });
        }
        self.cpus[cpu as usize].has_run = true;
    }

    /// The CPU switches to the space.
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

    /// The kernel has recorded what the switch flushed.
    pub(super) fn switched(&mut self, cpu: u32, size: FlushSize) {
        let shown = &mut self.cpus[cpu as usize];
        shown.has_run |= shown.coming.is_some();
        if let Some(space) = shown.coming.take().filter(|_| size == FlushSize::Pages(0)) {
            self.residents.push(Resident { cpu, space, how: Held::Tagged });
        }
    }

    /// Something else happens on the CPU, so the kernel has recorded nothing of the switch.
    pub(super) fn goes_on(&mut self, cpu: u32) {
        let shown = &mut self.cpus[cpu as usize];
        let Some(space) = shown.coming.take() else { return };
        if !std::mem::replace(&mut shown.has_run, true) {
            self.residents.push(Resident { cpu, space, how: Held::Loaded });
        }
    }

    /// A thread of the space on this CPU asks other CPUs to flush.
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

//! A TLB without a limit: it keeps what it was given until an instruction must invalidate it.

use alloc::vec::Vec;

use tlbkit::{Pcid, VirtAddr};

use crate::scope::{CurrentTag, Instruction, Path, Translation};

/// What one CPU holds. `T` is what its user wants to know of a translation, `P` of a path.
#[derive(Clone, Debug)]
pub struct Store<T, P = ()> {
    /// The translations.
    pub translations: Vec<(Translation, T)>,
    /// The paths.
    pub paths: Vec<(Path, P)>,
}

impl<T, P> Default for Store<T, P> {
    fn default() -> Self {
        Self { translations: Vec::new(), paths: Vec::new() }
    }
}

impl<T, P> Store<T, P> {
    /// The oldest translation of `va` that a CPU can use under `pcid`.
    pub fn hit(&self, pcid: Pcid, va: VirtAddr) -> Option<&(Translation, T)> {
        self.translations.iter().find(|(held, _)| held.serves(pcid) && held.covers(va))
    }

    /// The oldest path to a table of `level` that a walk to `va` can use under `pcid`.
    pub fn path(&self, pcid: Pcid, level: u32, va: VirtAddr) -> Option<&(Path, P)> {
        self.paths.iter().find(|(held, _)| held.pcid == pcid && held.level == level && held.leads_to(va))
    }

    /// Removes what `instruction` invalidates on a CPU that translates under `current`, and nothing else.
    pub fn execute(&mut self, instruction: Instruction, current: CurrentTag) {
        let invalidated = instruction.invalidates(current);
        self.translations.retain(|(held, _)| !invalidated.removes(held));
        self.paths.retain(|(held, _)| !invalidated.removes_path(held));
    }
}

//! A TLB of unlimited size, which keeps every entry until an instruction must invalidate it.

use alloc::vec::Vec;

use tlbkit::{Pcid, VirtAddr};

use crate::scope::{CurrentTag, Instruction, Path, Translation};

/// The cached translations of one CPU. `T` is what the user of this type stores with a translation, `P` with a path.
#[derive(Clone, Debug)]
pub struct Store<T, P = ()> {
    /// The translations.
    pub translations: Vec<(Translation, T)>,
    /// The paging-structure-cache entries.
    pub paths: Vec<(Path, P)>,
}

impl<T, P> Default for Store<T, P> {
    fn default() -> Self {
        Self { translations: Vec::new(), paths: Vec::new() }
    }
}

impl<T, P> Store<T, P> {
    /// The oldest translation of `va` that a CPU can use under `pcid`, global ones included.
    pub fn hit(&self, pcid: Pcid, va: VirtAddr) -> Option<&(Translation, T)> {
        self.translations.iter().find(|(held, _)| held.serves(pcid) && held.covers(va))
    }

    /// The oldest paging-structure-cache entry that points to a table of `level` and that a walk to `va` can use under
    /// `pcid`.
    pub fn path(&self, pcid: Pcid, level: u32, va: VirtAddr) -> Option<&(Path, P)> {
        self.paths.iter().find(|(held, _)| held.pcid == pcid && held.level == level && held.leads_to(va))
    }

    /// Removes what `instruction` must invalidate on a CPU with the PCID `current`, and nothing else.
    pub fn execute(&mut self, instruction: Instruction, current: CurrentTag) {
        let invalidated = instruction.invalidates(current);
        self.translations.retain(|(held, _)| !invalidated.removes(held));
        self.paths.retain(|(held, _)| !invalidated.removes_path(held));
    }
}

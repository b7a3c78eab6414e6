//! The instructions that the guest's kernel may not execute in ring 3: their effect on its CPU, and when they fault.

use tlbkit::{Cr3, Invpcid, Pcid, VirtAddr};
use tlbkit_arch::{Instruction, is_canonical};
use tlbkit_x86::{CR4_PCIDE, CR4_PGE};

use super::state::Core;

/// The number of PCIDs.
const TAGS: u64 = 1 << 12;

/// A fault that the instruction deserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// #UD.
    Opcode,
    /// #GP(0).
    Protection,
}

impl Core {
    /// MOV to CR3.
    pub(super) fn write_cr3(&mut self, value: u64) -> Result<(), Refused> {
        let written = Cr3(value);
        let (root, tag) = (written.root(), written.pcid());
        let (flushing, keeping) = (Cr3::flushing(root, tag), Cr3::keeping(root, tag));
        // All bits except for the root, the PCID and the no-flush bit are reserved.
        if written != flushing && !(written == keeping && self.has_tags()) {
            return Err(Refused::Protection);
        }
        self.invalidate(Instruction::WriteCr3(written));
        self.cr3 = flushing;
        Ok(())
    }

    /// MOV to CR4. Only the two bits that concern translations change here.
    pub(super) fn write_cr4(&mut self, value: u64) -> Result<(), Refused> {
        let changed = value ^ self.cr4;
        let sets_tags = changed & value & CR4_PCIDE != 0;
        let may_set_tags = self.monitor.features.pcid && self.cr3.pcid() == Pcid::KERNEL;
        if changed & !(CR4_PGE | CR4_PCIDE) != 0 || sets_tags && !may_set_tags {
            return Err(Refused::Protection);
        }
        if changed & CR4_PGE != 0 {
            self.invalidate(Instruction::TogglePge);
        }
        if changed & !value & CR4_PCIDE != 0 {
            self.invalidate(Instruction::ClearPcide);
        }
        self.cr4 = value;
        self.shadow.empty();
        Ok(())
    }

    /// INVLPG: nothing at all for an address that is not canonical.
    pub(super) fn invlpg(&mut self, va: u64) -> Result<(), Refused> {
        self.invalidate(Instruction::Invlpg(VirtAddr(va)));
        Ok(())
    }

    /// INVPCID of type `kind`, with what its operand says.
    pub(super) fn invpcid(&mut self, kind: u64, [low, va]: [u64; 2]) -> Result<(), Refused> {
        if !self.monitor.features.invpcid {
            return Err(Refused::Opcode);
        }
        let (pcid, va) = (Pcid(low as u16), VirtAddr(va));
        let what = Invpcid::from_operands(kind, pcid, va).filter(|_| low < TAGS).ok_or(Refused::Protection)?;
        let is_refused = match what {
            Invpcid::Address(pcid, va) => pcid != Pcid::KERNEL && !self.has_tags() || !is_canonical(va),
            Invpcid::Single(pcid) => pcid != Pcid::KERNEL && !self.has_tags(),
            Invpcid::AllAndGlobals | Invpcid::All => false,
        };
        if is_refused {
            return Err(Refused::Protection);
        }
        self.invalidate(Instruction::Invpcid(what));
        Ok(())
    }

    /// Removes what `instruction` invalidates, before the control registers change.
    fn invalidate(&mut self, instruction: Instruction) {
        self.tlb.remove(&instruction.invalidates(self.current_tag()));
        self.shadow.empty();
    }
}

//! The instructions that the guest's kernel may not execute in ring 3: their effect on its CPU, and when they fault.

use tlbkit::{Cr3, Invpcid, Pcid, VirtAddr};
use tlbkit_arch::{Instruction, is_canonical};
use tlbkit_x86::{CR4_PCIDE, CR4_PGE};

use super::state::Core;

/// Tags that there are.
const TAGS: u64 = 1 << 12;

/// A fault that the instruction deserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// #UD.
    Opcode,
    /// #GP(0).
    Protection,
}

type Result = core::result::Result<(), Refused>;

/// `Ok` if `holds`.
fn demand(holds: bool) -> Result {
    if holds { Ok(()) } else { Err(Refused::Protection) }
}

impl Core {
    /// MOV to CR3.
    pub(super) fn write_cr3(&mut self, value: u64) -> Result {
        let written = Cr3(value);
        let (root, tag) = (written.root(), written.pcid());
        let (flushing, keeping) = (Cr3::flushing(root, tag), Cr3::keeping(root, tag));
        // What is neither root nor tag nor the no-flush bit is reserved.
        demand(written == flushing || written == keeping && self.has_tags())?;
        self.invalidate(Instruction::WriteCr3(written));
        self.cr3 = flushing;
        Ok(())
    }

    /// MOV to CR4. Only the two bits that concern translations change here.
    pub(super) fn write_cr4(&mut self, value: u64) -> Result {
        let changed = value ^ self.cr4;
        let sets_tags = changed & value & CR4_PCIDE != 0;
        demand(changed & !(CR4_PGE | CR4_PCIDE) == 0)?;
        demand(!sets_tags || self.monitor.features.pcid && self.cr3.pcid() == Pcid::KERNEL)?;
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
    pub(super) fn invlpg(&mut self, va: u64) -> Result {
        self.invalidate(Instruction::Invlpg(VirtAddr(va)));
        Ok(())
    }

    /// INVPCID of type `kind`, with what its operand says.
    pub(super) fn invpcid(&mut self, kind: u64, [low, va]: [u64; 2]) -> Result {
        if !self.monitor.features.invpcid {
            return Err(Refused::Opcode);
        }
        demand(kind <= 3 && low < TAGS)?;
        let (pcid, va) = (Pcid(low as u16), VirtAddr(va));
        demand(kind > 1 || pcid == Pcid(0) || self.has_tags())?;
        demand(kind != 0 || is_canonical(va))?;
        self.invalidate(Instruction::Invpcid(match kind {
            0 => Invpcid::Address(pcid, va),
            1 => Invpcid::Single(pcid),
            2 => Invpcid::AllAndGlobals,
            _ => Invpcid::All,
        }));
        Ok(())
    }

    /// Removes what `instruction` invalidates, before the control registers change.
    fn invalidate(&mut self, instruction: Instruction) {
        self.tlb.remove(&instruction.invalidates(self.current_tag()));
        self.shadow.empty();
    }
}

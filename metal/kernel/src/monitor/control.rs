//! The instructions that the guest's kernel may not execute in ring 3: their effect on its CPU, and when they fault.

use tlbkit_x86::{CR4_PCIDE, CR4_PGE};

use super::state::Core;

const KEEP: u64 = 1 << 63;
const CR3_RESERVED: u64 = 0x7ff << 52;
const TAG: u64 = 0xfff;

/// A fault that the instruction deserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// #UD.
    Opcode,
    /// #GP(0).
    Protection,
}

type Result = core::result::Result<(), Refused>;

const fn is_canonical(va: u64) -> bool {
    (va as i64) << 16 >> 16 == va as i64
}

/// `Ok` if `holds`.
fn demand(holds: bool) -> Result {
    if holds { Ok(()) } else { Err(Refused::Protection) }
}

impl Core {
    /// MOV to CR3.
    pub(super) fn write_cr3(&mut self, value: u64) -> Result {
        let keeps = value & KEEP != 0;
        demand(value & CR3_RESERVED == 0 && (self.has_tags() || !keeps))?;
        self.cr3 = value & !KEEP;
        match (keeps, self.has_tags()) {
            (true, _) => {}
            (false, true) => self.tlb.tag(self.tag()),
            (false, false) => self.tlb.all_but_globals(),
        }
        self.shadow.empty();
        Ok(())
    }

    /// MOV to CR4. Only the two bits that concern translations change here.
    pub(super) fn write_cr4(&mut self, value: u64) -> Result {
        let changed = value ^ self.cr4;
        let sets_tags = changed & value & CR4_PCIDE != 0;
        demand(changed & !(CR4_PGE | CR4_PCIDE) == 0)?;
        demand(!sets_tags || super::features().pcid && self.cr3 & TAG == 0)?;
        self.cr4 = value;
        if changed & CR4_PGE != 0 || changed & !value & CR4_PCIDE != 0 {
            self.tlb.all();
        }
        self.shadow.empty();
        Ok(())
    }

    /// INVLPG: nothing at all for an address that is not canonical.
    pub(super) fn invlpg(&mut self, va: u64) -> Result {
        if is_canonical(va) {
            self.tlb.invlpg(self.tag(), va);
            self.shadow.empty();
        }
        Ok(())
    }

    /// INVPCID of type `kind`, with what its operand says.
    pub(super) fn invpcid(&mut self, kind: u64, [low, va]: [u64; 2]) -> Result {
        if !super::features().invpcid {
            return Err(Refused::Opcode);
        }
        let tag = (low & TAG) as u16;
        demand(kind <= 3 && low & !TAG == 0)?;
        demand(kind > 1 || tag == 0 || self.has_tags())?;
        demand(kind != 0 || is_canonical(va))?;
        match kind {
            0 => self.tlb.page_of_tag(tag, va),
            1 => self.tlb.tag(tag),
            2 => self.tlb.all(),
            _ => self.tlb.all_but_globals(),
        }
        self.shadow.empty();
        Ok(())
    }
}

//! What is hot, as instructions in the library's own code; the interrupts by name.

use tlbkit::{Cr3, Invpcid, Pcid, VirtAddr};

use crate::hot::ipi;
use crate::ops::HardwareOps;
use crate::status::Status;

/// Nothing: the instructions stand where they are needed.
pub(crate) struct Hot;

#[allow(clippy::unused_self, reason = "a table of functions stands in its place in other builds")]
impl Hot {
    #[allow(clippy::unnecessary_wraps, reason = "as above")]
    pub(crate) const fn new(_table: &HardwareOps) -> Result<Self, Status> {
        Ok(Self)
    }

    #[inline(always)]
    pub(crate) fn write_cr3(&self, _cpu: u32, value: u64) {
        // SAFETY: ring 0, by the crate's contract; the protocol loads roots of the kernel's, and no tag where there are
        // none.
        unsafe { tlbkit_x86::write_cr3(Cr3(value)) }
    }

    #[inline(always)]
    pub(crate) fn invlpg(&self, _cpu: u32, va: u64) {
        // SAFETY: ring 0, by the crate's contract.
        unsafe { tlbkit_x86::invlpg(VirtAddr(va)) }
    }

    #[inline(always)]
    pub(crate) fn invpcid(&self, _cpu: u32, kind: u32, pcid: u32, va: u64) {
        let what = Invpcid::from_operands(u64::from(kind), Pcid(pcid as u16), VirtAddr(va)).unwrap_or(Invpcid::All);
        // SAFETY: ring 0, by the crate's contract; called only where the CPU has it.
        unsafe { tlbkit_x86::invpcid(what) }
    }

    pub(crate) fn toggle_pge(&self, _cpu: u32) {
        // SAFETY: ring 0, by the crate's contract; the protocol has turned interrupts off.
        unsafe { tlbkit_x86::toggle_pge() }
    }

    #[inline(always)]
    pub(crate) fn send_ipi(&self, cpu: u32, to: u32) {
        ipi::send(cpu, to);
    }

    #[inline(always)]
    pub(crate) fn send_ipi_to_others(&self, cpu: u32) {
        ipi::send_to_others(cpu);
    }
}

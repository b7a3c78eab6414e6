//! Loads and stores by address, of programs and of the kernel: they go through the TLB and cost what finding the page
//! costs. What they load is taken to be in the cache.

use tlbkit::{PhysAddr, VirtAddr};

use super::processor::Processor;
use crate::mmu::{Access, Fault, Hit, Overlap, Privilege, Source, Tables};
use crate::observer::Cause;

impl Processor {
    /// An access of the running program. Charges for it and says where it goes, and what found that.
    ///
    /// # Errors
    /// The fault that it raises; what the handler costs is not charged.
    #[inline]
    pub(crate) fn access_as_user(
        &self,
        va: u64,
        access: Access,
        overlap: Overlap,
        tables: &impl Tables,
    ) -> Result<(PhysAddr, Source), Fault> {
        let result = self.mmu.borrow_mut().translate(VirtAddr(va), access, Privilege::User, overlap, tables);
        let Hit { pa, cost } = match result {
            Ok(hit) => hit,
            Err(fault) => {
                self.advance_for(Cause::WalkUser, u64::from(fault.cost.cycles));
                return Err(fault);
            }
        };
        match cost.source {
            // Two loads start in a cycle; what they load is in the first-level cache.
            Source::L1 => {
                let half = self.half.get() + 1;
                self.half.set(half & 1);
                self.advance_for(Cause::User, u64::from(half >> 1));
            }
            Source::Stlb => self.advance_for(Cause::User, u64::from(cost.cycles)),
            Source::Walk => self.advance_for(Cause::WalkUser, u64::from(cost.cycles)),
        }
        Ok((pa, cost.source))
    }

    /// A load by the kernel from its own addresses. Charges for its translation and says where it goes.
    ///
    /// # Errors
    /// The fault that it raises, for which nothing is charged.
    pub(crate) fn load_as_kernel(&self, va: u64, tables: &impl Tables) -> Result<PhysAddr, Fault> {
        let mut mmu = self.mmu.borrow_mut();
        let hit = mmu.translate(VirtAddr(va), Access::Read, Privilege::Kernel, Overlap::Independent, tables)?;
        self.advance_for(Cause::WalkKernel, u64::from(hit.cost.cycles));
        Ok(hit.pa)
    }
}

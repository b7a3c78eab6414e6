//! What choices of older kernels do on the protocol's paths: counted lazy references, the CPU set that nobody reads,
//! counters. What the protocol calls tests its flag first, which is zero in a build without the feature.

use super::ENABLED;
use super::choices::flag;
use super::state::Counters;
use super::stats::{CpuStats, Place};
use crate::addr::SpaceToken;
use crate::cpu::{Cpu, Tlb};
use crate::flush::request::Request;
use crate::hardware::{Event, Hardware};
use crate::policy::Reason;
use crate::space::cpu_set::AtomicCpuSet;
use crate::space::{AddressSpace, SpaceId};
use crate::sync::Ordering;

impl<'k> Tlb<'k> {
    /// Counts into `stats`, one for each CPU, if the policy says so.
    #[must_use]
    pub fn counting_into(mut self, stats: &'k [CpuStats]) -> Self {
        self.counters = Counters::new(&self.policy().history, stats);
        self
    }

    /// CPUs that run on the kernel's own page tables; written only under [`KernelSet::Written`](crate::KernelSet),
    /// never read.
    ///
    /// # Panics
    /// Without the feature `history`.
    #[must_use]
    pub fn kernel_set(&self) -> AtomicCpuSet<'k> {
        if !ENABLED {
            panic!("there is no such set without the feature `history`");
        }
        self.matrix.row(1)
    }
}

impl<'k, H: Hardware> Cpu<'_, 'k, H> {
    /// Its counters, when flushes are counted.
    #[must_use]
    pub fn stats(&self) -> Option<&'k CpuStats> {
        self.tlb.counters.of_cpu(self.id.0 as usize)
    }

    /// This CPU enters lazy TLB mode: counts it as a holder of the space that stays loaded. The kernel's own page
    /// tables are lazy already.
    pub(crate) fn count_lazy(&self) {
        if self.has_flag(flag::LAZY_COUNTED) && !self.presence().is_lazy() {
            self.with_space_of(SpaceToken(self.state.token.get()), |space| space.references.add());
        }
    }

    /// This CPU holds `space` in lazy TLB mode no longer.
    pub(crate) fn uncount_lazy(&self, space: &AddressSpace<H::Set>) {
        if self.has_flag(flag::LAZY_COUNTED) {
            self.drop_counted_reference(space);
        }
    }

    #[cold]
    fn drop_counted_reference(&self, space: &AddressSpace<H::Set>) {
        if space.references.remove(1) {
            self.give_pcid_back(space);
            self.hardware.event(Event::LastLazyReference(space.token));
        }
    }

    pub(crate) fn join_kernel_set(&self) {
        if self.has_flag(flag::KERNEL_SET) {
            // Relaxed: nobody reads this set; it is here for what it costs.
            self.tlb.kernel_set().add(self.id, Ordering::Relaxed);
        }
    }

    pub(crate) fn leave_kernel_set(&self) {
        if self.has_flag(flag::KERNEL_SET) {
            // Relaxed: nobody reads this set; it is here for what it costs.
            self.tlb.kernel_set().remove(self.id, Ordering::Relaxed);
        }
    }

    /// The time at which a flush begins, if flushes are counted.
    pub(crate) fn clock(&self) -> u64 {
        if self.has_flag(flag::ACCOUNTING) { self.hardware.now_cycles() } else { 0 }
    }

    /// Counts a flush that began at `began` and had so many responders.
    pub(crate) fn count(&self, request: &Request<'_>, reason: Reason, responders: u32, began: u64) {
        if self.has_flag(flag::ACCOUNTING) {
            self.add_to_counters(request, reason, responders, self.hardware.now_cycles().wrapping_sub(began));
        }
    }

    #[cold]
    fn add_to_counters(&self, request: &Request<'_>, reason: Reason, responders: u32, cycles: u64) {
        let Some(stats) = self.stats() else { return };
        let here = if request.space == SpaceId::KERNEL { Place::Kernel } else { Place::Local };
        stats.add(reason, here, 1);
        stats.add(reason, Place::Remote, u64::from(responders));
        stats.add_size(request.pages(), cycles);
    }
}

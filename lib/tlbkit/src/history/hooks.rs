//! What older choices do in the protocol's paths: counted lazy references, the set that nobody reads, counters.

use super::choices::flag;
use super::state::Counters;
use super::stats::{CpuStats, Place};
use crate::addr::SpaceToken;
use crate::address_space::{AddressSpace, Destroyed};
use crate::cpu_set::AtomicCpuSet;
use crate::hardware::{Event, Hardware};
use crate::reason::Reason;
use crate::request::Request;
use crate::sync::Ordering;
use crate::tlb::{Cpu, Tlb};

impl<'k> Tlb<'k> {
    /// Counts into `stats`, one a CPU, if the policy says so.
    #[must_use]
    pub fn counting_into(mut self, stats: &'k [CpuStats]) -> Self {
        self.counters = Counters::new(&self.policy().history, stats);
        self
    }

    /// CPUs that run the kernel's own tables; written only under [`KernelSet::Written`](crate::KernelSet), never read.
    #[must_use]
    pub fn kernel_set(&self) -> AtomicCpuSet<'k> {
        self.matrix.row(1)
    }
}

#[cfg(all(feature = "observe", not(loom)))]
impl<S> AddressSpace<S> {
    /// Where lazy references are counted, for a simulator: kernels that count them all along have that word in a cache
    /// line of its own.
    #[must_use]
    pub fn count_address(&self) -> usize {
        core::ptr::from_ref(&self.references).addr()
    }
}

impl<'k, H: Hardware> Cpu<'_, 'k, H> {
    /// Its counters, when flushes are counted.
    #[must_use]
    pub fn stats(&self) -> Option<&'k CpuStats> {
        self.tlb.counters.of(self.id.0 as usize)
    }

    /// This CPU goes idle: counts the space that stays loaded. The kernel's own tables count as lazy already.
    #[inline(always)]
    pub(crate) fn keep_lazily(&self) {
        if self.has_flag(flag::COUNTED) && !self.presence().is_lazy() {
            self.with_space_of(SpaceToken(self.state.token.get()), |space| space.references.add());
        }
    }

    /// This CPU holds `space` lazily no longer.
    #[inline(always)]
    pub(crate) fn let_go(&self, space: &AddressSpace<H::Set>) {
        if self.has_flag(flag::COUNTED) {
            self.uncount(space);
        }
    }

    #[cold]
    fn uncount(&self, space: &AddressSpace<H::Set>) {
        if space.references.remove(1) {
            self.hardware.event(Event::LastLazyReference(space.token));
        }
    }

    /// The end of a space whose lazy references are counted: nobody is asked, and the last CPU that leaves will say so.
    pub(crate) fn end_counted(&self, space: &AddressSpace<H::Set>) -> Option<Destroyed> {
        let is_free =
            || if space.references.begin_counted_wait() { Destroyed::Now } else { Destroyed::WhenUnreferenced };
        self.has_flag(flag::COUNTED).then(is_free)
    }

    #[inline(always)]
    pub(crate) fn join_kernel_set(&self) {
        if self.has_flag(flag::KERNEL_SET) {
            // Relaxed: nobody reads this set; it is here for what it costs.
            self.tlb.kernel_set().add(self.id, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(crate) fn leave_kernel_set(&self) {
        if self.has_flag(flag::KERNEL_SET) {
            // Relaxed: nobody reads this set; it is here for what it costs.
            self.tlb.kernel_set().remove(self.id, Ordering::Relaxed);
        }
    }

    /// When a flush that is counted begins.
    #[inline(always)]
    pub(crate) fn clock(&self) -> u64 {
        if self.has_flag(flag::COUNTS) { self.hardware.now_cycles() } else { 0 }
    }

    /// Counts a flush that began at `began` and asked so many responders.
    #[inline(always)]
    pub(crate) fn count(&self, request: &Request<'_>, reason: Reason, responders: u32, began: u64) {
        if self.has_flag(flag::COUNTS) {
            self.add_to_counters(request, reason, responders, self.hardware.now_cycles().wrapping_sub(began));
        }
    }

    #[cold]
    fn add_to_counters(&self, request: &Request<'_>, reason: Reason, responders: u32, cycles: u64) {
        let Some(stats) = self.stats() else { return };
        let here = if request.space.0 == 0 { Place::Kernel } else { Place::Local };
        stats.add(reason, here, 1);
        stats.add(reason, Place::Remote, u64::from(responders));
        stats.add_size(request.pages(), cycles);
    }
}

//! What the next CPU begins with is brought into the host's caches while another acts. Of thousands of CPUs none is
//! there still when its turn comes, and each line would be waited for after the one that leads to it.

use std::cell::Cell;

use super::core::Core;

/// Bytes of a host's cache line.
const LINE_BYTES: usize = 64;
/// Lines of a stack, from the frame that suspended on, that a CPU touches when it goes on: the frames of a system call
/// and its wait.
const STACK_LINES: usize = 6;

/// Where on its stack each CPU was when it was suspended: an address, or 0.
pub(crate) struct Frames(Box<[Cell<usize>]>);

impl Frames {
    pub(crate) fn new(cpus: usize) -> Self {
        Self(vec![Cell::new(0); cpus].into())
    }

    /// Notes the caller's frame as that of the CPU.
    #[inline(always)]
    pub(crate) fn note(&self, cpu: usize) {
        let here = 0_u8;
        self.0[cpu].set((&raw const here).addr());
    }

    /// Fetches the stack, the core and what it runs.
    #[inline]
    pub(crate) fn fetch<R>(&self, cpu: usize, core: &Core, run: &R) {
        lines(self.0[cpu].get(), STACK_LINES);
        lines((&raw const *core).addr(), size_of::<Core>().div_ceil(LINE_BYTES));
        lines((&raw const *run).addr(), size_of::<R>().div_ceil(LINE_BYTES));
    }
}

/// Has the host fetch the line of `address` and those behind it, `count` in all. Nothing on hosts without the hint.
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the hint takes any address"))]
#[inline(always)]
fn lines(address: usize, count: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..count {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let at = std::ptr::without_provenance::<i8>(address.wrapping_add(line * LINE_BYTES));
        // SAFETY: a hint: nothing is read that the program could see, and where nothing is mapped nothing happens.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (address, count);
}

//! Hints to the host's caches: what is about to be needed is fetched while something else goes on.

use std::cell::Cell;

/// Bytes of a host's cache line.
const LINE_BYTES: usize = 64;

/// Fetches an object into the host's caches.
#[inline]
pub(crate) fn prefetch<T>(object: &T) {
    prefetch_lines((&raw const *object).addr(), size_of::<T>().div_ceil(LINE_BYTES));
}

/// Has the host fetch the line of `address` and those behind it, `count` in all. Nothing on hosts without the hint.
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "the hint takes any address"))]
#[inline(always)]
pub(crate) fn prefetch_lines(address: usize, count: usize) {
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

/// Lines of a stack, from the frame that suspended on, that a CPU touches when it goes on: the frames of a system call
/// and its wait.
const STACK_LINES: usize = 6;

/// Where on its stack each CPU was when it was suspended, an address or 0: while one CPU acts, what the next one will
/// begin with is fetched into the host's caches.
///
/// With thousands of simulated CPUs, the host's caches no longer hold a CPU's data when its turn comes, and each cache
/// line would be found only after the one that points to it.
pub(crate) struct Frames(Box<[Cell<usize>]>);

impl Frames {
    pub(crate) fn new(cpus: usize) -> Self {
        Self(vec![Cell::new(0); cpus].into())
    }

    /// Records the caller's frame as that of the CPU.
    #[inline(always)]
    pub(crate) fn record(&self, cpu: usize) {
        let here = 0_u8;
        self.0[cpu].set((&raw const here).addr());
    }

    /// Fetches the part of its stack that the CPU goes on with.
    #[inline]
    pub(crate) fn prefetch(&self, cpu: usize) {
        prefetch_lines(self.0[cpu].get(), STACK_LINES);
    }
}

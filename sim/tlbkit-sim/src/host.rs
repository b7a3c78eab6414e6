//! Hints to the host's caches: what is about to be needed is fetched while something else goes on.

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

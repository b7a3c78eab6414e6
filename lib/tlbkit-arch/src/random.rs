//! SplitMix64. It is implemented here rather than taken from a crate because a seed must give the same numbers on every
//! host and in every future version.
//!
//! The generator is that of Steele, Lea and Flood (2014), in Vigna's form; the tests compare it with its published
//! numbers. Everything random that decides a result, such as a schedule or the choices of a workload, must come from
//! it.

/// The increment of the state: 2⁶⁴ divided by the golden ratio.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes 64 bits. It is a bijection: no two values give the same result.
#[inline]
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The sequence of one seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of `seed`.
    #[inline]
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// The next number below `limit`; 0 if `limit` is 0.
    #[inline]
    pub const fn below(&mut self, limit: u64) -> u64 {
        ((self.bits() as u128 * limit as u128) >> 64) as u64
    }
}

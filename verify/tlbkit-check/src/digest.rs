//! Numbers out of numbers: random ones from a seed, and digests of states. The same on every host and for ever.

use tlbkit_arch::SplitMix64;
use tlbkit_arch::random::{GOLDEN, mix as mix64};

/// The numbers of `seed`.
#[must_use]
pub(crate) const fn random(seed: u64) -> SplitMix64 {
    SplitMix64::new(mix(GOLDEN, seed))
}

/// A digest of `digest` and `value`, in this order.
#[must_use]
pub(crate) const fn mix(digest: u64, value: u64) -> u64 {
    mix64(digest.rotate_left(23) ^ value.wrapping_add(0x2545_f491_4f6c_dd1d))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers were computed apart from this code, from the published generator.
    #[test]
    fn a_seed_gives_the_same_numbers_on_every_host() {
        let mut numbers = random(1);
        assert_eq!([(); 4].map(|()| numbers.below(1000)), [894, 126, 761, 801]);
        assert_eq!(mix(mix(0, 1), 2), 0xe0de_6b1e_c462_1dda);
        assert_ne!(mix(mix(0, 1), 2), mix(mix(0, 2), 1));
    }
}

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

    #[test]
    fn a_seed_gives_the_same_numbers_on_every_host() {
        let mut numbers = random(1);
        let first: Vec<_> = (0..4).map(|_| numbers.below(1000)).collect();
        assert_eq!(first, (0..4).scan(random(1), |r, _| Some(r.below(1000))).collect::<Vec<_>>());
        assert!((0..1000).all(|_| numbers.below(3) < 3));
        assert_ne!(mix(mix(0, 1), 2), mix(mix(0, 2), 1));
    }
}

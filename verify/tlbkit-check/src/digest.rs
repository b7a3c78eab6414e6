//! Numbers out of numbers: random ones from a seed, and digests of states. The same on every host and for ever, which
//! is why no crate is asked.

/// Numbers that look random, from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    #[must_use]
    pub(crate) const fn new(seed: u64) -> Self {
        Self(mix(0x9e37_79b9_7f4a_7c15, seed))
    }

    /// The next 64 bits.
    pub(crate) const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        finish(self.0)
    }

    /// The next number below `n`, which is not 0.
    pub(crate) const fn below(&mut self, n: u64) -> u64 {
        ((self.bits() as u128 * n as u128) >> 64) as u64
    }
}

const fn finish(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// A digest of `digest` and `value`, in this order.
#[must_use]
pub(crate) const fn mix(digest: u64, value: u64) -> u64 {
    finish(digest.rotate_left(23) ^ value.wrapping_add(0x2545_f491_4f6c_dd1d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_on_every_host() {
        let mut random = Random::new(1);
        let first: Vec<_> = (0..4).map(|_| random.below(1000)).collect();
        assert_eq!(first, (0..4).scan(Random::new(1), |r, _| Some(r.below(1000))).collect::<Vec<_>>());
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_ne!(mix(mix(0, 1), 2), mix(mix(0, 2), 1));
    }
}

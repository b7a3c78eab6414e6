//! Random programs from a seed.

use super::Program;
use super::bytes::Bytes;
use crate::digest;

const BYTES: usize = 160;

impl Program {
    /// The random program of `seed`.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        Self::read(&mut Bytes::new(&bytes(seed)))
    }

    /// The random program of `seed` in the later family.
    #[must_use]
    pub fn random_later(seed: u64) -> Self {
        Self::read_later(&mut Bytes::new(&bytes(seed)))
    }

    /// The random program of `seed` in the guests' family.
    #[must_use]
    pub fn random_guest(seed: u64) -> Self {
        Self::read_guest(&mut Bytes::new(&bytes(seed)))
    }
}

fn bytes(seed: u64) -> Vec<u8> {
    let mut random = digest::random(seed);
    (0..BYTES).map(|_| random.below(256) as u8).collect()
}

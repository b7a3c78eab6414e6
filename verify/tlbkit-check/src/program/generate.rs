//! Random programs from a seed.

use super::Program;
use super::bytes::Bytes;
use crate::digest;

const BYTES: usize = 160;

impl Program {
    /// The random program of `seed`.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut random = digest::random(seed);
        let bytes: Vec<u8> = (0..BYTES).map(|_| random.below(256) as u8).collect();
        Self::read(&mut Bytes::new(&bytes))
    }
}

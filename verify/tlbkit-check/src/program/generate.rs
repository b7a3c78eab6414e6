//! Random programs from a seed.

use super::bytes::Bytes;
use super::{Access, Op, Program};
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
        with_walkers(seed, Self::read_later(&mut Bytes::new(&bytes(seed))))
    }

    /// The random program of `seed` in the guests' family.
    #[must_use]
    pub fn random_guest(seed: u64) -> Self {
        with_walkers(seed, Self::read_guest(&mut Bytes::new(&bytes(seed))))
    }
}

/// In one program of four the kernel walks to pages without a lock where the program would load from them.
fn with_walkers(seed: u64, mut program: Program) -> Program {
    if (seed / 4).is_multiple_of(4) {
        for op in program.cpus.iter_mut().flatten() {
            if let Op::Touch(page, Access::Read) = *op {
                *op = Op::Walk(page);
            }
        }
    }
    program
}

fn bytes(seed: u64) -> Vec<u8> {
    let mut random = digest::random(seed);
    (0..BYTES).map(|_| random.below(256) as u8).collect()
}

//! Random numbers that are the same in every build: those of the simulator, so that a run with the same seed draws the
//! same numbers on both machines.

/// Scrambles 64 bits.
const fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// A sequence of numbers from a seed.
#[derive(Clone, Copy)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of the sequence.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// The seed of the task that was started as the run's `number`-th.
pub(crate) const fn seed_of_task(seed_of_run: u64, number: u64) -> u64 {
    mix(seed_of_run ^ mix(number + 1))
}

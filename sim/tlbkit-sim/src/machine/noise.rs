//! What differs from one run of a real machine to the next, as numbers with their sources: `sim/machines/noise.toml`.

use serde::{Deserialize, Serialize};

use super::quantity::{Limit, Quantity, amount, count, quantities};
use super::shared::same_for_all;

/// Whether a run differs from others by more than its workload's own random numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Noise {
    /// It does not: the same steps take the same cycles, whatever the seed.
    #[default]
    Off,
    /// Timer ticks, interrupts, steps of programs and starts of tasks vary with the seed.
    On,
}

quantities! {
    /// How much what varies.
    NoiseModel {
        /// Timer ticks a second of a CPU that runs a task; each CPU's come at a phase of their own.
        tick_hz: count(1, 10_000),
        /// What a tick's handler takes.
        tick_ns: amount(0.0, 1e6),
        /// How much longer or shorter an interrupt is under way, evenly spread.
        delivery_spread_percent: amount(0.0, 90.0),
        /// How often a second a balancer moves a task that runs to a CPU that idles, if it may leave its own; at ticks.
        balance_hz: amount(0.0, 100.0),
        /// How many milliseconds, for each CPU of the socket, a task shares its core while another core of the socket
        /// idles, before a balancer moves it there; at ticks.
        part_ms_per_cpu: amount(0.0, 1000.0),
        /// Part of a kernel's time in which interrupts are off, besides what the simulation turns off itself.
        irqs_off_percent: amount(0.0, 90.0),
        /// How long they are off then, on average; exponentially distributed.
        irqs_off_ns: amount(0.0, 1e7),
        /// How much longer or shorter a program computes than it asked for, evenly spread.
        work_spread_percent: amount(0.0, 90.0),
        /// How much later a task may come to its first instruction, evenly spread.
        start_spread_ns: amount(0.0, 1e9),
    }
}

same_for_all!(NoiseModel, "noise.", "noise.toml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_and_holds_to_its_limits() {
        let model = NoiseModel::builtin();
        assert_eq!(model.quantities().len(), 9);
        assert!(model.tick_hz.value > 0.0);
    }
}

//! Files of numbers that hold for every machine, and are part of the program: `sim/machines/noise.toml`, what differs
//! from one run of a real machine to the next, and `sim/machines/cold.toml`, how fast work pushes the kernel's code and
//! data out of a core's caches.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::check::first_complaint;
use super::quantity::{Limit, Quantity, amount, quantities, whole};

/// The numbers of a built-in file that holds for every machine, read from its `text`.
///
/// # Panics
/// If the file is wrong: it is part of the program.
fn numbers<T: DeserializeOwned>(
    file: &str,
    text: &str,
    visit: for<'q> fn(&'q T, &mut dyn FnMut(String, &'q Quantity, Limit)),
) -> T {
    let numbers: T = toml::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
    if let Some(complaint) = first_complaint(file, text, |each| visit(&numbers, each)) {
        panic!("{complaint}");
    }
    numbers
}

/// Makes such a file a part of the program: `$model` is what `sim/machines/$file` holds, and is read once. The names of
/// its numbers begin with `$prefix`.
macro_rules! same_for_all {
    ($model:ident, $prefix:literal, $file:literal) => {
        impl $model {
            /// The numbers of the file, which is part of the program.
            #[must_use]
            pub fn builtin() -> &'static Self {
                static MODEL: std::sync::LazyLock<$model> = std::sync::LazyLock::new(|| {
                    let text = include_str!(concat!("../../machines/", $file));
                    numbers(concat!("sim/machines/", $file), text, |model: &$model, each| model.visit($prefix, each))
                });
                &MODEL
            }

            /// Every number with its name, in the order of the file.
            #[must_use]
            pub fn quantities(&self) -> Vec<(String, &Quantity)> {
                let mut all = Vec::new();
                self.visit($prefix, &mut |name, quantity, _: Limit| all.push((name, quantity)));
                all
            }
        }
    };
}

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
        /// Timer ticks a second of a CPU that runs a task; each CPU's come at a separate phase.
        tick_hz: whole(1, 10_000),
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

quantities! {
    /// What work brings into the caches, and what a line costs that it pushed out.
    ColdModel {
        /// Lines of code that come into the first level in a thousand cycles of work.
        code_lines_per_kilocycle: amount(0.0, 1000.0),
        /// Lines of data, likewise.
        data_lines_per_kilocycle: amount(0.0, 1000.0),
        /// Lines of either that come into the second level.
        l2_lines_per_kilocycle: amount(0.0, 1000.0),
        /// How much of a line's latency the kernel waits for; other work hides the rest.
        stall_percent: amount(0.0, 100.0),
    }
}

same_for_all!(ColdModel, "cold.", "cold.toml");

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

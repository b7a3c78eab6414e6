//! How fast work pushes the kernel's code and data out of a core's caches: `sim/machines/cold.toml`, the same for every
//! machine.

use super::quantity::{Limit, Quantity, amount, quantities};
use super::shared::same_for_all;

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

//! How fast work pushes the kernel's code and data out of a core's caches: `sim/machines/cold.toml`, the same for every
//! machine.

use std::sync::LazyLock;

use super::check::shared;
use super::quantity::{Limit, Quantity, amount, quantities};

const FILE: &str = include_str!("../../../machines/cold.toml");

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

static MODEL: LazyLock<ColdModel> =
    LazyLock::new(|| shared("sim/machines/cold.toml", FILE, |model, each| model.visit("cold.", each)));

impl ColdModel {
    /// The numbers of the file, which is part of the program.
    #[must_use]
    pub fn builtin() -> &'static Self {
        &MODEL
    }

    /// Every number with its name, in the order of the file.
    #[must_use]
    pub fn quantities(&self) -> Vec<(String, &Quantity)> {
        let mut all = Vec::new();
        self.visit("cold.", &mut |name, quantity, _: Limit| all.push((name, quantity)));
        all
    }
}

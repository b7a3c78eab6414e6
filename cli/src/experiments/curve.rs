//! A quantity that a file has for several numbers of tasks: which numbers these are, and the curve of ours beside the
//! published one.

use anyhow::{Result, ensure};

use super::reproduction::Reproduction;
use crate::output::svg::{Curve, Draw, Ink, Point};

/// The quantity, by how its name begins in the file; the number of tasks follows.
#[derive(Clone, Copy)]
pub(super) struct ByTasks(pub(super) &'static str);

impl ByTasks {
    /// What the file calls it for so many.
    pub(super) fn name(self, tasks: u64) -> String {
        format!("{}{tasks}", self.0)
    }

    /// The numbers of tasks that the file expects it for, and the one of them whose outcomes are set out in full.
    pub(super) fn counts(self, reproduction: &Reproduction) -> Result<(Vec<u64>, u64)> {
        let expected = reproduction.experiment.expected.iter();
        let counts = expected.filter_map(|expected| expected.quantity.strip_prefix(self.0)?.parse().ok());
        let (counts, compared) = (Vec::from_iter(counts), reproduction.number("compared")? as u64);
        let name = self.name(compared);
        ensure!(counts.contains(&compared), "compared = {compared}: the file expects no `{name}`");
        Ok((counts, compared))
    }

    /// What is published for these numbers, and `ours`, in their order.
    pub(super) fn curves(self, reproduction: &Reproduction, counts: &[u64], ours: &[f64]) -> Result<Vec<Curve>> {
        let published =
            counts.iter().map(|&tasks| reproduction.published(&self.name(tasks))).collect::<Result<Vec<_>>>()?;
        let point = |(&tasks, &y): (&u64, &f64)| Point { x: tasks as f64, y, spread: None };
        let curve = |ink, label: &str, values: &[f64]| Curve {
            label: label.into(),
            ink,
            tone: 0,
            draw: Draw::Both,
            points: counts.iter().zip(values).map(point).collect(),
        };
        Ok(vec![curve(Ink::Published, "published", &published), curve(Ink::Ours, "ours", ours)])
    }
}

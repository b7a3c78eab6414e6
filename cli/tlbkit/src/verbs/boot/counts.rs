//! What the kernel counted. Counts are right on every machine, emulated or not; cycles are not.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::qemu::Qemu;
use crate::output::table::grid;

/// One boot with a workload.
#[derive(Clone, Debug)]
pub(super) struct KernelRun {
    pub(super) name: String,
    /// The kernel's last line.
    pub(super) result: Value,
    pub(super) seconds: f64,
}

/// Counters in the order of the table, and what they are called there.
const ROWS: &[(&str, &str)] = &[
    ("score", "score"),
    ("flushes", "flushes"),
    ("full_flushes", "  of everything"),
    ("flush_pages", "pages of the others"),
    ("pages", "pages invalidated singly"),
    ("everything", "invalidations of all"),
    ("cr3", "CR3 writes"),
    ("ipis_sent", "flush interrupts sent"),
    ("ipis_received", "flush interrupts received"),
    ("switches", "switches"),
    ("switches_kept", "  that kept entries"),
    ("switches_flushed", "  that flushed"),
    ("syscalls", "system calls"),
    ("faults", "page faults"),
];

impl KernelRun {
    /// Boots with `words`.
    pub(super) fn of(name: &str, qemu: &Qemu<'_>, words: &str) -> Result<Self> {
        let ended = qemu.boot(words)?;
        Ok(Self { name: name.to_owned(), result: ended.result, seconds: ended.seconds })
    }

    /// A number that the kernel told; 0 if it did not.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.result[name].as_u64().unwrap_or(0)
    }

    /// All that the kernel told, as one row.
    pub(super) fn json_row(&self, qemu: &Qemu<'_>) -> Value {
        let mut row = Map::new();
        row.insert("run".into(), json!(self.name));
        row.insert("accelerator".into(), json!(qemu.accelerator.word()));
        row.insert("boot_to_result_seconds".into(), json!((self.seconds * 1e3).round() / 1e3));
        let told = self.result.as_object().into_iter().flatten().filter(|(key, _)| *key != "kind");
        row.extend(told.map(|(key, value)| (key.clone(), value.clone())));
        Value::Object(row)
    }
}

/// A column a run.
pub(super) fn table(runs: &[KernelRun]) -> String {
    let head: Vec<_> = ["count".to_owned()].into_iter().chain(runs.iter().map(|run| run.name.clone())).collect();
    let cells = |key: &str| runs.iter().map(|run| run.number(key).to_string()).collect::<Vec<_>>();
    let rows: Vec<_> =
        ROWS.iter().map(|&(key, title)| [title.to_owned()].into_iter().chain(cells(key)).collect::<Vec<_>>()).collect();
    grid(&head, &rows)
}

//! Flushes by size, with what their local halves cost: the table of the page-table-isolation measurement.

use std::collections::BTreeMap;

use serde::Serialize;

/// Flushes of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SizeRow {
    /// Pages; none for everything.
    pub pages: Option<u32>,
    /// How many flushes there were.
    pub flushes: u64,
    /// Cycles of their local halves.
    pub cycles: u64,
}

/// Flushes by size.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlushSizes(BTreeMap<Option<u32>, SizeRow>);

impl FlushSizes {
    pub(crate) fn add(&mut self, pages: Option<u32>, cycles: u64) {
        let row = self.0.entry(pages).or_insert(SizeRow { pages, ..SizeRow::default() });
        row.flushes += 1;
        row.cycles += cycles;
    }

    /// Rows by size, that of everything first.
    pub(crate) fn rows(&self) -> Vec<SizeRow> {
        self.0.values().copied().collect()
    }
}

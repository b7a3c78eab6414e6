//! The flush-size table in the very columns of the document, so that the two can be laid side by side.

/// One size and what its flushes cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SizeRow {
    /// Pages of the flush.
    pub(crate) size_pages: u32,
    /// Its share of all flushes.
    pub(crate) percent: f64,
    /// The share of all flushes up to this size.
    pub(crate) cumulative: f64,
    /// Mean cycles of a flush.
    pub(crate) cycles: f64,
    /// How many flushes were timed.
    pub(crate) samples: u64,
}

impl SizeRow {
    /// A row of a published table with the columns size, percent, cumulative, cycles, cycles a page, samples.
    #[cfg(test)]
    pub(crate) fn from_cells(cells: &[f64]) -> Option<SizeRow> {
        let &[size, percent, cumulative, cycles, _, samples] = cells else { return None };
        Some(SizeRow { size_pages: size as u32, percent, cumulative, cycles, samples: samples as u64 })
    }
}

/// Formats one row.
pub(crate) fn line(row: &SizeRow) -> String {
    let per_page = row.cycles / f64::from(row.size_pages.max(1));
    format!(
        "{:>6}: {:>6.2}% {:>6.2}% avg cycles: {:>5} cycles/page: {:>4} samples: {}",
        row.size_pages,
        row.percent,
        row.cumulative,
        row.cycles.round(),
        per_page.floor(),
        row.samples
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::read::builtin;

    #[test]
    fn the_layout_is_the_documents() {
        let pti = builtin("pti");
        let table = pti.table("invpcid").unwrap();
        let shown = |index: usize| line(&SizeRow::from_cells(&table.rows[index]).unwrap());
        assert_eq!(shown(0), "     1:  91.70%  93.49% avg cycles:  1094 cycles/page: 1094 samples: 1238264");
        assert_eq!(shown(4), "     5:   0.01%  96.43% avg cycles:  3875 cycles/page:  775 samples: 159");
        assert_eq!(shown(24), "   133:   0.01%  99.99% avg cycles: 73157 cycles/page:  550 samples: 129");
    }

    #[test]
    fn every_published_row_of_both_tables_comes_out_with_its_own_cycles_a_page() {
        let pti = builtin("pti");
        for row in ["invpcid", "cr3"].iter().flat_map(|id| &pti.table(id).unwrap().rows) {
            let text = line(&SizeRow::from_cells(row).unwrap());
            assert!(text.contains(&format!("cycles/page: {:>4} ", row[4])), "{text} against {}", row[4]);
        }
    }
}

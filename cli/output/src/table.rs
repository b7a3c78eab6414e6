//! Tables on a terminal: plain ASCII, the same bytes wherever it runs; colour only where a person is looking.

use std::io::IsTerminal;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, presets};

pub use comfy_table::{Attribute, Cell, Color, Table};

use super::fitting;

/// Whether the verdict may be coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Bytes that can be compared.
    Plain,
    /// For a terminal.
    Colour,
}

impl Style {
    /// Colour if standard output is a terminal and the user has not asked for none.
    pub fn of_stdout() -> Style {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !refused { Style::Colour } else { Style::Plain }
    }
}

/// Columns that a table of words takes at most, and where the terminal has fewer, at least.
const WORDS_WIDTH: u16 = 110;
const WORDS_WIDTH_LEAST: u16 = 60;

/// A table of text; all but the first column are aligned to the right.
pub fn grid<H: AsRef<str>>(head: &[H], rows: &[Vec<String>]) -> String {
    let mut table = bare(Style::Plain);
    table.set_header(head.iter().map(AsRef::as_ref));
    table.add_rows(rows);
    align_right(&mut table, 1..head.len());
    text(&table)
}

/// A table of words, wrapped so that a line fits most terminals.
pub fn words(head: [&str; 2], rows: &[[String; 2]]) -> String {
    let width = fitting::columns().and_then(|columns| u16::try_from(columns).ok()).unwrap_or(WORDS_WIDTH);
    words_within(head, rows, width.clamp(WORDS_WIDTH_LEAST, WORDS_WIDTH))
}

fn words_within(head: [&str; 2], rows: &[[String; 2]], width: u16) -> String {
    let mut table = bare(Style::Plain);
    table.set_header(head).add_rows(rows).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    // Names stay whole, to be copied.
    if let Some(names) = table.column_mut(0) {
        names.set_constraint(ColumnConstraint::ContentWidth);
    }
    text(&table)
}

/// A table without rows, in our look.
#[must_use]
pub fn bare(style: Style) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    match style {
        Style::Plain => table.force_no_tty(),
        Style::Colour => table.enforce_styling(),
    };
    table
}

/// Aligns the columns of such indices to the right.
pub fn align_right(table: &mut Table, columns: std::ops::Range<usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// The lines of a table without blanks at their ends: editors strip them and snapshots would differ.
#[must_use]
pub fn text(table: &Table) -> String {
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_aligns_numbers_to_the_right() {
        let head = ["policy".to_owned(), "ipis".to_owned()];
        let rows = [vec!["a".to_owned(), "9".to_owned()], vec!["b".to_owned(), "1234567".to_owned()]];
        assert!(grid(&head, &rows).contains("| a      |       9 |\n| b      | 1234567 |\n"));
    }

    #[test]
    fn words_go_to_the_next_line_where_they_do_not_fit() {
        let rows = [["linux-3.4".to_owned(), "every flush is a full one; ".repeat(6)]];
        let text = words(["policy", "what it is"], &rows);
        assert!(text.starts_with("| policy    | what it is "), "{text}");
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.len() <= WORDS_WIDTH.into()), "{text}");
    }

    #[test]
    fn words_follow_the_terminal_and_names_stay_whole() {
        let rows = [["a-name-that-is-to-be-copied".to_owned(), "words ".repeat(20)]];
        let text = words_within(["name", "what it is"], &rows, 60);
        assert!(text.lines().all(|line| line.len() <= 60), "{text}");
        assert!(text.contains("| a-name-that-is-to-be-copied | words words words "), "{text}");
    }
}

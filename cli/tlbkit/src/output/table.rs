//! Figures on a terminal: plain ASCII, the same bytes wherever it runs; colour only where a person is looking.

use std::io::IsTerminal;

use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, presets};

use super::{fitting, number};
use crate::published::claim::Claim;
use crate::published::figure::{Figure, Verdict};
use crate::published::tally::Tally;

/// Whether the verdict may be coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Bytes that can be compared.
    Plain,
    /// For a terminal.
    Colour,
}

impl Style {
    /// Colour if standard output is a terminal and the user has not asked for none.
    pub(crate) fn of_stdout() -> Style {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !refused { Style::Colour } else { Style::Plain }
    }
}

/// Columns that a table of words takes at most, and where the terminal has fewer, at least.
const WORDS_WIDTH: u16 = 110;
const WORDS_WIDTH_LEAST: u16 = 60;

/// The columns, in order.
const HEAD: [&str; 8] = ["quantity", "published", "ours", "error", "null", "band", "kind", "verdict"];

/// Figures as an aligned table.
pub(crate) fn figures(figures: &[Figure], style: Style) -> String {
    let mut table = bare(style);
    table.set_header(HEAD);
    for figure in figures {
        table.add_row(cells(figure));
    }
    align_right(&mut table, 1..6);
    trim(&table.to_string())
}

/// Any other table; all but the first column are aligned to the right.
pub(crate) fn grid<H: AsRef<str>>(head: &[H], rows: &[Vec<String>]) -> String {
    let mut table = bare(Style::Plain);
    table.set_header(head.iter().map(AsRef::as_ref));
    table.add_rows(rows);
    align_right(&mut table, 1..head.len());
    trim(&table.to_string())
}

/// A table of words, wrapped so that a line fits most terminals.
pub(crate) fn words(head: [&str; 2], rows: &[[String; 2]]) -> String {
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
    trim(&table.to_string())
}

/// One line a result and one for all: what holds of each claim, and the errors beside those of the null models.
pub(crate) fn tallies(rows: &[(&str, Tally)]) -> String {
    let head: Vec<_> = ["in band"].into_iter().chain(Claim::ALL.map(Claim::word)).collect();
    let head = [&head[..], &["rules", "known misses", "mean error, median", "of the null models", "figures"]].concat();
    let cells = |(name, tally): &(&str, Tally)| {
        let held = tally.claims.iter().chain([&tally.rules]).map(number::held);
        let errors = tally.errors;
        let ends = [
            tally.known_misses.to_string(),
            number::average_error(errors.ours, errors.figures),
            number::average_error(errors.null, errors.figures),
            errors.figures.to_string(),
        ];
        [(*name).to_owned()].into_iter().chain(held).chain(ends).collect()
    };
    grid(&head, &rows.iter().map(cells).collect::<Vec<_>>())
}

fn bare(style: Style) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    match style {
        Style::Plain => table.force_no_tty(),
        Style::Colour => table.enforce_styling(),
    };
    table
}

fn align_right(table: &mut Table, columns: std::ops::Range<usize>) {
    for index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn cells(figure: &Figure) -> Vec<Cell> {
    let number::FigureText { published, ours, error, null, band } = number::figure_text(figure);
    let name = format!("{} [{}]", figure.expected.quantity, figure.expected.unit);
    let verdict = coloured(Cell::new(figure.verdict().words()), figure.verdict());
    let words = [name, published, ours, error, null, band, number::kind_word(figure).to_owned()];
    words.into_iter().map(Cell::new).chain([verdict]).collect()
}

/// The word says the same as the colour, for those who do not see it; a plain table drops the colour.
fn coloured(cell: Cell, verdict: Verdict) -> Cell {
    match verdict {
        Verdict::InBand => cell.fg(Color::Green),
        Verdict::KnownMiss => cell.fg(Color::Yellow),
        Verdict::NowMisses | Verdict::NowInBand | Verdict::Absent => cell.fg(Color::Red).add_attribute(Attribute::Bold),
        Verdict::Shown | Verdict::Fitted | Verdict::Set => cell,
    }
}

/// No blanks at the end of a line: editors strip them and snapshots would differ.
fn trim(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::read::builtin;

    fn some() -> Vec<Figure> {
        let pcid = builtin("pcid");
        let of = |quantity, ours| pcid.figure(quantity, ours).unwrap();
        vec![
            of("time, pages 0, pcid", 1.22),
            of("time, pages 0, nopcid", 1.33),
            of("time, pages 512, pcid", 2.9),
            of("walks, pages 512, pcid", 23.0),
        ]
    }

    const PLAIN: &str = "\
| quantity                         | published | ours |    error | null |         band | kind       | verdict         |
|----------------------------------|-----------|------|----------|------|--------------|------------|-----------------|
| time, pages 0, pcid [us]         |      1.22 | 1.22 |    0.0 % |    - |            - | calibrated | fitted          |
| time, pages 0, nopcid [us]       |      1.33 | 1.33 |    0.0 % | 1.22 | 1.26 .. 1.40 | weak       | in band         |
| time, pages 512, pcid [us]       |      1.80 | 2.90 |  +61.1 % | 1.22 | 1.53 .. 2.07 | strong     | changed: misses |
| walks, pages 512, pcid [M walks] |        11 |   23 | +109.1 % |    0 |  5.5 .. 22.0 | weak       | known miss      |
";

    #[test]
    fn the_plain_table_is_the_same_everywhere() {
        assert_eq!(figures(&some(), Style::Plain), PLAIN);
    }

    #[test]
    fn colour_adds_escapes_and_nothing_else() {
        let coloured = figures(&some(), Style::Colour);
        assert!(coloured.contains('\u{1b}') && !figures(&some(), Style::Plain).contains('\u{1b}'));
        let mut bare = String::new();
        let mut rest = coloured.as_str();
        while let Some(start) = rest.find('\u{1b}') {
            bare.push_str(&rest[..start]);
            rest = &rest[start..];
            rest = &rest[rest.find('m').unwrap() + 1..];
        }
        bare.push_str(rest);
        assert_eq!(bare, PLAIN);
    }

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

    #[test]
    fn a_tally_has_claims_and_errors_apart() {
        let text = tallies(&[("pcid", Tally::of(&some())), ("none", Tally::default())]);
        assert_eq!(
            text,
            "\
| in band | strong |   weak | tautological |  rules | known misses | mean error, median | of the null models | figures |
|---------|--------|--------|--------------|--------|--------------|--------------------|--------------------|---------|
| pcid    | 0 of 1 | 1 of 2 |       0 of 0 | 0 of 0 |            1 |       56.7, 61.1 % |       46.8, 32.2 % |       3 |
| none    | 0 of 0 | 0 of 0 |       0 of 0 | 0 of 0 |            0 |                  - |                  - |       0 |
"
        );
    }
}

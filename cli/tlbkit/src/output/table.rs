//! Figures on a terminal; colour only where a person is looking.

pub(crate) use tlbkit_output::table::Style;
use tlbkit_output::table::{Attribute, Cell, Color, align_right, bare, grid, text};

use super::number;
use crate::published::claim::Claim;
use crate::published::figure::{Figure, Verdict};
use crate::published::tally::Tally;

/// The columns, in order; the report has more.
const HEAD: [&str; 5] = ["quantity", "published", "ours", "error", "verdict"];

/// Figures as an aligned table.
pub(crate) fn figures(figures: &[Figure], style: Style) -> String {
    let mut table = bare(style);
    table.set_header(HEAD);
    for figure in figures {
        table.add_row(cells(figure));
    }
    align_right(&mut table, 1..4);
    text(&table)
}

/// One line a result and one for all: what holds of each claim, and the mean and median errors beside those of the null
/// models.
pub(crate) fn tallies(rows: &[(&str, Tally)]) -> String {
    let head: Vec<_> = ["in band"].into_iter().chain(Claim::ALL.map(Claim::word)).collect();
    let head = [&head[..], &["rules", "mean, median", "null models"]].concat();
    let cells = |(name, tally): &(&str, Tally)| {
        let held = tally.claims.iter().chain([&tally.rules]).map(number::held);
        let errors = tally.errors;
        let ends =
            [number::average_error(errors.ours, errors.figures), number::average_error(errors.null, errors.figures)];
        [(*name).to_owned()].into_iter().chain(held).chain(ends).collect()
    };
    grid(&head, &rows.iter().map(cells).collect::<Vec<_>>())
}

fn cells(figure: &Figure) -> Vec<Cell> {
    let number::FigureText { published, ours, error, .. } = number::figure_text(figure);
    let name = format!("{} [{}]", figure.expected.quantity, figure.expected.unit);
    let verdict = coloured(Cell::new(figure.verdict().words()), figure.verdict());
    let words = [name, published, ours, error];
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::read::builtin;
    use crate::published::tally::{Average, Errors, Held};
    use tlbkit_output::fitting::SCREEN_WIDTH;

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
| quantity                         | published | ours |    error | verdict         |
|----------------------------------|-----------|------|----------|-----------------|
| time, pages 0, pcid [us]         |      1.22 | 1.22 |    0.0 % | fitted          |
| time, pages 0, nopcid [us]       |      1.33 | 1.33 |    0.0 % | in band         |
| time, pages 512, pcid [us]       |      1.80 | 2.90 |  +61.1 % | changed: misses |
| walks, pages 512, pcid [M walks] |        11 |   23 | +109.1 % | known miss      |
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
    fn a_tally_has_claims_and_errors_apart() {
        let text = tallies(&[("pcid", Tally::of(&some())), ("none", Tally::default())]);
        assert_eq!(
            text,
            "\
| in band | strong |   weak | tautological |  rules | mean, median |  null models |
|---------|--------|--------|--------------|--------|--------------|--------------|
| pcid    | 0 of 1 | 1 of 2 |       0 of 0 | 0 of 0 | 56.7, 61.1 % | 46.8, 32.2 % |
| none    | 0 of 0 | 0 of 0 |       0 of 0 | 0 of 0 |            - |            - |
"
        );
        let (held, average) = (Held { held: 100, all: 200 }, Average { mean_pct: 1396.0, median_pct: 508.4 });
        let errors = Errors { ours: average, null: average, figures: 200 };
        let text = tallies(&[("concurrent", Tally { claims: [held; 3], errors, ..Tally::default() })]);
        assert!(text.lines().all(|line| line.len() <= SCREEN_WIDTH), "{text}");
    }
}

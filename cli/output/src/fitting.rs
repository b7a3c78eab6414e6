//! Words that fit a screen, and tables that fit the terminal before which somebody sits. Elsewhere a table stays as it
//! is, byte for byte.

use console::{Term, measure_text_width};

/// A table that would fall into more parts is wide for its first column alone, and no easier to read in parts.
const PARTS_MOST: usize = 4;

/// Columns that a line of words takes at most.
pub const SCREEN_WIDTH: usize = 100;

/// The words of `text` on lines of [`SCREEN_WIDTH`], each but the first moved in by `indent`.
pub fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        if !line.is_empty() && line.chars().count() + word.chars().count() + indent >= SCREEN_WIDTH {
            lines.push(word.to_owned());
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines.join(&format!("\n{:indent$}", ""))
}

/// Columns of the terminal that standard output is; none if it is no terminal.
pub fn columns() -> Option<usize> {
    let term = Term::stdout();
    term.is_term().then(|| term.size_checked()).flatten().map(|(_, columns)| columns.into())
}

/// `text` with each table that is wider than the terminal in parts, one below the other, which all have its first
/// column.
pub fn fitting(text: &str) -> String {
    columns().map_or_else(|| text.to_owned(), |columns| within(text, columns))
}

fn within(text: &str, columns: usize) -> String {
    let mut fitted = String::new();
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        if !is_of_table(line) {
            fitted += line;
            continue;
        }
        let mut table = line.to_owned();
        while let Some(more) = lines.next_if(|line| is_of_table(line)) {
            table += more;
        }
        fitted += &parts(&table, columns).unwrap_or(table);
    }
    fitted
}

fn is_of_table(line: &str) -> bool {
    line.starts_with('|')
}

/// The table in parts; none if it fits, or cannot be cut.
fn parts(table: &str, columns: usize) -> Option<String> {
    let rows: Vec<Vec<&str>> = table.lines().map(cells).collect();
    let widths: Vec<_> = rows.first()?.iter().map(|cell| measure_text_width(cell) + 1).collect();
    let (first, others) = widths.split_first()?;
    let is_narrow = first + others.iter().sum::<usize>() < columns;
    if is_narrow || rows.iter().any(|row| row.len() != widths.len()) {
        return None;
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut taken = columns;
    for (column, width) in (1..).zip(others) {
        taken += width;
        if taken >= columns {
            groups.push(Vec::new());
            taken = first + width;
        }
        if taken >= columns || groups.len() > PARTS_MOST {
            return None;
        }
        groups.last_mut()?.push(column);
    }
    let line = |row: &[&str], group: &[usize]| {
        let cells: String = group.iter().map(|&column| format!("|{}", row[column])).collect();
        format!("|{}{cells}|\n", row[0])
    };
    let part = |group: Vec<usize>| rows.iter().map(|row| line(row, &group)).collect::<String>();
    Some(groups.into_iter().map(part).collect::<Vec<_>>().join("\n"))
}

/// What stands between the bars.
fn cells(line: &str) -> Vec<&str> {
    let inner = line.strip_prefix('|').unwrap_or(line);
    inner.strip_suffix('|').unwrap_or(inner).split('|').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
head
| name | one | two | three |
|------|-----|-----|-------|
| a    |   1 |   2 |     3 |

tail
";

    #[test]
    fn words_keep_to_the_width_of_a_screen() {
        let text = wrapped(&"word ".repeat(60), 10);
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.trim_end().len() <= SCREEN_WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("          word")), "{text}");
    }

    #[test]
    fn a_table_that_fits_stays() {
        assert_eq!(within(TEXT, 28), TEXT);
    }

    #[test]
    fn a_wide_table_falls_into_parts_with_its_first_column() {
        let expected = "\
head
| name | one | two |
|------|-----|-----|
| a    |   1 |   2 |

| name | three |
|------|-------|
| a    |     3 |

tail
";
        for columns in [20, 26, 27] {
            assert_eq!(within(TEXT, columns), expected, "{columns}");
        }
        assert!(within(TEXT, 16).lines().all(|line| line.len() <= 16), "{}", within(TEXT, 16));
    }

    #[test]
    fn a_table_that_cannot_be_cut_stays() {
        assert_eq!(within(TEXT, 14), TEXT, "its third column does not fit beside the first");
        let odd = TEXT.replace("|     3 |", "|   3|3 |");
        assert_eq!(within(&odd, 20), odd);
        let many = format!("| a |{}\n", " 1 |".repeat(6));
        assert_eq!(within(&many, 9), many, "six parts");
    }

    #[test]
    fn colours_take_no_columns() {
        let coloured = TEXT.replace(" 3 |", " \u{1b}[31m3\u{1b}[0m |");
        assert_eq!(within(&coloured, 28), coloured);
        assert!(within(&coloured, 27).ends_with("|     \u{1b}[31m3\u{1b}[0m |\n\ntail\n"));
    }
}

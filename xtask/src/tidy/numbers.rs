//! Every number that somebody measured says who: in `sim/machines/` and `sim/experiments/`, the table that holds it
//! names its `source` and its `kind`, or stands inside a table that does. An experiment may name one `[source]` for the
//! whole file; a kind is never given for a whole file.

use super::repo::{Repo, Report};
use super::source::Source;
use toml::{Spanned, de::DeTable, de::DeValue};

pub(super) fn number_source(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.ending(".toml").filter(|source| matches!(source.crate_dir(), "machines" | "experiments")) {
        let text = source.lines.join("\n");
        match DeTable::parse(&text) {
            Ok(table) => check_file(source, &text, table.get_ref(), report),
            Err(error) => report(source, 1, format!("not TOML: {}", error.message())),
        }
    }
}

/// What the tables around a number have said for it.
#[derive(Clone, Copy)]
struct Said {
    source: bool,
    kind: bool,
}

/// What the walk carries down from a file's head to its leaves.
struct Walk<'a, 'r> {
    source: &'a Source,
    text: &'a str,
    report: &'a mut Report<'r>,
}

fn check_file(source: &Source, text: &str, table: &DeTable<'_>, report: &mut Report<'_>) {
    let has_file_source = source.crate_dir() == "experiments" && table.contains_key("source");
    let said = Said { source: has_file_source, kind: false };
    Walk { source, text, report }.entries(table, said);
}

impl Walk<'_, '_> {
    fn table(&mut self, table: &DeTable<'_>, said: Said) {
        let source = said.source || table.contains_key("source");
        let kind = said.kind || table.contains_key("kind");
        self.entries(table, Said { source, kind });
    }

    fn entries(&mut self, table: &DeTable<'_>, said: Said) {
        // What describes a source (its number, its year) is not itself a measurement.
        for (key, value) in table.iter().filter(|(key, _)| key.get_ref() != "source") {
            self.value(key.get_ref(), value, said);
        }
    }

    fn value(&mut self, key: &str, value: &Spanned<DeValue<'_>>, said: Said) {
        match value.get_ref() {
            DeValue::Table(inner) => self.table(inner, said),
            DeValue::Array(items) => {
                // One report a list: a histogram of forty numbers lacks one source, not forty.
                let (tables, leaves): (Vec<_>, Vec<_>) = items.iter().partition(|item| holds_tables(item.get_ref()));
                tables.into_iter().for_each(|item| self.value(key, item, said));
                if let Some(first) = leaves.into_iter().find(|item| holds_number(item.get_ref())) {
                    self.leaf(key, first, said);
                }
            }
            DeValue::Integer(_) | DeValue::Float(_) => self.leaf(key, value, said),
            _ => {}
        }
    }

    fn leaf(&mut self, key: &str, value: &Spanned<DeValue<'_>>, said: Said) {
        let missing = match (said.source, said.kind) {
            (true, true) => return,
            (true, false) => "`kind`",
            (false, true) => "`source`",
            (false, false) => "`source` and `kind`",
        };
        let line = self.text[..value.span().start].matches('\n').count() + 1;
        (self.report)(self.source, line, format!("`{key}` is a number, its table must have {missing}"));
    }
}

fn holds_tables(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(items) => items.iter().any(|item| holds_tables(item.get_ref())),
        _ => false,
    }
}

fn holds_number(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Integer(_) | DeValue::Float(_) => true,
        DeValue::Array(items) => items.iter().any(|item| holds_number(item.get_ref())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::repo::testing::places;
    use super::*;

    const SOURCED: &str = "name = 'm'\n[cycles]\nsource = 's'\nkind = 'input'\ninvlpg = 1\nsizes = [[1, 2], [3, 4]]\n";

    #[test]
    fn sourced_numbers_pass() {
        let inline = "invlpg = { value = 3, bounds = { low = 2 }, source = 's', kind = 'prior' }\n";
        assert!(places(number_source, &[("sim/machines/a.toml", SOURCED), ("sim/machines/b.toml", inline)]).is_empty());
        assert!(places(number_source, &[("cli/Cargo.toml", "[a]\nb = 1")]).is_empty());
    }

    #[test]
    fn numbers_without_source_or_kind_are_found() {
        let head = "kind = 'prior'\nsource = 's'\n";
        let tail = "[tlb]\nsource = 's'\nways = 4\n[[row]]\nkind = 'prior'\nsizes = [\n1, 2]\n";
        let text = format!("{head}{SOURCED}{tail}");
        assert_eq!(
            places(number_source, &[("sim/machines/a.toml", &text)]),
            ["sim/machines/a.toml:11", "sim/machines/a.toml:15"]
        );
    }

    #[test]
    fn a_file_source_serves_experiments_only_and_never_for_the_kind() {
        let text = "[source]\nyear = 2009\n[[figure]]\nkind = 'input'\npublished = 1.8\n[other]\nx = 1\n";
        let found = places(number_source, &[("sim/experiments/a.toml", text), ("sim/machines/a.toml", text)]);
        assert_eq!(found, ["sim/experiments/a.toml:7", "sim/machines/a.toml:5", "sim/machines/a.toml:7"]);
    }

    #[test]
    fn broken_toml_is_found() {
        assert_eq!(places(number_source, &[("sim/machines/a.toml", "a = = 1")]), ["sim/machines/a.toml:1"]);
    }
}

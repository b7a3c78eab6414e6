//! Text to [`Experiment`], or one line: file, line, key, value, limit.
//!
//! Serde finds unknown keys and wrong types; what it cannot know is checked here: bands that are upside down, rows of
//! unequal length, columns that do not exist, two figures of one name, a prediction left unjudged without a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use anyhow::{Error, Result, anyhow};
use serde::Deserialize;
use toml::Spanned;

use super::experiment::{Experiment, Note, PublishedSetup, PublishedTable, Source, Value};
use super::figure::{Expected, FigureKind};
use super::rule::Rule;

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    id: String,
    title: String,
    intro: String,
    #[serde(default)]
    unjudged: String,
    source: Source,
    setup: PublishedSetup,
    #[serde(default)]
    note: Vec<Note>,
    #[serde(default)]
    table: Vec<Spanned<PublishedTable>>,
    #[serde(default)]
    column: Vec<Spanned<RawColumn>>,
    #[serde(default)]
    figure: Vec<Spanned<RawFigure>>,
    #[serde(default)]
    rule: Vec<Spanned<Rule>>,
}

/// The three ways of writing a band; at most one is used.
#[derive(Clone, Default)]
struct RawBand {
    band: Option<[f64; 2]>,
    within_pct: Option<f64>,
    within_factor: Option<f64>,
}

/// One expected figure.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFigure {
    quantity: String,
    unit: String,
    published: Option<f64>,
    kind: FigureKind,
    band: Option<[f64; 2]>,
    within_pct: Option<f64>,
    within_factor: Option<f64>,
    source: String,
    note: Option<String>,
    known_miss: Option<String>,
}

/// A column of a published table of which each cell is an expected figure; `{}` in `quantity` is the first cell.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawColumn {
    table: String,
    column: String,
    quantity: String,
    unit: String,
    kind: FigureKind,
    within_pct: Option<f64>,
    within_factor: Option<f64>,
    #[serde(default)]
    calibrated: Vec<f64>,
    judged_from: Option<Least>,
    /// By the first cell of a row.
    #[serde(default)]
    known_misses: BTreeMap<String, String>,
    source: String,
}

/// Rows whose `column` is below `least` are shown and not judged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Least {
    column: String,
    least: f64,
}

/// A place in the file, for errors.
struct FilePosition<'a> {
    file: &'a str,
    text: &'a str,
    byte: usize,
}

impl FilePosition<'_> {
    /// The one line that a user sees.
    fn error(&self, key: &str, value: impl Display, limit: impl Display) -> Error {
        anyhow!("{}:{}: {key} = {value}: {limit}", self.file, self.line())
    }

    fn line(&self) -> usize {
        self.text[..self.byte.min(self.text.len())].matches('\n').count() + 1
    }

    /// The first line at or after this place that sets `key`: a block is found by its head, its fault is below it.
    fn of_key(&self, key: &str) -> FilePosition<'_> {
        let mut byte = self.byte;
        for line in self.text[self.byte..].split_inclusive('\n') {
            if line.split('=').next().is_some_and(|left| left.trim() == key) {
                return FilePosition { byte, ..*self };
            }
            byte += line.len();
        }
        FilePosition { ..*self }
    }
}

/// Reads an experiment; `file` is only named in errors.
pub(crate) fn experiment(file: &str, text: &str) -> Result<Experiment> {
    let raw: Raw = toml::from_str(text).map_err(|error| syntax(file, text, &error))?;
    let at = |byte| FilePosition { file, text, byte };
    check_parameters(&at(0), &raw.setup)?;
    let mut tables = Vec::new();
    for table in raw.table {
        check_table(&at(table.span().start), table.get_ref())?;
        tables.push(table.into_inner());
    }
    let mut expected = Vec::new();
    for column in &raw.column {
        expand(&at(column.span().start), &raw.id, column.get_ref(), &tables, &mut expected)?;
    }
    for figure in raw.figure {
        let place = at(figure.span().start);
        expected.push(single(&place, &raw.id, figure.into_inner())?);
    }
    check_expected(&at(0), &raw.unjudged, &expected)?;
    let mut rules = Vec::new();
    for rule in raw.rule {
        check_rule(&at(rule.span().start), rule.get_ref(), &expected)?;
        rules.push(rule.into_inner());
    }
    let (intro, unjudged) = (raw.intro.trim().to_owned(), raw.unjudged.trim().to_owned());
    let (id, title, source, setup, notes) = (raw.id, raw.title, raw.source, raw.setup, raw.note);
    Ok(Experiment { id, title, intro, unjudged, source, setup, notes, tables, expected, rules })
}

/// Serde's error on one line.
fn syntax(file: &str, text: &str, error: &toml::de::Error) -> Error {
    let byte = error.span().map_or(0, |span| span.start);
    let line = FilePosition { file, text, byte }.line();
    let message = error.message().lines().collect::<Vec<_>>().join(" ");
    let found = text.lines().nth(line - 1).unwrap_or_default().trim();
    anyhow!("{file}:{line}: {message}: `{found}`")
}

/// A band without its value inside would say that the value is wrong.
fn check_parameters(place: &FilePosition<'_>, setup: &PublishedSetup) -> Result<()> {
    for (name, parameter) in &setup.parameters {
        let Some(band) = parameter.band else { continue };
        let is_inside = matches!(parameter.value, Value::Number(value) if (band[0]..=band[1]).contains(&value));
        if !is_inside || !band.iter().all(|end| end.is_finite()) {
            return Err(place.of_key(name).error("band", format!("{band:?}"), "must hold the value, a number"));
        }
    }
    Ok(())
}

fn check_table(place: &FilePosition<'_>, table: &PublishedTable) -> Result<()> {
    for row in &table.rows {
        if row.len() != table.columns.len() || row.is_empty() {
            let limit = format!("a row of table `{}` must have {} cells", table.id, table.columns.len());
            return Err(place.of_key("rows").error("rows", format!("{row:?}"), limit));
        }
    }
    Ok(())
}

/// Adds one expectation per row of the table.
fn expand(
    place: &FilePosition<'_>,
    experiment: &str,
    column: &RawColumn,
    tables: &[PublishedTable],
    out: &mut Vec<Expected>,
) -> Result<()> {
    let table = tables
        .iter()
        .find(|table| table.id == column.table)
        .ok_or_else(|| place.of_key("table").error("table", &column.table, "no [[table]] has this id"))?;
    let cells = |key: &str, name: &str| {
        table
            .column(name)
            .ok_or_else(|| place.of_key(key).error(key, name, format!("must be one of {}", table.columns.join(", "))))
    };
    let published = cells("column", &column.column)?;
    let judged: Vec<bool> = match &column.judged_from {
        Some(limit) => cells("judged_from", &limit.column)?.iter().map(|cell| *cell >= limit.least).collect(),
        None => vec![true; published.len()],
    };
    for (row, (published, judged)) in table.rows.iter().zip(published.into_iter().zip(judged)) {
        let kind = if column.calibrated.contains(&row[0]) { FigureKind::Calibrated } else { column.kind };
        let raw = match judged && kind == column.kind {
            true => RawBand { within_pct: column.within_pct, within_factor: column.within_factor, band: None },
            false => RawBand::default(),
        };
        out.push(Expected {
            experiment: experiment.to_owned(),
            quantity: column.quantity.replace("{}", &row[0].to_string()),
            unit: column.unit.clone(),
            published: Some(published),
            kind,
            band: band(place, &raw, Some(published))?,
            source: format!("{}, row {}", column.source, row[0]),
            note: None,
            known_miss: column.known_misses.get(&row[0].to_string()).cloned(),
        });
    }
    let is_row = |name: &&String| table.rows.iter().any(|row| row[0].to_string() == **name);
    column
        .known_misses
        .keys()
        .find(|name| !is_row(name))
        .map_or(Ok(()), |name| Err(place.of_key("known_misses").error("known_misses", name, "no row begins with it")))
}

fn single(place: &FilePosition<'_>, experiment: &str, raw: RawFigure) -> Result<Expected> {
    let written = RawBand { band: raw.band, within_pct: raw.within_pct, within_factor: raw.within_factor };
    Ok(Expected {
        experiment: experiment.to_owned(),
        band: band(place, &written, raw.published)?,
        quantity: raw.quantity,
        unit: raw.unit,
        published: raw.published,
        kind: raw.kind,
        source: raw.source,
        note: raw.note,
        known_miss: raw.known_miss,
    })
}

/// The band in the unit of the quantity.
fn band(place: &FilePosition<'_>, raw: &RawBand, published: Option<f64>) -> Result<Option<[f64; 2]>> {
    let around = |key: &str, value: f64| {
        published.ok_or_else(|| place.of_key(key).error(key, value, "needs a published value to lie around"))
    };
    match (raw.band, raw.within_pct, raw.within_factor) {
        (None, None, None) => Ok(None),
        (Some([low, high]), None, None) if low.is_finite() && high.is_finite() && low <= high => Ok(raw.band),
        (Some(band), None, None) => {
            Err(place.of_key("band").error("band", format!("{band:?}"), "must be [low, high], finite, low <= high"))
        }
        (None, Some(pct), None) if pct > 0.0 && pct < 100.0 => {
            let value = around("within_pct", pct)?;
            let reach = value.abs() * pct / 100.0;
            Ok(Some([value - reach, value + reach]))
        }
        (None, Some(pct), None) => {
            Err(place.of_key("within_pct").error("within_pct", pct, "must be above 0 and below 100"))
        }
        (None, None, Some(factor)) if factor > 1.0 && factor.is_finite() => {
            let value = around("within_factor", factor)?;
            let (near, far) = (value / factor, value * factor);
            Ok(Some([near.min(far), near.max(far)]))
        }
        (None, None, Some(factor)) => {
            Err(place.of_key("within_factor").error("within_factor", factor, "must be above 1"))
        }
        _ => Err(place.error("band", "given more than once", "use one of band, within_pct, within_factor")),
    }
}

/// Names are unique. A prediction without a band could hide a miss, so it takes a reason; so does a known miss, which
/// only a prediction with a band can have.
fn check_expected(place: &FilePosition<'_>, unjudged: &str, expected: &[Expected]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for one in expected {
        let is_judged = one.kind == FigureKind::Prediction && one.band.is_some();
        let is_bare =
            one.kind == FigureKind::Prediction && !is_judged && one.note.is_none() && unjudged.trim().is_empty();
        let limit = match &one.known_miss {
            _ if !seen.insert(&one.quantity) => "must be unique within the experiment",
            _ if is_bare => "a prediction needs a band, a note, or a reason in `unjudged`",
            Some(reason) if reason.trim().is_empty() || !is_judged => {
                "a known miss needs a reason, and a prediction with a band"
            }
            _ => continue,
        };
        return Err(place.error("quantity", &one.quantity, limit));
    }
    Ok(())
}

fn check_rule(place: &FilePosition<'_>, rule: &Rule, expected: &[Expected]) -> Result<()> {
    let members = expected.iter().filter(|expected| rule.covers(&expected.quantity)).count();
    if rule.count == 0 || rule.count > members {
        let limit = format!("must be 1 to {members}, the figures it covers");
        return Err(place.of_key("count").error("count", rule.count, limit));
    }
    Ok(())
}

/// An experiment as `sim/experiments/` has it, for tests.
#[cfg(test)]
pub(crate) fn builtin(id: &str) -> Experiment {
    let path = format!("{}/../sim/experiments/{id}.toml", env!("CARGO_MANIFEST_DIR"));
    experiment(&path, &std::fs::read_to_string(&path).unwrap()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: &str = include_str!("../../../sim/experiments/range.toml");
    const PTI: &str = include_str!("../../../sim/experiments/pti.toml");
    const PCID: &str = include_str!("../../../sim/experiments/pcid.toml");

    /// The error after `from` became `to` in a good file; panics if there is none or it has several lines.
    fn fault(text: &str, from: &str, to: &str) -> String {
        assert!(text.contains(from), "{from}");
        let message = experiment("e.toml", &text.replacen(from, to, 1)).unwrap_err().to_string();
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    }

    fn line_of(text: &str, needle: &str) -> usize {
        text.lines().position(|line| line.starts_with(needle)).unwrap() + 1
    }

    #[test]
    fn a_wrong_band_is_named_with_its_line_and_limit() {
        let line = line_of(PCID, "band = [2, 10]");
        let message = fault(PCID, "band = [2, 10]", "band = [10, 2]");
        assert_eq!(message, format!("e.toml:{line}: band = [10.0, 2.0]: must be [low, high], finite, low <= high"));
    }

    #[test]
    fn a_parameter_lies_in_its_own_band() {
        let line = line_of(PTI, "heap_pages = ");
        let message = fault(PTI, "band = [512, 2048]", "band = [2048, 4096]");
        assert_eq!(message, format!("e.toml:{line}: band = [2048.0, 4096.0]: must hold the value, a number"));
        let message = fault(
            PTI,
            "kind = \"input\", source = \"document: the mix",
            "band = [1, 2], kind = \"input\", source = \"",
        );
        assert!(message.contains("band = [1.0, 2.0]: must hold the value"), "{message}");
    }

    #[test]
    fn an_unknown_key_and_a_wrong_kind_are_named() {
        let message = fault(PCID, "band = [2, 10]", "bnd = [2, 10]");
        assert!(message.starts_with(&format!("e.toml:{}: unknown field `bnd`", line_of(PCID, "band"))), "{message}");
        let message = fault(PCID, "kind = \"calibrated\"\nsource = \"first", "kind = \"guess\"\nsource = \"first");
        assert!(message.contains("`guess`") && message.contains("prediction"), "{message}");
    }

    #[test]
    fn a_band_may_be_written_in_one_way_only() {
        let message = fault(PCID, "band = [2, 10]", "band = [2, 10]\nwithin_pct = 5");
        assert!(message.ends_with("use one of band, within_pct, within_factor"), "{message}");
    }

    #[test]
    fn limits_of_rules_columns_and_rows_are_checked() {
        let message = fault(RANGE, "count = 8", "count = 9");
        assert!(message.ends_with("count = 9: must be 1 to 8, the figures it covers"), "{message}");
        let message = fault(RANGE, "column = \"altershift\"", "column = \"shift\"");
        assert!(message.contains("column = shift: must be one of threads, vanilla"), "{message}");
        let message = fault(RANGE, "[1, 7377.91, ", "[1, ");
        assert!(message.contains("must have 5 cells"), "{message}");
        let message = fault(RANGE, "within_factor = 2", "within_factor = 0.5");
        assert!(message.ends_with("within_factor = 0.5: must be above 1"), "{message}");
    }

    #[test]
    fn an_unjudged_prediction_and_a_known_miss_take_a_reason_and_names_are_unique() {
        let message = fault(PCID, "band = [2, 10]\nknown_miss = \"", "known_miss = \"");
        assert!(message.contains("walks left by pcid, pages 512: a known miss needs a reason"), "{message}");
        let message = fault(RANGE, "known_misses = { 8 =", "known_misses = { 9 =");
        assert!(message.ends_with("known_misses = 9: no row begins with it"), "{message}");
        let start = PCID.find("unjudged").unwrap();
        let end = PCID.find("[source]").unwrap();
        let message = fault(PCID, &PCID[start..end], "");
        assert!(message.contains("walks, pages 512, pcid"), "{message}");
        let message = fault(PCID, "time, pages 0, nopcid", "time, pages 0, pcid");
        assert!(message.contains("must be unique"), "{message}");
    }

    #[test]
    fn a_factor_around_a_negative_value_is_the_right_way_up() {
        let raw = RawBand { within_factor: Some(2.0), ..RawBand::default() };
        let place = FilePosition { file: "", text: "", byte: 0 };
        assert_eq!(band(&place, &raw, Some(-1.0)).unwrap(), Some([-2.0, -0.5]));
    }
}

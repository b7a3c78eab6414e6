//! Text to [`Experiment`], or one line: file, line, key, value, limit.
//!
//! Serde finds unknown keys and wrong types; what it cannot know is checked here: bands that are upside down, rows of
//! unequal length, columns that do not exist, two figures of one name, a prediction left unjudged without a reason.

use std::collections::BTreeSet;

use anyhow::{Error, Result, anyhow};
use serde::Deserialize;
use toml::Spanned;

use super::claim::{NullModel, Sceptic};
use super::column::{RawColumn, expand};
use super::expected::{Expected, FigureKind, RawBand};
use super::experiment::{Experiment, Note, PublishedSetup, PublishedTable, Source, Value};
use super::headline::{Headline, HeadlineFigure, NOTHING};
use super::place::FilePosition;
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
    claim: Option<Spanned<Headline>>,
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
    null: Option<NullModel>,
    tautology: Option<String>,
    in_view: Option<String>,
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
    let headline = raw.claim.map(|claim| {
        check_headline(&at(claim.span().start), claim.get_ref(), &expected, &rules).map(|()| claim.into_inner())
    });
    let headline = headline.transpose()?;
    let (intro, unjudged) = (raw.intro.trim().to_owned(), raw.unjudged.trim().to_owned());
    let (id, title, source, setup, notes) = (raw.id, raw.title, raw.source, raw.setup, raw.note);
    Ok(Experiment { id, title, intro, headline, unjudged, source, setup, notes, tables, expected, rules })
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

fn single(place: &FilePosition<'_>, experiment: &str, raw: RawFigure) -> Result<Expected> {
    let written = RawBand { band: raw.band, within_pct: raw.within_pct, within_factor: raw.within_factor };
    Ok(Expected {
        experiment: experiment.to_owned(),
        band: written.around(place, raw.published)?,
        quantity: raw.quantity,
        unit: raw.unit,
        published: raw.published,
        kind: raw.kind,
        source: raw.source,
        note: raw.note,
        known_miss: raw.known_miss,
        sceptic: Sceptic { null: raw.null, tautology: raw.tautology, in_view: raw.in_view },
    })
}

/// Names are unique. Each published value that is predicted has a band, and each band a null model or a reason why it
/// claims nothing, so that no easy prediction and no miss can hide.
fn check_expected(place: &FilePosition<'_>, unjudged: &str, expected: &[Expected]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for one in expected {
        let is_judged = one.is_judged();
        let is_shown = one.kind == FigureKind::Prediction && !is_judged;
        let Sceptic { null, tautology, in_view } = &one.sceptic;
        let limit = match &one.known_miss {
            _ if !seen.insert(&one.quantity) => "must be unique within the experiment",
            _ if is_shown && one.published.is_some() => "a prediction of a published value needs a band",
            _ if is_shown && one.note.is_none() && unjudged.trim().is_empty() => {
                "a prediction needs a band, a note, or a reason in `unjudged`"
            }
            _ if null.as_ref().is_some_and(|null| !null.value.is_finite()) => "its null model must give a number",
            _ if is_judged && null.is_none() && tautology.is_none() => {
                "a prediction with a band needs `null`, or `tautology`, the reason why it cannot come out otherwise"
            }
            _ if !is_judged && (null.is_some() || tautology.is_some() || in_view.is_some()) => {
                "null, tautology and in_view belong to a prediction with a band"
            }
            Some(reason) if reason.trim().is_empty() || !is_judged => {
                "a known miss needs a reason, and a prediction with a band"
            }
            _ => continue,
        };
        return Err(place.error("quantity", &one.quantity, limit));
    }
    Ok(())
}

fn check_headline(place: &FilePosition<'_>, headline: &Headline, expected: &[Expected], rules: &[Rule]) -> Result<()> {
    let is_expected = |quantity: &str| expected.iter().any(|expected| expected.quantity == quantity);
    for figure in &headline.figures {
        let HeadlineFigure { quantity, from, .. } = figure;
        let is_known = is_expected(quantity) || rules.iter().any(|rule| rule.quantity == *quantity);
        let from = from.as_deref().filter(|from| *from != NOTHING && !is_expected(from));
        if let Some(unknown) = (!is_known).then_some(quantity.as_str()).or(from) {
            return Err(place.error("claim", unknown, "no figure of the file"));
        }
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
    let path = format!("{}/../../sim/experiments/{id}.toml", env!("CARGO_MANIFEST_DIR"));
    experiment(&path, &std::fs::read_to_string(&path).unwrap()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: &str = include_str!("../../../../sim/experiments/range.toml");
    const PTI: &str = include_str!("../../../../sim/experiments/pti.toml");
    const BATCH: &str = include_str!("../../../../sim/experiments/batch.toml");
    const STORM: &str = include_str!("../../../../sim/experiments/storm.toml");
    const PCID: &str = include_str!("../../../../sim/experiments/pcid.toml");

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
        assert!(message.ends_with("a prediction of a published value needs a band"), "{message}");
        let message = fault(PCID, "known_miss = \"As", "known_miss = \"\" # As");
        assert!(message.contains("walks, pages 512, pcid: a known miss needs a reason"), "{message}");
        let message = fault(RANGE, "known_misses = [{ rows = [", "known_misses = [{ rows = [9, ");
        assert!(message.ends_with("known_misses = 9: no row begins with it"), "{message}");
        let message = fault(STORM, "rows = [10, 15,", "rows = [11, 15,");
        assert!(message.ends_with("in_view_rows = 11: no row begins with it"), "{message}");
        let start = BATCH.find("unjudged").unwrap();
        let end = BATCH.find("[claim]").unwrap();
        let message = fault(BATCH, &BATCH[start..end], "");
        assert!(message.contains("only gathering: a prediction needs a band, a note"), "{message}");
        let message = fault(PCID, "time, pages 0, nopcid", "time, pages 0, pcid");
        assert!(message.contains("must be unique"), "{message}");
    }

    #[test]
    fn a_band_takes_a_null_model_or_the_reason_why_it_claims_nothing() {
        let sceptic = "null = { value = 0, says = \"tags keep everything\" }";
        let message = fault(PCID, sceptic, "");
        assert!(message.contains("walks, pages 512, pcid: a prediction with a band needs `null`"), "{message}");
        let message = fault(PCID, sceptic, "null = { value = inf, says = \"\" }");
        assert!(message.ends_with("its null model must give a number"), "{message}");
        let message = fault(BATCH, "published = 0\nkind = \"prediction\"\nband = [0, 0]\n", "kind = \"prediction\"\n");
        assert!(message.ends_with("belong to a prediction with a band"), "{message}");
    }

    #[test]
    fn a_column_has_its_null_model_from_a_constant_its_fitted_rows_or_a_value_for_each_of_the_others() {
        let null = |experiment: &Experiment, quantity: &str| {
            experiment.expected(quantity).unwrap().sceptic.null.as_ref().map(|null| null.value)
        };
        let (pti, range) = (builtin("pti"), builtin("range"));
        assert_eq!(null(&range, "gain, threads 5, nowalk"), Some(7.8));
        let between = 1094.0 + (70550.0 - 1094.0) / 128.0 * 26.0;
        assert_eq!(null(&pti, "cycles, size 27, invpcid"), Some(between));
        assert_eq!(null(&pti, "cycles, size 129, invpcid"), None, "a fitted row is no prediction");
        let message = fault(PTI, "calibrated = [1, 129]", "calibrated = [1]");
        assert!(message.ends_with("null = line_through_fitted: needs two calibrated rows"), "{message}");
        let storm = builtin("storm");
        assert_eq!([1, 5, 20].map(|n| null(&storm, &format!("rate, threads {n}"))), [None, Some(638.0), Some(1766.0)]);
        let message = fault(STORM, "values = [638, ", "values = [");
        assert!(message.ends_with("values = 10: must be 11, one for each row that is predicted"), "{message}");
    }
}

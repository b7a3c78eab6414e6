//! A column of a published table, each of whose cells is an expected figure.

use anyhow::Result;
use serde::Deserialize;

use super::claim::{NullModel, Sceptic};
use super::expected::{Expected, FigureKind, RawBand};
use super::experiment::PublishedTable;
use super::place::FilePosition;

/// A column as it is written; `{}` in `quantity` is the first cell of a row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawColumn {
    table: String,
    column: String,
    quantity: String,
    unit: String,
    kind: FigureKind,
    within_pct: Option<f64>,
    within_factor: Option<f64>,
    #[serde(default)]
    calibrated: Vec<f64>,
    null: Option<ColumnNull>,
    tautology: Option<String>,
    in_view: Option<String>,
    /// Rows of which something was known that was not of the others.
    in_view_rows: Option<SeenRows>,
    #[serde(default)]
    known_misses: Vec<KnownMisses>,
    source: String,
}

/// The null model of a column.
#[derive(Clone, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
enum ColumnNull {
    /// The same value in each row.
    Constant {
        /// The value.
        value: f64,
        /// Why it.
        says: String,
    },
    /// The straight line through the first and the last row that something was fitted to.
    LineThroughFitted {
        /// Why it.
        says: String,
    },
    /// A separate value for each row.
    Each {
        /// The values, one for each row that nothing was fitted to, in their order.
        values: Vec<f64>,
        /// Why they; `{}` is the first cell of a row.
        says: String,
    },
}

/// The first cell of a row, and the one of the column.
type Row = (f64, f64);

/// Rows whose results were known when what decides them was chosen.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SeenRows {
    /// First cells of the rows.
    rows: Vec<f64>,
    says: String,
}

/// Rows that lie outside their band for one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownMisses {
    /// First cells of the rows.
    rows: Vec<f64>,
    reason: String,
}

impl ColumnNull {
    /// What it gives for the row that begins with `x`, one of those that are `predicted`.
    fn at(&self, place: &FilePosition<'_>, x: f64, predicted: &[Row], fitted: &[Row]) -> Result<NullModel> {
        match self {
            ColumnNull::Constant { value, says } => Ok(NullModel { value: *value, says: says.clone() }),
            ColumnNull::LineThroughFitted { says } => {
                let [first, .., last] = fitted else {
                    return Err(place.of_key("null").error("null", "line_through_fitted", "needs two calibrated rows"));
                };
                let slope = (last.1 - first.1) / (last.0 - first.0);
                Ok(NullModel { value: first.1 + slope * (x - first.0), says: says.clone() })
            }
            ColumnNull::Each { values, says } => {
                let row = predicted.iter().position(|row| row.0 == x).filter(|_| values.len() == predicted.len());
                let Some(row) = row else {
                    let limit = format!("must be {}, one for each row that is predicted", predicted.len());
                    return Err(place.of_key("null").error("values", values.len(), limit));
                };
                Ok(NullModel { value: values[row], says: says.replace("{}", &x.to_string()) })
            }
        }
    }
}

/// Adds one expectation per row of the table.
pub(super) fn expand(
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
    let published = table.column(&column.column).ok_or_else(|| {
        let limit = format!("must be one of {}", table.columns.join(", "));
        place.of_key("column").error("column", &column.column, limit)
    })?;
    let misses: Vec<f64> = column.known_misses.iter().flat_map(|misses| misses.rows.iter().copied()).collect();
    let seen = column.in_view_rows.as_ref().map_or(&[][..], |seen| &seen.rows);
    check_rows(place, "known_misses", &misses, table)?;
    check_rows(place, "in_view_rows", seen, table)?;
    let rows: Vec<Row> = table.rows.iter().map(|row| row[0]).zip(published).collect();
    let is_fitted = |x: f64| column.calibrated.contains(&x);
    let (fitted, predicted): (Vec<_>, Vec<_>) = rows.iter().copied().partition(|(x, _)| is_fitted(*x));
    for &(x, published) in &rows {
        let kind = if is_fitted(x) { FigureKind::Calibrated } else { column.kind };
        let raw = if kind == column.kind {
            RawBand { within_pct: column.within_pct, within_factor: column.within_factor, band: None }
        } else {
            RawBand::default()
        };
        let sceptic = if is_fitted(x) { Sceptic::default() } else { column.sceptic(place, x, &predicted, &fitted)? };
        out.push(Expected {
            experiment: experiment.to_owned(),
            quantity: column.quantity.replace("{}", &x.to_string()),
            unit: column.unit.clone(),
            published: Some(published),
            kind,
            band: raw.around(place, Some(published))?,
            source: format!("{}, row {x}", column.source),
            note: None,
            known_miss: column.reason(x),
            sceptic,
        });
    }
    Ok(())
}

impl RawColumn {
    /// What a sceptic has to say about the row that begins with `x`.
    fn sceptic(&self, place: &FilePosition<'_>, x: f64, predicted: &[Row], fitted: &[Row]) -> Result<Sceptic> {
        let null = self.null.as_ref().map(|null| null.at(place, x, predicted, fitted)).transpose()?;
        let seen = self.in_view_rows.iter().find(|seen| seen.rows.contains(&x)).map(|seen| &seen.says);
        Ok(Sceptic { null, tautology: self.tautology.clone(), in_view: self.in_view.as_ref().or(seen).cloned() })
    }

    /// Why the row that begins with `x` is known to lie outside its band.
    fn reason(&self, x: f64) -> Option<String> {
        self.known_misses.iter().find(|misses| misses.rows.contains(&x)).map(|misses| misses.reason.clone())
    }
}

fn check_rows(place: &FilePosition<'_>, key: &str, named: &[f64], table: &PublishedTable) -> Result<()> {
    let is_row = |x: f64| table.rows.iter().any(|row| row[0] == x);
    let stray = named.iter().find(|x| !is_row(**x));
    stray.map_or(Ok(()), |x| Err(place.of_key(key).error(key, x, "no row begins with it")))
}

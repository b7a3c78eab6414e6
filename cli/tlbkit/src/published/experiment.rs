//! A published result as data: its source, its set-up, its tables, and every figure expected of a reproduction.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::expected::{Expected, FigureKind};
use super::figure::Figure;
use super::headline::Headline;
use super::rule::Rule;

/// The document that published the result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    /// Its place among the documents.
    #[expect(dead_code, reason = "for readers of the file")]
    pub(crate) number: u32,
    /// Its title.
    pub(crate) document: String,
    /// Its author.
    pub(crate) author: String,
    /// When, as exactly as is known.
    pub(crate) date: String,
    /// Where it is kept: a commit or a mailing list.
    pub(crate) reference: String,
}

/// A setting of the set-up: a number or a word.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// A number, in the unit beside it.
    Number(f64),
    /// Anything else.
    Text(String),
}

/// One number of the set-up, and where it is from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameter {
    /// The value.
    pub(crate) value: Value,
    /// Its unit, if it has one.
    #[serde(default)]
    pub(crate) unit: String,
    /// Where it is from.
    pub(crate) source: String,
    /// How much it may be trusted.
    pub(crate) kind: FigureKind,
    /// Lowest and highest value that its source allows or that was tried, where either is known.
    pub(crate) band: Option<[f64; 2]>,
}

/// One side of the comparison: a preset, and what is changed in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PolicyChoice {
    /// Its name in the quantities.
    pub(crate) id: String,
    /// Its name in the document.
    #[expect(dead_code, reason = "for readers of the file")]
    pub(crate) label: String,
    /// The preset it starts from.
    pub(crate) preset: String,
    /// Fields of the policy set otherwise than in the preset.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, String>,
    /// What runs on this side, where it is not the workload of all.
    pub(crate) workload: Option<String>,
    /// Parameters of the workload that are the kernel's on this side, in place of the set-up's.
    #[serde(default)]
    pub(crate) parameters: BTreeMap<String, Parameter>,
}

/// What has to run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishedSetup {
    /// A machine under `sim/machines/`.
    pub(crate) machine: String,
    /// A workload.
    pub(crate) workload: String,
    /// What is compared.
    pub(crate) policies: Vec<PolicyChoice>,
    /// Every other number. One that a workload has a parameter for is set in it by its name.
    #[serde(default)]
    pub(crate) parameters: BTreeMap<String, Parameter>,
}

/// A table as the document prints it; the first column says which row it is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishedTable {
    /// Its name for [`Experiment::table`].
    pub(crate) id: String,
    /// Its heading.
    pub(crate) title: String,
    /// What its numbers may be used for.
    #[expect(dead_code, reason = "for readers of the file")]
    pub(crate) kind: FigureKind,
    /// Names of the columns.
    pub(crate) columns: Vec<String>,
    /// The cells.
    pub(crate) rows: Vec<Vec<f64>>,
}

impl PublishedTable {
    /// The cells under `column`, or none if there is no such column.
    pub(crate) fn column(&self, column: &str) -> Option<Vec<f64>> {
        let index = self.columns.iter().position(|name| name == column)?;
        Some(self.rows.iter().map(|row| row[index]).collect())
    }
}

/// What a reader must know beside the figures, such as what the model lacks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    /// A paragraph; `{name}` in it stands for a number of this note, of the set-up or of the run.
    pub(crate) text: String,
    /// Figures that were measured once, each with its source.
    #[serde(default)]
    pub(crate) numbers: BTreeMap<String, Parameter>,
}

/// One published result.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    /// Its name on the command line.
    pub(crate) id: String,
    /// Its heading.
    pub(crate) title: String,
    /// What it is about, in a paragraph.
    pub(crate) intro: String,
    /// What its document claims, where it is one of those that the project is for.
    pub(crate) headline: Option<Headline>,
    /// Why some predictions carry no band; empty where all do.
    pub(crate) unjudged: String,
    /// The document.
    pub(crate) source: Source,
    /// What has to run.
    pub(crate) setup: PublishedSetup,
    /// What a reader must know beside the figures.
    pub(crate) notes: Vec<Note>,
    /// The document's tables.
    pub(crate) tables: Vec<PublishedTable>,
    /// What a reproduction must give.
    pub(crate) expected: Vec<Expected>,
    /// What must hold of several figures together.
    pub(crate) rules: Vec<Rule>,
}

impl Experiment {
    /// The document's table called `id`.
    pub(crate) fn table(&self, id: &str) -> Result<&PublishedTable> {
        let mut tables = self.tables.iter();
        tables.find(|table| table.id == id).with_context(|| format!("{} has no table `{id}`", self.id))
    }

    /// What is expected of `quantity`.
    #[cfg(test)]
    pub(crate) fn expected(&self, quantity: &str) -> Result<&Expected> {
        let mut expected = self.expected.iter();
        let found = expected.find(|expected| expected.quantity == quantity);
        found.with_context(|| format!("{} expects no figure `{quantity}`", self.id))
    }

    #[cfg(test)]
    /// The figure for `quantity` when this implementation gives `ours`.
    pub(crate) fn figure(&self, quantity: &str, ours: f64) -> Result<Figure> {
        Ok(Figure::new(self.expected(quantity)?, ours))
    }

    /// Completes a run: figures in the order of the file, a row for each that is absent, and one for each rule.
    pub(crate) fn judge(&self, mut figures: Vec<Figure>) -> Vec<Figure> {
        let mut rows: Vec<Figure> = Vec::with_capacity(self.expected.len() + self.rules.len());
        for expected in &self.expected {
            match figures.iter().position(|figure| figure.expected.quantity == expected.quantity) {
                Some(index) => rows.push(figures.remove(index)),
                None => rows.push(Figure::absent(expected)),
            }
        }
        rows.append(&mut figures);
        for rule in &self.rules {
            rows.push(rule.outcome(&self.id, &rows));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use crate::published::figure::Verdict;
    use crate::published::read::builtin;
    use crate::published::tally::Tally;

    #[test]
    fn published_tables_agree_with_themselves() {
        let pti = builtin("pti");
        for (id, rows) in [("invpcid", 25), ("cr3", 24)] {
            let table = pti.table(id).unwrap();
            assert_eq!(table.rows.len(), rows);
            for row in &table.rows {
                assert!((row[3] / row[0] - row[4]).abs() <= 1.0, "{id} size {}", row[0]);
            }
        }
        let range = builtin("range");
        let (means, gains) = (range.table("mean").unwrap(), range.table("gain").unwrap());
        for column in ["3.4.69", "altershift", "nowalk"] {
            let of = |name| means.column(name).unwrap();
            let rates = of(column).into_iter().zip(of("vanilla"));
            for ((ours, base), gain) in rates.zip(gains.column(column).unwrap()) {
                assert!(((ours / base - 1.0) * 100.0 - gain).abs() < 0.006, "{column} {ours} {base} {gain}");
            }
        }
    }

    #[test]
    fn a_figure_that_was_not_produced_fails_the_run() {
        let experiment = builtin("pcid");
        let figures = experiment.judge(Vec::new());
        assert_eq!(figures.len(), experiment.expected.len());
        assert_eq!(Tally::of(&figures).claims.map(|claim| claim.all), [2, 5, 0]);
        assert!(figures.iter().all(|figure| figure.verdict() == Verdict::Absent));
    }
}

//! The figures of the published results that README.md and docs/ show, beside those that a run gives: one truth per
//! fact, so that a page cannot grow old unseen.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// A row of `reproduce --json`, as far as the pages show it.
struct Row {
    experiment: String,
    quantity: String,
    published: Option<f64>,
    ours: Option<f64>,
    error_pct: Option<f64>,
    null: Option<f64>,
    claim: String,
    verdict: String,
}

/// What `reproduce` found.
pub(crate) struct Rows(Vec<Row>);

impl Rows {
    /// Reads what `reproduce --json` has printed: a row a line.
    ///
    /// # Errors
    /// If a line is no JSON.
    pub(crate) fn read(lines: &str) -> Result<Self> {
        lines.lines().map(|line| row(line).with_context(|| line.to_owned())).collect::<Result<_>>().map(Self)
    }

    /// Quantities whose verdict is not as recorded.
    pub(crate) fn changed(&self) -> Vec<String> {
        let changed = self.0.iter().filter(|row| row.verdict.starts_with("changed"));
        changed.map(|row| format!("{} {}: {}", row.experiment, row.quantity, row.verdict)).collect()
    }

    /// Where a page says something else than these rows.
    ///
    /// # Errors
    /// If a page cannot be read.
    pub(crate) fn faults(&self, root: &Path) -> Result<Vec<String>> {
        let page = |path: &str| fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
        let (readme, reproduce, picture) = (page("README.md")?, page("docs/lab/reproduce.md")?, page("docs/pcid.svg")?);
        let mut faults = Vec::new();
        let summaries = self.summaries();
        let lines = summaries.iter().map(Summary::line).filter(|line| !reproduce.contains(line));
        faults.extend(lines.map(|line| format!("docs/lab/reproduce.md lacks `{line}`")));
        let sentence = summaries.last().map(Summary::sentence).unwrap_or_default();
        if !readme.contains(&sentence) {
            faults.push(format!("README.md lacks `{sentence}`"));
        }
        let shown = readme.lines().filter_map(shown);
        faults.extend(
            shown
                .filter(|cells| !self.has(cells))
                .map(|cells| format!("README.md says `{}`, and no row of a run does", cells.join(" | "))),
        );
        let turn = self.0.iter().find(|row| row.experiment == "pcid" && row.quantity == "time, pages 512, pcid");
        let bar = turn.and_then(|row| row.ours).map(|ours| format!("pcid, ours: {ours:.2} us"));
        if !bar.as_ref().is_some_and(|bar| picture.contains(bar)) {
            faults.push(format!("docs/pcid.svg does not say {bar:?}: take it from the report anew"));
        }
        Ok(faults)
    }

    /// One of each experiment, in the order of the run, then that of all.
    fn summaries(&self) -> Vec<Summary> {
        let mut names: Vec<&str> = self.0.iter().map(|row| row.experiment.as_str()).collect();
        names.dedup();
        let of = |name: &str| {
            let rows = self.0.iter().filter(|row| name == "all" || row.experiment == name);
            Summary::of(name, &rows.collect::<Vec<_>>())
        };
        names.iter().copied().chain(["all"]).map(of).collect()
    }

    /// Whether some row says what a line of the README's table of results says.
    fn has(&self, cells: &[&str]) -> bool {
        let [published, ours, error, null, kind, verdict] = cells else { return false };
        self.0.iter().any(|row| {
            row.claim == *kind
                && row.verdict == verdict.trim_matches('*')
                && row.error_pct.is_some_and(|value| says(error, value, 0))
                && [-6, -3, -2, 0, 2, 3, 6].into_iter().any(|shift| {
                    let is_said = |cell: &str, value: Option<f64>| value.is_some_and(|value| says(cell, value, shift));
                    is_said(published, row.published) && is_said(ours, row.ours) && is_said(null, row.null)
                })
        })
    }
}

/// How many predictions of each kind hold, and how far they are off.
struct Summary {
    name: String,
    /// In band, and in all: strong, weak, tautological.
    kinds: [(usize, usize); 3],
    /// The mean and the median.
    error_pct: [f64; 2],
    null_error_pct: [f64; 2],
    figures: usize,
}

impl Summary {
    fn of(name: &str, rows: &[&Row]) -> Self {
        let kinds = ["strong", "weak", "tautological"].map(|claim| {
            let of_kind = rows.iter().filter(|row| row.claim == claim);
            (of_kind.clone().filter(|row| row.verdict == "in band").count(), of_kind.count())
        });
        let (mut errors, mut null_errors) = (Vec::new(), Vec::new());
        for row in rows.iter().filter(|row| ["strong", "weak"].contains(&row.claim.as_str())) {
            if let (Some(published), Some(error_pct)) = (row.published.filter(|&value| value != 0.0), row.error_pct) {
                errors.push(error_pct.abs());
                null_errors.extend(row.null.map(|null| ((null - published) / published).abs() * 100.0));
            }
        }
        let figures = errors.len();
        let (error_pct, null_error_pct) = (mean_and_median(errors), mean_and_median(null_errors));
        Self { name: name.to_owned(), kinds, error_pct, null_error_pct, figures }
    }

    /// Its line in docs/lab/reproduce.md.
    fn line(&self) -> String {
        let kinds = self.kinds.map(|(held, all)| format!("{held} of {all}")).join(" | ");
        let [error, null] =
            [self.error_pct, self.null_error_pct].map(|[mean, median]| format!("{mean:.1}, {median:.1} %"));
        format!("| {} | {kinds} | {error} | {null} | {} |", self.name, self.figures)
    }

    /// What the README says of all.
    fn sentence(&self) -> String {
        let [strong, weak, tautological] = self.kinds.map(|(held, all)| format!("{held} of {all}"));
        format!(
            "In band are {strong} strong, {weak} weak and {tautological} tautological predictions. \
             The mean error is {:.0} % and the median {:.0} %; those of the null models are {:.0} and {:.0} %.",
            self.error_pct[0], self.error_pct[1], self.null_error_pct[0], self.null_error_pct[1]
        )
    }
}

fn mean_and_median(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return [0.0; 2] };
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    [mean, f64::midpoint(values[last / 2], values[values.len() / 2])]
}

fn row(line: &str) -> Result<Row> {
    let value: Value = serde_json::from_str(line)?;
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| value[key].as_f64();
    Ok(Row {
        experiment: text("experiment"),
        quantity: text("quantity"),
        published: number("published"),
        ours: number("ours"),
        error_pct: number("error_pct"),
        null: number("null"),
        claim: text("claim"),
        verdict: text("verdict"),
    })
}

/// The last six cells of a line of the README's table of results: published, ours, error, null model, kind, verdict.
fn shown(line: &str) -> Option<Vec<&str>> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let is_result = cells.len() == 8 && ["strong", "weak", "tautological"].contains(&cells[6]);
    is_result.then(|| cells[2..].to_vec())
}

/// Whether the number in `cell` is `value` times ten to the power of `shift`, rounded to the digits that it has.
fn says(cell: &str, value: f64, shift: i32) -> bool {
    let digits: String = cell.chars().filter(|c| c.is_ascii_digit() || ".-".contains(*c)).collect();
    let digits = digits.trim_end_matches(['.', '-']);
    let decimals = digits.split_once('.').map_or(0, |(_, after)| after.len());
    let Ok(number) = digits.parse::<f64>() else { return false };
    let scaled = value * 10f64.powi(shift);
    (scaled - number).abs() <= 0.5000001 * 10f64.powi(-(decimals as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = concat!(
        r#"{"experiment":"pcid","quantity":"time, pages 512, pcid","unit":"us","published":1.8,"ours":1.658,"#,
        r#""error_pct":-7.9,"kind":"prediction","null":1.22,"verdict":"in band","claim":"strong"}"#
    );

    #[test]
    fn a_line_of_the_readme_is_found_again_or_not() -> Result<()> {
        let rows = Rows::read(LINE)?;
        let line =
            |ours: &str| format!("| PCID, 2017 | a turn | 1.80 us | {ours} us | -8 % | 1.22 | strong | in band |");
        let has = |line: &str| rows.has(&shown(line).unwrap_or_default());
        assert_eq!([has(&line("1.66")), has(&line("1.70")), has(&line("166"))], [true, false, false]);
        assert!(shown("| path | tlbkit | Linux |").is_none());
        Ok(())
    }

    #[test]
    fn a_summary_is_a_line_of_the_page_and_a_sentence_of_the_readme() -> Result<()> {
        let summaries = Rows::read(LINE)?.summaries();
        assert_eq!(summaries[0].line(), "| pcid | 1 of 1 | 0 of 0 | 0 of 0 | 7.9, 7.9 % | 32.2, 32.2 % | 1 |");
        let sentence = "In band are 1 of 1 strong, 0 of 0 weak and 0 of 0 tautological predictions. \
                        The mean error is 8 % and the median 8 %; those of the null models are 32 and 32 %.";
        assert_eq!(summaries[1].sentence(), sentence);
        Ok(())
    }

    #[test]
    fn a_verdict_that_changed_is_named() -> Result<()> {
        let rows = Rows::read(&LINE.replace("in band", "changed: misses"))?;
        assert_eq!(rows.changed(), ["pcid time, pages 512, pcid: changed: misses"]);
        assert!(Rows::read("{").is_err());
        Ok(())
    }
}

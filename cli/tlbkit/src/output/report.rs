//! The report as plain data: a verb fills it in, [`super::html`] lays it out.

use crate::output::svg::{Plot, RatioRow, Ratios};

use crate::published::claim::Claim;
use crate::published::experiment::Experiment;
use crate::published::figure::Figure;
use crate::published::headline::HeadlineRow;

/// The whole report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Its heading.
    pub(crate) title: String,
    /// What it is, in a paragraph.
    pub(crate) about: String,
    /// The command that makes it again.
    pub(crate) command: String,
    /// One per published result.
    pub(crate) sections: Vec<Section>,
    /// The policies side by side.
    pub(crate) compared: Vec<Table>,
    /// Numbers that were put in, fitted or assumed and are no figure of an experiment: its set-up, its machine.
    pub(crate) fitted: Vec<Table>,
}

/// One published result.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    /// Id of the experiment; also the anchor.
    pub(crate) id: String,
    /// Its heading.
    pub(crate) title: String,
    /// The document, in a line.
    pub(crate) source: String,
    /// Its program.
    pub(crate) workload: String,
    /// What it is about.
    pub(crate) intro: String,
    /// The document's author and date.
    pub(crate) by: String,
    /// What the document claims; none of a result that only validates the simulator.
    pub(crate) headline: Option<(String, Vec<HeadlineRow>)>,
    /// Why some figures are shown and not judged.
    pub(crate) unjudged: String,
    /// Published against ours.
    pub(crate) figures: Vec<Figure>,
    /// Drawings.
    pub(crate) plots: Vec<Plot>,
    /// Anything else in rows.
    pub(crate) tables: Vec<Table>,
    /// What a reader should know, a paragraph each.
    pub(crate) notes: Vec<String>,
}

impl Section {
    /// A section with everything that the experiment itself says, and `figures` as judged by it.
    pub(crate) fn new(experiment: &Experiment, figures: Vec<Figure>) -> Section {
        let source = &experiment.source;
        Section {
            id: experiment.id.clone(),
            title: experiment.title.clone(),
            source: format!("{} ({}), \"{}\". {}.", source.author, source.date, source.document, source.reference),
            workload: experiment.setup.workload.clone(),
            by: format!("{}, {}", source.author, source.date),
            headline: experiment.headline.as_ref().map(|headline| (headline.says.clone(), headline.rows(&figures))),
            intro: experiment.intro.clone(),
            unjudged: experiment.unjudged.clone(),
            figures,
            ..Section::default()
        }
    }
}

impl Report {
    /// Every predicted rate and time by the published one; none if there are none. The results whose figures lie
    /// nearest to what was published come first.
    pub(crate) fn validation(&self) -> Option<Ratios> {
        let mut rows: Vec<_> = self.sections.iter().filter_map(Section::ratios).collect();
        let error = |row: &RatioRow| {
            let mut errors: Vec<_> = row.marks.iter().map(|(_, ours, _)| ours.ln().abs()).collect();
            errors.sort_by(f64::total_cmp);
            errors[errors.len() / 2]
        };
        rows.sort_by(|one, other| error(one).total_cmp(&error(other)));
        let about = "For each published result, every predicted rate and time divided by the published one, and what \
                     a null model gives.";
        let title = "Every predicted rate and time, by what was published".to_owned();
        (!rows.is_empty()).then(|| Ratios { title, about: about.into(), rows })
    }
}

impl Section {
    /// Its predictions that are rates or times and could have come out otherwise.
    fn ratios(&self) -> Option<RatioRow> {
        let is_meant = |figure: &&Figure| {
            let unit = figure.expected.unit.as_str();
            let is_claimed = figure.claim().is_some_and(|claim| claim != Claim::Tautological);
            is_claimed && (unit.ends_with("/s") || ["s", "us", "ns"].contains(&unit))
        };
        let mark = |figure: &Figure| {
            let published = figure.expected.published?;
            let (ours, null) = (figure.ours? / published, figure.null().map(|null| null / published));
            (published > 0.0 && ours > 0.0)
                .then(|| (figure.expected.quantity.clone(), ours, null.filter(|null| *null > 0.0)))
        };
        let marks: Vec<_> = self.figures.iter().filter(is_meant).filter_map(mark).collect();
        let label = format!("{}, {}", self.id, self.workload);
        (!marks.is_empty()).then_some(RatioRow { label, marks })
    }
}

/// Cells under headings; all but the first column are aligned to the right.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Its caption.
    pub(crate) title: String,
    /// Names of the columns.
    pub(crate) head: Vec<String>,
    /// The cells.
    pub(crate) rows: Vec<Vec<String>>,
}

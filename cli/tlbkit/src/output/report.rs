//! The report as plain data: a verb fills it in, [`super::html`] lays it out.

use tlbkit_output::svg::Plot;

use crate::published::experiment::Experiment;
use crate::published::figure::Figure;

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
    /// What it is about.
    pub(crate) intro: String,
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
            intro: experiment.intro.clone(),
            unjudged: experiment.unjudged.clone(),
            figures,
            ..Section::default()
        }
    }
}

/// Rows of text.
#[derive(Clone, Debug)]
pub(crate) enum Table {
    /// Cells under headings; all but the first column are aligned to the right.
    Grid {
        /// Its caption.
        title: String,
        /// Names of the columns.
        head: Vec<String>,
        /// The cells.
        rows: Vec<Vec<String>>,
    },
    /// Lines whose layout matters, in a fixed-width face.
    Listing {
        /// Its caption.
        title: String,
        /// The lines.
        lines: Vec<String>,
    },
}

//! The report as one HTML file: readable on a phone, in the dark, and on paper.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::output::svg::{Plot, RatioRow, Ratios};
use tlbkit_output::file;
use tlbkit_output::kind::Kind;

use super::number;
use super::report::{Report, Section, Table};
use super::svg;
use crate::published::claim::Claim;
use crate::published::expected::FigureKind;
use crate::published::figure::{Figure, Verdict};
use crate::published::headline::{HeadlineRow, Outcome};
use crate::published::tally::Tally;

/// The look of the page beside that of its drawings.
const STYLE: &str = include_str!("page.css");

/// What a report is, so that it replaces no file of another kind.
const PAGE: Kind =
    Kind { words: "page of tlbkit", starts: &["<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">"] };

/// Refuses a report that could not be put in its place: asked before the long work whose result goes there. It leaves
/// nothing behind, as that work may be interrupted.
pub(crate) fn check_place(path: &Path) -> Result<()> {
    let ancestors = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
    let missing: Vec<_> = ancestors.take_while(|folder| !folder.exists()).collect();
    let checked = make_folder(path).and_then(|()| file::check_output(path, PAGE));
    // One that somebody has put a file into meanwhile is not ours alone any more, and stays.
    missing.iter().for_each(|folder| fs::remove_dir(folder).unwrap_or_default());
    checked
}

/// Makes the folder of a report.
fn make_folder(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// Writes the report as `path`, in place of one that is there.
pub(crate) fn write(report: &Report, path: &Path) -> Result<()> {
    make_folder(path)?;
    file::write_whole(path, &page(report))
}

/// The whole page.
fn page(report: &Report) -> String {
    let body = html! {
        p { (report.about) }
        @if !report.command.is_empty() { p.soft { "Made by " code { (report.command) } "." } }
        (documents(report))
        (validation(report))
        @for section in &report.sections { (section_of(section)) }
        @if !report.compared.is_empty() {
            section id="policies" {
                h2 { "Policies compared" }
                @for table in &report.compared { (table_of(table)) }
            }
        }
        (fitted(report))
    };
    around(&report.title, &body)
}

/// The page called `title` around `body`: one file with its style inside, which loads nothing.
fn around(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(svg::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                (body)
            }
        }
    };
    page.into_string()
}

/// A panel for each document: what it claims, what was published and ours, and whether that holds.
fn documents(report: &Report) -> Markup {
    html! { div.panels {
        @for section in &report.sections { @if let Some((says, rows)) = &section.headline {
            article.panel {
                h3 { a href={ "#" (section.id) } { (section.title) } }
                p.source { (section.by) }
                p { (says) }
                @if let Some(first) = rows.first() { p.answer { (outcome(first.outcome)) } }
                @for (index, row) in rows.iter().enumerate() { (gauge(row, index)) }
            }
        } }
    } }
}

/// Two bars with their numbers: a figure of a claim, as published and as ours.
fn gauge(row: &HeadlineRow, index: usize) -> Markup {
    let text = number::figure_text(&row.figure);
    let mean = text.ours.split(" +-").next().unwrap_or_default();
    let unit = &row.figure.expected.unit;
    let [published, ours] = [row.figure.expected.published, row.figure.ours].map(|value| value.unwrap_or(0.0).abs());
    let longest = published.max(ours).max(row.figure.expected.band.map_or(0.0, |[_, high]| high.abs()));
    let bar = |value: f64| format!("width:{:.0}%", 100.0 * value / longest.max(f64::MIN_POSITIVE));
    html! {
        h4 { (row.says) @if index > 0 { ": " (outcome(row.outcome)) } }
        div.gauge {
            @if row.figure.expected.published.is_some() {
                div.published style=(bar(published)) {} span { (text.published) " " (unit) " published" }
            }
            div.ours style=(bar(ours)) {} span { (mean) " " (unit) " ours" }
        }
    }
}

/// The colour only repeats the words.
fn outcome(outcome: Outcome) -> Markup {
    match outcome {
        Outcome::Holds => html! { span.good { "\u{2713} " (outcome.words()) } },
        Outcome::InDirection(_) => html! { span.warn { "\u{25b3} " (outcome.words()) } },
        Outcome::Misses(_) => html! { span.bad { "\u{2717} " (outcome.words()) } },
    }
}

/// The picture of all rates and times, one row for each result, and how far to trust the whole.
fn validation(report: &Report) -> Markup {
    let all: Vec<Figure> = report.sections.iter().flat_map(|section| section.figures.clone()).collect();
    html! {
        section id="validation" {
            h2 { "Where the simulator may be trusted" }
            @if let Some(ratios) = report.validation() {
                p { (trust(&ratios)) }
                figure { (PreEscaped(Plot::Ratios(ratios).svg("validation-plot"))) }
            }
            div.scroll { table.figures.counts {
                thead { tr {
                    th { "predictions in band" } @for claim in Claim::ALL { th { (claim.word()) } } th { "rules" }
                    th { "known misses" } th { "mean error, median" } th { "of the null models" }
                    th.left { "verdicts" }
                } }
                tbody {
                    @for section in &report.sections {
                        (summary_row(&html! { a href={ "#" (section.id) } { (section.title) } }, &section.figures))
                    }
                    @if report.sections.len() > 1 { (summary_row(&html! { strong { "all" } }, &all)) }
                }
            } }
            details {
                summary { "What the words mean" }
                p.soft {
                    "Nothing was fitted to a prediction. Beside each stands a null model: what a sceptic would have "
                    "written in one line. A prediction is strong if its band excludes the null model's value and was "
                    "written before the result was seen, tautological if it could not have come out otherwise, and "
                    "weak otherwise. The errors are those of all strong and weak predictions with a published value "
                    "other than zero. A known miss has its reason under it: the model is wrong there, and that was "
                    "recorded. A verdict has changed when it is no longer what was recorded."
                }
            }
        }
    }
}

/// How many of the picture's figures lie in its band, ours and the null models'.
fn trust(ratios: &Ratios) -> String {
    let sum = |count: &dyn Fn(&RatioRow) -> usize| ratios.rows.iter().map(count).sum::<usize>();
    let (held, all) = (sum(&RatioRow::held), sum(&|row| row.marks.len()));
    let [by_null, nulls] = [0, 1].map(|place| sum(&|row| row.held_by_null()[place]));
    format!(
        "{held} of {all} predicted rates and times lie within 25 % of what was published, and {by_null} of {nulls} of \
         their null models. Rows whose filled marks lie in the band are where the simulator may be trusted."
    )
}

fn summary_row(name: &Markup, figures: &[Figure]) -> Markup {
    let tally = Tally::of(figures);
    html! { tr {
        td { (name) }
        @for (claim, held) in Claim::ALL.iter().zip(&tally.claims) {
            td.num data-label=(claim.word()) { (number::held(held)) }
        }
        td.num data-label="rules" {
            @if tally.rules.all > 0 { (number::held(&tally.rules)) } @else { (number::NONE) }
        }
        td.num data-label="known misses" { (tally.known_misses) }
        td.num data-label="mean error, median" { (number::average_error(tally.errors.ours, tally.errors.figures)) }
        td.num data-label="null models' error" { (number::average_error(tally.errors.null, tally.errors.figures)) }
        td.num.left data-label="verdict" {
            (recorded(&tally))
        }
    } }
}

/// Whether all verdicts are as recorded.
fn recorded(tally: &Tally) -> Markup {
    match tally.changed {
        0 => html! { "as recorded" },
        changed => html! { span.bad { "\u{2717} " (changed) " changed" } },
    }
}

fn section_of(section: &Section) -> Markup {
    let (shown, judged): (Vec<&Figure>, Vec<&Figure>) =
        section.figures.iter().partition(|figure| figure.verdict() == Verdict::Shown);
    html! {
        section id=(section.id) {
            h2 { (section.title) }
            p.source { (section.source) }
            p { (section.intro) }
            @if !section.plots.is_empty() { div.plots {
                @for (index, plot) in section.plots.iter().enumerate() {
                    figure {
                        figcaption { (plot.title()) }
                        (PreEscaped(plot.svg(&format!("{}-plot-{}", section.id, index + 1))))
                    }
                }
            } }
            @if !judged.is_empty() { h3 { "Published against ours" } (figures_of(&judged)) }
            @if !shown.is_empty() { details {
                summary { (shown.len()) " more figures, shown and not judged" }
                @if !section.unjudged.is_empty() { p.soft { (section.unjudged) } }
                (figures_of(&shown))
            } }
            @for table in &section.tables { (table_of(table)) }
            @if !section.notes.is_empty() {
                h3 { "Notes" }
                @for note in &section.notes { p { (note) } }
            }
        }
    }
}

fn figures_of(figures: &[&Figure]) -> Markup {
    html! { table.figures {
        thead { tr {
            th { "quantity" } th { "published" } th { "ours" } th { "error" } th { "null model" } th { "band" }
            th.left { "kind" } th.left { "verdict" }
        } }
        tbody { @for (index, figure) in figures.iter().enumerate() {
            (figure_row(figure, index.checked_sub(1).map(|above| figures[above])))
        } }
    } }
}

/// The row of a figure, and what it has in common with the one `above` no second time.
fn figure_row(figure: &Figure, above: Option<&Figure>) -> Markup {
    let text = number::figure_text(figure);
    html! { tr {
        td {
            (figure.expected.quantity) " " span.unit { (figure.expected.unit) }
            @if let Some(note) = &figure.expected.note { span.note { (note) } }
            @for remark in remarks(figure, above) { span.note { (remark) } }
        }
        td.num data-label="published" { (text.published) }
        td.num data-label="ours" { (text.ours) }
        td.num data-label="error" { (text.error) }
        td.num data-label="null model" { (text.null) }
        td.num data-label="band" { (text.band) }
        td.num.left data-label="kind" { (number::kind_word(figure)) }
        td.num.left data-label="verdict" { (verdict(figure.verdict())) }
    } }
}

/// Why a figure misses and what a sceptic says of it, each remark by its name.
fn remarks(figure: &Figure, above: Option<&Figure>) -> Vec<String> {
    let before = above.map_or_else(Vec::new, named_remarks);
    let (repeated, new): (Vec<_>, Vec<_>) =
        named_remarks(figure).into_iter().partition(|remark| before.contains(remark));
    let names: Vec<_> = repeated.into_iter().map(|(name, _)| name).collect();
    let as_above = (!names.is_empty()).then(|| format!("{}: as above.", names.join("; ")));
    new.into_iter().map(|(name, text)| format!("{name}: {}.", text.trim_end_matches('.'))).chain(as_above).collect()
}

/// Each with its name.
fn named_remarks(figure: &Figure) -> Vec<(&'static str, &str)> {
    let sceptic = &figure.expected.sceptic;
    let remarks = [
        ("Reason", figure.expected.known_miss.as_ref()),
        ("Null model", sceptic.null.as_ref().map(|null| &null.says)),
        ("Tautological", sceptic.tautology.as_ref()),
        ("With the result in view", sceptic.in_view.as_ref()),
    ];
    remarks.into_iter().filter_map(|(name, text)| Some((name, text?.as_str()))).collect()
}

/// A sign and words: the colour only repeats them.
fn verdict(verdict: Verdict) -> Markup {
    let words = verdict.words();
    match verdict {
        Verdict::InBand => html! { span.good { "\u{2713} " (words) } },
        Verdict::KnownMiss => html! { span.warn { "\u{25b3} " (words) } },
        Verdict::NowMisses | Verdict::NowInBand | Verdict::Absent => html! { span.bad { "\u{2717} " (words) } },
        Verdict::Shown | Verdict::Fitted | Verdict::Set => html! { (words) },
    }
}

fn table_of(table: &Table) -> Markup {
    let Table { title, head, rows } = table;
    html! {
        div.scroll { table {
            caption { (title) }
            thead { tr {
                @for (index, cell) in head.iter().enumerate() {
                    th class=[rows.first().and_then(|row| class_of(cell, &row[index]))] { (cell) }
                }
            } }
            tbody { @for row in rows { tr {
                @for (cell, head) in row.iter().zip(head) { td class=[class_of(head, cell)] { (cell) } }
            } } }
        } }
    }
}

/// Words go to the left of their column, numbers to the right; a name that is indented is a part of the row above. A
/// source is words, though it may begin with a number, and needs room.
fn class_of(head: &str, cell: &str) -> Option<&'static str> {
    match cell.chars().next() {
        _ if head == "source" => Some("left words"),
        Some(' ') => Some("part"),
        Some(first) if first.is_alphabetic() => Some("left"),
        _ => None,
    }
}

/// Everything that is no prediction, with its source.
fn fitted(report: &Report) -> Markup {
    let figures: Vec<&Figure> = report
        .sections
        .iter()
        .flat_map(|section| &section.figures)
        .filter(|figure| figure.expected.kind != FigureKind::Prediction)
        .collect();
    html! {
        section id="fitted" {
            h2 { "What was fitted" }
            p { "These numbers were put in or fitted. They say nothing about the model, and everything about what a "
                "prediction above was allowed to know." }
            @if !figures.is_empty() { div.scroll { table.figures {
                thead { tr {
                    th { "quantity" } th { "published" } th { "ours" } th.left { "kind" } th.left { "source" }
                } }
                tbody { @for figure in figures { (fitted_row(figure)) } }
            } } }
            @for table in &report.fitted { (table_of(table)) }
        }
    }
}

fn fitted_row(figure: &Figure) -> Markup {
    let text = number::figure_text(figure);
    html! { tr {
        td { (figure.expected.experiment) ": " (figure.expected.quantity) " " span.unit { (figure.expected.unit) } }
        td.num data-label="published" { (text.published) }
        td.num data-label="ours" { (text.ours) }
        td.num.left data-label="kind" { (figure.expected.kind.word()) }
        td.left data-label="source" { (figure.expected.source) }
    } }
}

#[cfg(test)]
mod tests {
    use crate::output::svg::{Axis, BarGroup, Bars, Ink, Plot, Scale};

    use super::*;
    use crate::published::read::builtin;

    /// Two results whose figures are the published ones.
    fn report() -> Report {
        let bars = Bars {
            title: "time".into(),
            about: "time".into(),
            x: "kernels".into(),
            y: Axis::new("time", "us", Scale::FromZero),
            series: vec![(Ink::Published, "published".into())],
            groups: vec![BarGroup { label: "a".into(), values: vec![Some(1.0)] }],
        };
        let section = |id| {
            let experiment = builtin(id);
            let middle = |band: Option<[f64; 2]>| band.map(|[low, high]| f64::midpoint(low, high));
            let figures = experiment.expected.iter();
            let figures = figures
                .map(|expected| Figure::new(expected, expected.published.or(middle(expected.band)).unwrap_or(1.0)));
            let mut section = Section::new(&experiment, experiment.judge(figures.collect()));
            section.plots = vec![Plot::Bars(bars.clone()), Plot::Bars(bars.clone())];
            section
        };
        Report { title: "Results".into(), sections: ["pcid", "lazy"].map(section).to_vec(), ..Report::default() }
    }

    #[test]
    fn the_page_needs_nothing_beside_itself() {
        let page = page(&report());
        assert!(page.starts_with(PAGE.starts[0]), "a second report takes the place of the first");
        for forbidden in ["<script", "<link", "src=", "@import", "url(http", "href=\"http"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/2000/svg").count());
    }

    #[test]
    fn the_same_report_gives_the_same_bytes() {
        assert_eq!(page(&report()), page(&report()));
    }

    #[test]
    fn ids_are_unique() {
        let page = page(&report());
        let mut ids: Vec<&str> = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
        assert!(all > 10, "{all} ids");
    }

    #[test]
    fn a_panel_says_what_is_claimed_and_whether_it_holds_and_the_picture_what_to_trust() {
        let mut report = report();
        let page = page(&report);
        let panel = page.split("class=\"panel\"").nth(1).unwrap();
        assert!(panel.contains("<p class=\"answer\"><span class=\"good\">\u{2713} holds</span>"), "{panel}");
        assert!(panel.contains("1.80 us published") && panel.contains("1.80 us ours"), "{panel}");
        assert!(page.contains("5 of 5 predicted rates and times lie within 25 %"), "{page}");
        assert!(page.contains("id=\"validation-plot-title\""), "{page}");
        report.sections[0].headline.as_mut().unwrap().1[0].outcome = Outcome::Misses(Some(3.0));
        let page = super::page(&report);
        assert!(page.contains("<span class=\"bad\">\u{2717} misses, 3.0 times too large</span>"));
    }

    #[test]
    fn every_figure_is_on_the_page() {
        let report = report();
        let page = page(&report);
        for figure in report.sections.iter().flat_map(|section| &section.figures) {
            let quantity = &figure.expected.quantity;
            assert!(page.contains(&format!(">{quantity} <span class=\"unit\">")), "{quantity}");
        }
    }

    #[test]
    fn a_remark_is_said_once_for_rows_that_follow_each_other() {
        let report = report();
        let mut figures = report.sections.iter().flat_map(|section| &section.figures);
        let figure = figures.find(|figure| figure.expected.sceptic.null.is_some()).expect("one has a null model");
        assert!(remarks(figure, None)[0].starts_with("Null model: "));
        let again = remarks(figure, Some(figure));
        assert!(
            again.len() == 1 && again[0].starts_with("Null model") && again[0].ends_with(": as above."),
            "{again:?}"
        );
    }

    #[test]
    fn a_grid_has_words_on_the_left_and_numbers_on_the_right() {
        let head = ["number", "value", "source"].map(String::from).to_vec();
        let rows =
            ["cycles.invlpg", "  in part"].map(|name| [name, "195", "2 rows"].map(String::from).to_vec()).to_vec();
        let table = table_of(&Table { title: String::new(), head, rows }).into_string();
        assert!(table.contains(r#"<th>value</th><th class="left words">source</th>"#), "{table}");
        assert!(table.contains(r#"<td>195</td><td class="left words">2 rows</td>"#), "{table}");
        assert!(table.contains(r#"<td class="part">  in part</td>"#), "{table}");
    }

    #[test]
    fn a_changed_verdict_is_said_in_words_and_in_the_summary() {
        let mut report = report();
        for figure in report.sections.iter_mut().flat_map(|section| &mut section.figures) {
            figure.expected.known_miss = None;
        }
        let before = page(&report);
        assert!(!before.contains("\u{2717}") && before.contains(">as recorded</td>"));
        report.sections[0].figures[1].ours = Some(f64::MAX);
        let after = page(&report);
        assert_eq!(after.matches("\u{2717} changed: misses").count(), 1);
        assert_eq!(after.matches("\u{2717} 1 changed").count(), 2, "its section and the whole");
    }
}

//! `tlbkit reproduce`: the published results beside ours, and a report.

mod inputs;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::output::svg::Plot;
use tlbkit_output::fitting::{SCREEN_WIDTH, fitting, wrapped};
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format, progress_bar};
use tlbkit_output::{file, jobs, nearest, note, say};

use crate::experiments::{self, Produced, Registered, Reproduction};
use crate::output::report::{Report, Section};
use crate::output::{html, number, table};
use crate::published::figure::Figure;
use crate::published::headline::HeadlineRow;
use crate::published::tally::Tally;
use inputs::{fitted, setup_of};

/// The default folder of the report.
const FOLDER: &str = "report";

/// What to reproduce.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit reproduce\n  tlbkit reproduce pcid pti\n\n\
    Exit status: 0 every verdict is as recorded, known misses included; 1 one has changed, in either direction.\n\
    docs/lab/reproduce.md says what the model lacks where a prediction misses.")]
pub(crate) struct ReproduceArguments {
    /// Experiments of `tlbkit list experiments`, with all their figures; by default the five documents that the
    /// project began with, and what each of them claims
    ids: Vec<String>,
    /// All experiments: the five documents, and those that validate the simulator
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Folder of the report: index.html, all.html with --all, and a file by their names for named experiments
    #[arg(long, default_value = FOLDER)]
    report: PathBuf,
    /// Write the picture of all predicted rates, validation.svg, and that of a turn with tags, pcid.svg, to this
    /// folder; of what ran
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
}

impl ReproduceArguments {
    /// The experiments that were asked for, each once.
    fn ids(&self) -> Vec<&str> {
        let is_new = |at: usize| !self.ids[..at].contains(&self.ids[at]);
        (0..self.ids.len()).filter(|&at| is_new(at)).map(|at| self.ids[at].as_str()).collect()
    }

    /// What was typed, without options that do not say what runs.
    fn command(&self) -> String {
        let all = if self.all { vec!["--all"] } else { self.ids() };
        ["tlbkit reproduce"].into_iter().chain(all).collect::<Vec<_>>().join(" ")
    }

    /// The report's file. What was asked for is in its name, so that no report replaces one of something else.
    fn file(&self) -> PathBuf {
        let ids = self.ids();
        let name = if self.all { "all".to_owned() } else { ids.join("-") };
        self.report.join(if name.is_empty() { "index.html".to_owned() } else { name + ".html" })
    }

    /// Says how far it came, and what would do the rest.
    fn say_interrupted(&self, chosen: &[Registered], done: usize) {
        let left: String = chosen[done..].iter().map(|experiment| format!(" {}", experiment.id)).collect();
        let folder = self.report.display();
        let folder = if self.report == Path::new(FOLDER) { String::new() } else { format!(" --report {folder}") };
        let all = chosen.len();
        note!(
            "tlbkit: interrupted: {done} of {all} experiments are done, and no report is written; \
             for the others: tlbkit reproduce{left}{folder}"
        );
    }
}

/// Reproduces it.
pub(crate) fn execute(arguments: &ReproduceArguments, format: Format) -> Result<Ending> {
    let chosen = choose(arguments)?;
    let stopping = Stopping::listen()?;
    html::check_place(&arguments.file())?;
    let mut report = empty_report(arguments.command());
    let (mut setups, mut machines) = (Vec::new(), Vec::new());
    let bar = progress_bar(chosen.len());
    for (done, &experiment) in chosen.iter().enumerate() {
        bar.set_message(experiment.id);
        // One after the other, as each takes all processors by itself and prints its own part of the answer.
        let Some((reproduction, produced)) = jobs::one(&stopping, move || experiment.run())? else {
            bar.finish_and_clear();
            arguments.say_interrupted(&chosen, done);
            return Ok(stopping.ending());
        };
        machines.push(reproduction.experiment.setup.machine.clone());
        setups.push(setup_of(&reproduction.experiment));
        add(&mut report, &reproduction, produced)?;
        if let Some(section) = report.sections.last() {
            print(section, arguments, format);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.fitted = [setups, fitted(&machines)?].concat();
    // Only a whole report replaces the one that is there.
    html::write(&report, &arguments.file())?;
    arguments.pictures.iter().try_for_each(|folder| write_pictures(&report, folder))?;
    Ok(conclude(&report, arguments, format))
}

/// The experiments that are wanted, in the order of their documents; those whose document claims something if none is
/// named.
fn choose(arguments: &ReproduceArguments) -> Result<Vec<Registered>> {
    let wanted = &arguments.ids;
    let ids = || experiments::ALL.map(|experiment| experiment.id);
    if let Some(unknown) = wanted.iter().find(|id| !ids().contains(&id.as_str())) {
        bail!(nearest::unknown("experiment", unknown, ids().into_iter(), "experiments"));
    }
    let mut chosen = Vec::new();
    for experiment in experiments::ALL {
        let is_named = wanted.iter().any(|id| id == experiment.id);
        let is_default = wanted.is_empty() && (arguments.all || experiment.read()?.headline.is_some());
        if is_named || is_default {
            chosen.push(experiment);
        }
    }
    Ok(chosen)
}

fn empty_report(command: String) -> Report {
    Report {
        title: "Published results in TLB management, reproduced".into(),
        about: "What five documents claim, beside what the tlbkit library gives on a simulated multiprocessor.".into(),
        command,
        ..Report::default()
    }
}

fn add(report: &mut Report, reproduction: &Reproduction, produced: Produced) -> Result<()> {
    let figures = reproduction.experiment.judge(produced.figures);
    let notes = reproduction.notes(&produced.facts)?;
    let (plots, tables) = (produced.plots, produced.tables);
    report.sections.push(Section { plots, tables, notes, ..Section::new(&reproduction.experiment, figures) });
    report.compared.extend(produced.compared);
    Ok(())
}

/// Says how an experiment came out: every figure if it was asked for by its name, otherwise what its document claims.
fn print(section: &Section, arguments: &ReproduceArguments, format: Format) {
    match format {
        Format::Json => section.figures.iter().for_each(|figure| say!("{}", figure.json_line())),
        Format::Text if arguments.ids.is_empty() => {
            section.headline.iter().for_each(|(says, rows)| print_claim(section, says, rows));
        }
        Format::Text => print_section(section),
    }
}

/// A document: whether its claim holds, the claim, and the figures by which that is seen.
fn print_claim(section: &Section, says: &str, rows: &[HeadlineRow]) {
    let verdict = rows.first().map(|row| row.outcome.words()).unwrap_or_default();
    say!("{}", wrapped(&format!("{} {verdict}. {says} ({})", section.id, section.by), 2));
    for row in rows {
        let (text, unit) = (number::figure_text(&row.figure), &row.figure.expected.unit);
        let published = match row.figure.expected.published {
            Some(_) => format!("published {}", text.published),
            None => format!("expected {}", text.band),
        };
        let line = format!("  {:<21} {:<21} {published:<18} ", row.says, format!("{} {unit}", text.ours));
        let below = format!(",\n{:1$}", "", line.len());
        let words = row.outcome.words();
        let words = if words.len() + line.len() > SCREEN_WIDTH { words.replacen(", ", &below, 1) } else { words };
        say!("{line}{words}");
    }
    say!();
}

fn print_section(section: &Section) {
    say!("{}: {}\n", section.id, section.title);
    say!("{}", fitting(&table::figures(&section.figures, table::Style::of_stdout())));
    for note in &section.notes {
        say!("{}", wrapped(&format!("- {note}"), 2));
    }
    for remark in misses(&section.figures) {
        say!("{}", wrapped(&format!("- {remark}"), 2));
    }
    say!();
}

/// Writes the drawings that README and docs/ show.
fn write_pictures(report: &Report, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let pcid = report.sections.iter().find(|section| section.id == "pcid").and_then(|section| section.plots.get(1));
    let validation = report.validation().map(Plot::Ratios);
    for (name, plot) in [("pcid.svg", pcid), ("validation.svg", validation.as_ref())] {
        if let Some(plot) = plot {
            file::write_whole(&folder.join(name), &plot.file())?;
        }
    }
    Ok(())
}

/// Each reason for misses once, with the first figure that it is given for, and how many more there are.
fn misses(figures: &[Figure]) -> Vec<String> {
    let mut by_reason: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for figure in figures {
        let Some(reason) = figure.expected.known_miss.as_deref().map(str::trim) else { continue };
        let words = figure.verdict().words();
        match by_reason.iter_mut().find(|(verdict, of, _)| (*verdict, *of) == (words, reason)) {
            Some((.., quantities)) => quantities.push(&figure.expected.quantity),
            None => by_reason.push((words, reason, vec![&figure.expected.quantity])),
        }
    }
    let remark = |(words, reason, quantities): (&str, &str, Vec<&str>)| match quantities.len() - 1 {
        0 => format!("{words}, {}: {reason}", quantities[0]),
        more => format!("{words}, {}, and {more} more: {reason}", quantities[0]),
    };
    by_reason.into_iter().map(remark).collect()
}

/// The tally of each result, and that of all results if there are several.
fn tallies(report: &Report, all: Tally) -> Vec<(&str, Tally)> {
    let sections = report.sections.iter();
    let mut tallies: Vec<_> = sections.map(|section| (section.id.as_str(), Tally::of(&section.figures))).collect();
    if tallies.len() > 1 {
        tallies.push(("all", all));
    }
    tallies
}

fn conclude(report: &Report, arguments: &ReproduceArguments, format: Format) -> Ending {
    let figures: Vec<Figure> = report.sections.iter().flat_map(|section| section.figures.clone()).collect();
    let tally = Tally::of(&figures);
    if format == Format::Text {
        if arguments.all || !arguments.ids.is_empty() {
            say!("{}", fitting(&table::tallies(&tallies(report, tally))));
        }
        let [held, all] =
            [0, 1].map(|place| tally.claims.iter().map(|claim| [claim.held, claim.all][place]).sum::<usize>());
        say!("{held} of {all} predictions with a band lie in it; the report says why the others miss.");
        match tally.changed {
            0 => say!("Every verdict is as recorded."),
            changed => say!("Changed verdicts: {changed}. Mend the cause, or record them in sim/experiments/."),
        }
        say!("report: {}", arguments.file().display());
        if arguments.ids.is_empty() && !arguments.all {
            say!("22 more results, which say where the simulator may be trusted: tlbkit reproduce --all");
        }
    }
    if tally.changed == 0 { Ending::AsExpected } else { Ending::NotAsExpected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::read::builtin;

    /// How a run ends whose figures are the published ones, but for the two given.
    fn ends(blind: f64, known_to_miss: f64) -> Ending {
        let pcid = builtin("pcid");
        let figures = pcid.expected.iter().map(|expected| match expected.quantity.as_str() {
            "time, pages 512, pcid" => Figure::new(expected, blind),
            "walks left by pcid, pages 512" => Figure::new(expected, known_to_miss),
            "walks, pages 512, pcid" => Figure::new(expected, 0.07),
            _ => Figure::new(expected, expected.published.unwrap()),
        });
        let section = Section::new(&pcid, pcid.judge(figures.collect()));
        let report = Report { sections: vec![section], ..Report::default() };
        conclude(
            &report,
            &ReproduceArguments { ids: Vec::new(), all: true, report: PathBuf::new(), pictures: None },
            Format::Json,
        )
    }

    #[test]
    fn the_documents_that_claim_something_run_by_default_and_all_results_when_asked_for() {
        let chosen = |ids: &[&str], all| {
            let ids = ids.iter().map(|id| (*id).to_owned()).collect();
            let chosen = choose(&ReproduceArguments { ids, all, report: PathBuf::new(), pictures: None }).unwrap();
            chosen.iter().map(|experiment| experiment.id).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[], false), ["pcid", "lazy", "batch", "pti", "range"]);
        assert_eq!(chosen(&[], true).len(), experiments::ALL.len());
        assert_eq!(chosen(&["storm", "pcid", "storm"], false), ["pcid", "storm"]);
    }

    #[test]
    fn a_verdict_that_changes_in_either_direction_is_not_as_expected() {
        assert_eq!(ends(1.8, 0.03), Ending::AsExpected, "the known miss still misses");
        assert_eq!(ends(1.8, 5.3), Ending::NotAsExpected, "it holds now");
        assert_eq!(ends(2.8, 0.03), Ending::NotAsExpected, "another one misses");
    }

    #[test]
    fn a_reason_that_many_figures_share_is_said_once() {
        let half = builtin("half");
        let figures: Vec<_> =
            half.expected.iter().map(|expected| Figure::new(expected, 2.5 * expected.published.unwrap())).collect();
        let said = misses(&figures);
        assert!(said[0].starts_with("known miss, mean, threads 3, vanilla, and 17 more: Three"), "{}", said[0]);
        assert_eq!(said.len(), 2, "rates, and the old kernel: {said:?}");
    }
}

//! `tlbkit reproduce`: the published results beside ours, and a report.

mod inputs;
mod priors;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use tlbkit_output::fitting::fitting;
use tlbkit_output::jobs;
use tlbkit_output::nearest;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::terminal::{Ending, Format, progress_bar};
use tlbkit_output::{note, say};

use crate::experiments::{self, Produced, Registered, Reproduction};
use crate::lab::draws;
use crate::output::report::{Report, Section};
use crate::output::{html, table};
use crate::published::experiment::Experiment;
use crate::published::figure::Figure;
use crate::published::tally::Tally;
use inputs::{fitted, setup_of};

/// The default folder of the report.
const FOLDER: &str = "report";

/// What to reproduce.
#[derive(Args)]
#[command(after_help = "Examples:\n  tlbkit reproduce pcid pti\n  tlbkit reproduce concurrent arena --priors 20\n\n\
    Exit status: 0 every verdict is as recorded, known misses included; 1 one has changed, in either direction.\n\
    docs/lab/reproduce.md says what the model lacks where a prediction misses.")]
pub(crate) struct ReproduceArguments {
    /// Experiments of `tlbkit list experiments`; all by default
    ids: Vec<String>,
    /// Folder of the report: index.html has all experiments, and a run of some of them has a file by their names
    #[arg(long, default_value = FOLDER)]
    report: PathBuf,
    /// How many machines to draw for each experiment, each with every prior of its machine file anew inside its band
    /// and with seeds of its own: whether a published value lies in the range of what comes out, and whether a miss
    /// could be a prior's. No report is written; it takes as long as so many runs of the experiments
    #[arg(long, value_name = "DRAWS", conflicts_with = "report")]
    #[arg(value_parser = clap::value_parser!(u16).range(draws::COUNTS))]
    priors: Option<u16>,
}

impl ReproduceArguments {
    /// The experiments that were asked for, each once.
    fn ids(&self) -> Vec<&str> {
        let is_new = |at: usize| !self.ids[..at].contains(&self.ids[at]);
        (0..self.ids.len()).filter(|&at| is_new(at)).map(|at| self.ids[at].as_str()).collect()
    }

    /// The report's file. A report of some experiments has a name of its own, so that it does not replace the whole
    /// one.
    fn file(&self) -> PathBuf {
        let ids = self.ids();
        let is_whole = ids.is_empty() || ids.len() == experiments::ALL.len();
        self.report.join(if is_whole { "index.html".to_owned() } else { ids.join("-") + ".html" })
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
    let chosen = choose(&arguments.ids)?;
    if let Some(draws) = arguments.priors {
        return priors::execute(&chosen, draws, format);
    }
    let stopping = Stopping::listen()?;
    html::check_place(&arguments.file())?;
    let mut report = empty_report(&arguments.ids());
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
        add(&mut report, &reproduction, produced, format)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    report.fitted = [setups, fitted(&machines)?].concat();
    // Only a whole report replaces the one that is there.
    html::write(&report, &arguments.file())?;
    Ok(conclude(&report, arguments, format))
}

/// The experiments that are wanted, in the order of their documents; all if none is named.
fn choose(wanted: &[String]) -> Result<Vec<Registered>> {
    let ids = || experiments::ALL.map(|experiment| experiment.id);
    if let Some(unknown) = wanted.iter().find(|id| !ids().contains(&id.as_str())) {
        bail!(nearest::unknown("experiment", unknown, ids().into_iter(), "experiments"));
    }
    let is_wanted = |experiment: &Registered| wanted.is_empty() || wanted.iter().any(|id| id == experiment.id);
    Ok(experiments::ALL.into_iter().filter(is_wanted).collect())
}

fn empty_report(ids: &[&str]) -> Report {
    Report {
        title: "Published results in TLB management, reproduced".into(),
        about: "Each published figure beside what the tlbkit library gives on a simulated multiprocessor. Calibrated \
                figures were fitted; nothing was fitted to a prediction."
            .into(),
        command: ["tlbkit reproduce"].into_iter().chain(ids.iter().copied()).collect::<Vec<_>>().join(" "),
        sections: Vec::new(),
        compared: Vec::new(),
        fitted: Vec::new(),
    }
}

fn add(report: &mut Report, reproduction: &Reproduction, produced: Produced, format: Format) -> Result<()> {
    let figures = reproduction.experiment.judge(produced.figures);
    let notes = reproduction.notes(&produced.facts)?;
    match format {
        Format::Json => figures.iter().for_each(|figure| say!("{}", figure.json_line())),
        Format::Text => print_section(&reproduction.experiment, &figures, &notes),
    }
    let (plots, tables) = (produced.plots, produced.tables);
    report.sections.push(Section { plots, tables, notes, ..Section::new(&reproduction.experiment, figures) });
    report.compared.extend(produced.compared);
    Ok(())
}

fn print_section(experiment: &Experiment, figures: &[Figure], notes: &[String]) {
    say!("{}: {}\n", experiment.id, experiment.title);
    say!("{}", fitting(&table::figures(figures, table::Style::of_stdout())));
    for note in notes {
        say!("- {note}");
    }
    for remark in misses(figures) {
        say!("- {remark}");
    }
    say!();
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
        say!("{}", fitting(&table::tallies(&tallies(report, tally))));
        say!("rules: so many figures of a kind must be in band; each is a row of its own, with its limit");
        say!("report: {}", arguments.file().display());
        match tally.changed {
            0 => say!("Every verdict is as recorded; docs/lab/reproduce.md says why a prediction misses."),
            changed => say!("Changed verdicts: {changed}. Mend the cause, or record them in sim/experiments/."),
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
        conclude(&report, &ReproduceArguments { ids: Vec::new(), report: PathBuf::new(), priors: None }, Format::Json)
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
        assert_eq!(said.len(), 3, "rates, deviations and the old kernel: {said:?}");
    }
}

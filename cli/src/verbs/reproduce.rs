//! `tlbkit reproduce`: the published results beside ours, and a report.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use tlbkit_sim::machine::Machine;

use crate::experiments::{self, Produced, Registered, Trial};
use crate::lab::terminal::{Ending, Format, progress_bar, say};
use crate::output::report::{Report, Section, Table};
use crate::output::{html, table};
use crate::published::experiment::{Experiment, Parameter, Value};
use crate::published::figure::{Figure, Tally, all_ok};

/// What to reproduce.
#[derive(Args)]
#[command(after_help = "Example: tlbkit reproduce pcid pti\n\n\
    Exit status 1 means that a prediction is out of its band; docs/reproduce.md says what the model lacks there.")]
pub(crate) struct ReproduceArguments {
    /// Experiments of `tlbkit list experiments`; all by default
    ids: Vec<String>,
    /// Folder of the report
    #[arg(long, default_value = "report")]
    report: PathBuf,
}

/// Reproduces it.
pub(crate) fn execute(arguments: &ReproduceArguments, format: Format) -> Result<Ending> {
    let chosen = choose(&arguments.ids)?;
    let bar = progress_bar(chosen.len());
    let mut report = empty_report();
    let (mut setups, mut machines) = (Vec::new(), Vec::new());
    for experiment in chosen {
        bar.set_message(experiment.id);
        let (trial, produced) = experiment.run()?;
        machines.push(trial.experiment.setup.machine.clone());
        setups.push(setup_of(&trial.experiment));
        add(&mut report, &trial, produced, format);
        bar.inc(1);
        report.fitted = [setups.clone(), fitted(&machines)?].concat();
        // Written after each experiment, so that nothing computed is lost.
        html::write(&report, &arguments.report)?;
    }
    bar.finish_and_clear();
    Ok(conclude(&report, arguments, format))
}

/// Those that are wanted, in their own order; all if none is named.
fn choose(wanted: &[String]) -> Result<Vec<Registered>> {
    let ids = || experiments::ALL.map(|experiment| experiment.id);
    if let Some(unknown) = wanted.iter().find(|id| !ids().contains(&id.as_str())) {
        bail!("no experiment {unknown}: there are {}", ids().join(", "));
    }
    let is_wanted = |experiment: &Registered| wanted.is_empty() || wanted.iter().any(|id| id == experiment.id);
    Ok(experiments::ALL.into_iter().filter(is_wanted).collect())
}

fn empty_report() -> Report {
    Report {
        title: "Five published results in TLB management, reproduced".into(),
        about: "Each published figure beside what the tlbkit library gives on a simulated multiprocessor. Calibrated \
                figures were fitted; nothing was fitted to a prediction."
            .into(),
        command: "tlbkit reproduce".into(),
        sections: Vec::new(),
        compared: Vec::new(),
        fitted: Vec::new(),
    }
}

fn add(report: &mut Report, trial: &Trial, produced: Produced, format: Format) {
    let figures = trial.experiment.judge(produced.figures);
    match format {
        Format::Json => figures.iter().for_each(|figure| say!("{}", figure.json_line())),
        Format::Text => print_section(trial, &figures, &produced.notes),
    }
    let mut section = Section::new(&trial.experiment, figures);
    section.plots = produced.plots;
    section.tables = produced.tables;
    section.notes = produced.notes;
    report.sections.push(section);
    report.compared.extend(produced.compared);
}

fn print_section(trial: &Trial, figures: &[Figure], notes: &[String]) {
    say!("{}: {}\n", trial.experiment.id, trial.experiment.title);
    say!("{}", table::figures(figures, table::Style::of_stdout()));
    for note in notes {
        say!("- {note}");
    }
    say!();
}

/// The heads of all tables of what was put in.
fn head() -> Vec<String> {
    ["number", "value", "band", "kind", "source"].map(String::from).to_vec()
}

fn band_text(band: Option<[f64; 2]>) -> String {
    band.map_or(String::new(), |[low, high]| format!("{low} to {high}"))
}

/// Every number of an experiment's set-up, from the document or not.
fn setup_of(experiment: &Experiment) -> Table {
    let row = |(name, parameter): (&String, &Parameter)| {
        let value = match &parameter.value {
            Value::Number(number) => format!("{number} {}", parameter.unit),
            Value::Text(text) => text.clone(),
        };
        let (kind, source) = (parameter.kind.word().to_owned(), parameter.source.clone());
        vec![name.clone(), value.trim_end().to_owned(), band_text(parameter.band), kind, source]
    };
    let rows = experiment.setup.parameters.iter().map(row).collect();
    Table::Grid { title: format!("Set-up of {}", experiment.id), head: head(), rows }
}

fn fitted(machines: &[String]) -> Result<Vec<Table>> {
    let mut names = machines.to_vec();
    names.sort();
    names.dedup();
    names.iter().map(|name| fitted_of(name, &Machine::builtin(name)?)).collect()
}

/// Every number of a machine that no source gives: fitted, or a prior with its band.
fn fitted_of(name: &str, machine: &Machine) -> Result<Table> {
    use tlbkit_sim::machine::Kind;
    let rows = machine
        .quantities()
        .into_iter()
        .filter(|(_, quantity)| quantity.kind != Kind::Input)
        .map(|(field, quantity)| {
            let kind = if quantity.kind == Kind::Calibrated { "calibrated" } else { "prior" };
            vec![field, quantity.value.to_string(), band_text(quantity.band), kind.into(), quantity.source.clone()]
        })
        .collect();
    Ok(Table::Grid { title: format!("Machine {name}"), head: head(), rows })
}

fn conclude(report: &Report, arguments: &ReproduceArguments, format: Format) -> Ending {
    let figures: Vec<Figure> = report.sections.iter().flat_map(|section| section.figures.clone()).collect();
    let ok = all_ok(&figures);
    if format == Format::Text {
        say!("{}", table::tally(&Tally::of(&figures)));
        say!("report: {}", arguments.report.join("index.html").display());
        if !ok {
            say!("Out of band: docs/reproduce.md says what the model lacks.");
        }
    }
    if ok { Ending::AsExpected } else { Ending::NotAsExpected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::read::builtin;

    #[test]
    fn every_number_of_a_set_up_is_in_its_table() {
        for experiment in experiments::ALL.map(|experiment| experiment.read().unwrap()) {
            let Table::Grid { rows, .. } = setup_of(&experiment) else { panic!("cells under headings") };
            let names: Vec<&String> = rows.iter().map(|row| &row[0]).collect();
            assert_eq!(names, experiment.setup.parameters.keys().collect::<Vec<_>>(), "{}", experiment.id);
        }
        let Table::Grid { rows, .. } = setup_of(&builtin("batch")) else { panic!("cells") };
        let files = rows.iter().find(|row| row[0] == "files").unwrap();
        assert_eq!(files[1..4], ["8 files", "4 to 16", "prior"]);
    }
}

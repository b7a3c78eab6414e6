//! `tlbscope calibrate`: what this host costs, as a machine file.

mod figures;
mod machine_file;
mod measured;

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use clap::Args;
use figures::Figure;
use serde_json::json;
use tlbkit_host::collateral::Fracturing;
use tlbkit_host::{Effort, Host, PARTS, Part, Progress, Sample, Survey, ring};
use tlbkit_machine::Machine;
use tlbkit_output::file::{check_absent, check_output, write_whole};
use tlbkit_output::jobs;
use tlbkit_output::stopping::Stopping;
use tlbkit_output::table::grid;
use tlbkit_output::terminal::{Ending, Format, progress_bar};
use tlbkit_output::{note, say};

use crate::kind::MACHINE;
use machine_file::{MachineFile, Origin, check, today};

/// What the file of a busy host says of itself: `replay` takes such prices as twice as uncertain.
const DISTURBED: &str = "others used the CPUs while it was measured: measure again on a quiet host";

/// How to measure, and where the result goes.
#[derive(Args)]
#[command(
    after_help = "Example:\n  tlbscope calibrate --quick -o mine.toml\n  tlbkit run ebizzy-m --machine mine.toml"
)]
pub(crate) struct CalibrateArguments {
    /// The machine file to write; its name without the ending becomes the machine's
    #[arg(short, long, value_name = "FILE", default_value = "this-host.toml")]
    output: PathBuf,
    /// Replace a machine file that is there and was measured
    #[arg(short, long)]
    force: bool,
    /// Few repetitions: some seconds on a quiet host
    #[arg(long)]
    quick: bool,
    /// Be a process of a ring that another calibration measures
    #[arg(long, hide = true)]
    ring_member: bool,
}

/// Measures it.
pub(crate) fn execute(arguments: &CalibrateArguments, format: Format) -> Result<Ending> {
    if arguments.ring_member {
        ring::serve()?;
        return Ok(Ending::AsExpected);
    }
    let file = arguments.output.display().to_string();
    check_output(&arguments.output, MACHINE)?;
    if !arguments.force {
        check_absent(&arguments.output)?;
    }
    let stopping = Stopping::listen()?;
    let done = Arc::default();
    let Some(survey) = survey(if arguments.quick { Effort::Quick } else { Effort::Full }, &done, &stopping)? else {
        say_interrupted(&file, &parts(&done), format)?;
        return Ok(stopping.ending());
    };
    let base = nearest_machine(&survey);
    let machine = Machine::builtin(base)?;
    let written = MachineFile {
        verb: "calibrate",
        origin: &origin(arguments, &survey, base),
        base: &machine,
        numbers: measured::numbers(&survey, &machine),
        fracturing: survey.collateral.fracturing(),
        caution: survey.disturbance.is_too_much().then_some(DISTURBED),
    };
    let text = written.text();
    check(&file, &text)?;
    // The figures first: they are not lost where the file cannot be written.
    match format {
        Format::Json => print_json(&survey),
        Format::Text => print_text(&survey),
    }
    write_whole(&arguments.output, &text)?;
    match format {
        Format::Json => say!(
            "{}",
            json!({ "machine_file": file, "base": base, "host": survey.host, "disturbance": survey.disturbance })
        ),
        Format::Text => {
            say!("\nmachine file: {file} (what no user program can measure is as {base}, and says so)");
        }
    }
    Ok(Ending::AsExpected)
}

/// The parts of a survey that are done.
type Parts = Mutex<Vec<Part>>;

fn parts(parts: &Parts) -> MutexGuard<'_, Vec<Part>> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures this host, and keeps in `done` what it has measured; nothing if somebody wants the command to end before
/// all is.
fn survey(effort: Effort, done: &Arc<Parts>, stopping: &Stopping) -> Result<Option<Survey>> {
    let program = std::env::current_exe().context("finding this program")?;
    let bar = progress_bar(PARTS);
    let (shown, done) = (bar.clone(), Arc::clone(done));
    let job = move |_| {
        let mut member = || {
            let mut command = Command::new(&program);
            command.args(["calibrate", "--ring-member"]);
            command
        };
        let mut tell = |progress| match progress {
            Progress::Begins(name) => {
                shown.set_message(name);
                shown.inc(1);
            }
            Progress::Done(part) => parts(&done).push(*part),
        };
        Ok(Survey::take(effort, &mut member, &mut tell)?)
    };
    let mut taken = None;
    let ended = jobs::each(1, stopping, job, |_, survey| {
        taken = Some(survey);
        Ok(())
    });
    bar.finish_and_clear();
    match ended {
        // Ctrl-C ends the processes of a ring as well, and without them it cannot be measured.
        Err(_) if stopping.is_wanted() => Ok(None),
        ended => ended.map(|_| taken),
    }
}

/// Shows what is measured, and says how far it came.
fn say_interrupted(file: &str, done: &[Part], format: Format) -> Result<()> {
    let figures = figures::of_parts(done, Host::ask()?.tsc_mhz);
    match format {
        Format::Json => figures.iter().for_each(|figure| say!("{}", figure.json_row())),
        Format::Text if figures.is_empty() => {}
        Format::Text => say!("{}", costs(&figures)),
    }
    let names: Vec<_> = done.iter().map(Part::name).collect();
    let named = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    note!("tlbscope: interrupted: {} of {PARTS} parts are measured{named}, and {file} is not written", done.len());
    Ok(())
}

fn origin<'a>(arguments: &CalibrateArguments, survey: &'a Survey, base: &'a str) -> Origin<'a> {
    let stem = arguments.output.file_stem().unwrap_or_default().to_string_lossy();
    Origin { machine: stem.into_owned(), host: &survey.host, date: today(), base }
}

/// The built-in machine that is nearest to the host, for what no user program can measure. A hypervisor matters most,
/// as it makes interrupts dearer by an order of magnitude; then what it backs memory with; then who made the CPU.
fn nearest_machine(survey: &Survey) -> &'static str {
    match (survey.host.is_virtual, survey.collateral.fracturing()) {
        (true, Fracturing::On) => "recent-vm-fractured",
        (true, Fracturing::Off | Fracturing::Unclear) => "recent-vm",
        (false, _) if survey.host.vendor == "AuthenticAMD" => "zen4",
        (false, _) => "recent-bare",
    }
}

fn print_json(survey: &Survey) {
    for figure in figures::all(survey) {
        say!("{}", figure.json_row());
    }
    for finding in figures::findings(survey) {
        say!("{}", json!({ "finding": finding.name, "value": finding.value, "remark": finding.remark }));
    }
}

fn print_text(survey: &Survey) {
    say!("{}", tables_text(survey));
    for finding in figures::findings(survey) {
        say!("- {}: {}; {}", finding.name, finding.value, finding.remark);
    }
}

/// A survey as tables for a person; the flat rows of [`figures`] are for programs.
///
/// All of them.
fn tables_text(survey: &Survey) -> String {
    let mut text = costs(&figures::single(survey));
    text += "\nNanoseconds, with the spread from the 10th to the 90th percentile:\n\n";
    [loads(survey), revocation(survey), rings(survey)].iter().for_each(|table| text += &format!("{table}\n"));
    text
}

/// A row for each.
fn costs(figures: &[Figure]) -> String {
    let rows: Vec<_> = figures.iter().map(Figure::text_row).collect();
    grid(&["cost", "ns", "spread", "cycles", "remark"], &rows)
}

fn cell(sample: &Sample) -> String {
    let decimals = usize::from(sample.median < 100.0);
    format!("{:.decimals$} ({})", sample.median, figures::spread(sample))
}

fn optional(sample: &Option<Sample>) -> String {
    sample.as_ref().map_or("-".to_owned(), cell)
}

fn loads(survey: &Survey) -> String {
    let row = |point: &tlbkit_host::translation::CurvePoint| {
        vec![point.pages.to_string(), cell(&point.small), optional(&point.large), cell(&point.dense)]
    };
    let rows: Vec<_> = survey.translation.curve.iter().map(row).collect();
    grid(&["a load, by pages", "4K", "same, on 2M", "same, side by side"], &rows)
}

fn revocation(survey: &Survey) -> String {
    let row = |row: &tlbkit_host::revocation::RevocationCost| {
        let name = format!("{}, {}", figures::call_word(row.call), row.pages);
        vec![name, cell(&row.alone), optional(&row.asleep), optional(&row.spinning)]
    };
    let rows: Vec<_> = survey.revocation.rows.iter().map(row).collect();
    grid(&["call, pages", "alone", "thread asleep", "thread running"], &rows)
}

fn rings(survey: &Survey) -> String {
    let row = |row: &tlbkit_host::ring::RingCost| {
        vec![row.processes.to_string(), cell(&row.idle), cell(&row.few_pages), cell(&row.many_pages)]
    };
    let rows: Vec<_> = survey.rings.rows.iter().map(row).collect();
    grid(&["a hop, by processes", "0 pages", "256 pages", "512 pages"], &rows)
}

//! `tlbkit calibrate`: what this host costs, as a machine file.

mod figures;
mod measured;
mod tables;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;
use tlbkit_host::collateral::Fracturing;
use tlbkit_host::{Effort, PARTS, Survey, ring};
use tlbkit_sim::machine::Machine;

use crate::lab::machine_file::{MachineFile, Origin, today};
use crate::lab::terminal::{Ending, Format, progress_bar, say};
use crate::output::file::{check_place, write_whole};

/// What the file of a busy host says of itself: `tune` gives no advice at such prices.
const DISTURBED: &str = "others used the CPUs while it was measured: measure again on a quiet host";

/// How to measure, and where the result goes.
#[derive(Args)]
#[command(after_help = "Example: tlbkit calibrate --quick -o mine.toml && tlbkit run ebizzy-m --machine mine.toml")]
pub(crate) struct CalibrateArguments {
    /// The machine file to write; its name without the ending becomes the machine's
    #[arg(short, long, value_name = "FILE", default_value = "this-host.toml")]
    output: PathBuf,
    /// Replace a machine file that is there
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
    check_place(&arguments.output)?;
    ensure!(arguments.force || !arguments.output.is_file(), "{file}: is there already; --force replaces it");
    let survey = survey(if arguments.quick { Effort::Quick } else { Effort::Full })?;
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
    // What `run` would refuse must not be left behind.
    Machine::parse(&file, &text).context("this host measures as no machine can be")?;
    write_whole(&arguments.output, &text)?;
    match format {
        Format::Json => print_json(&survey, base, &file),
        Format::Text => print_text(&survey, base, &file),
    }
    Ok(Ending::AsExpected)
}

fn survey(effort: Effort) -> Result<Survey> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut member = || {
        let mut command = Command::new(&program);
        command.args(["calibrate", "--ring-member"]);
        command
    };
    let bar = progress_bar(PARTS);
    let mut begin = |part| {
        bar.set_message(part);
        bar.inc(1);
    };
    let survey = Survey::take(effort, &mut member, &mut begin);
    bar.finish_and_clear();
    Ok(survey?)
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

fn print_json(survey: &Survey, base: &str, file: &str) {
    for figure in figures::all(survey) {
        say!("{}", figure.json_row());
    }
    for finding in figures::findings(survey) {
        say!("{}", json!({ "finding": finding.name, "value": finding.value, "remark": finding.remark }));
    }
    say!("{}", json!({ "machine_file": file, "base": base, "host": survey.host, "disturbance": survey.disturbance }));
}

fn print_text(survey: &Survey, base: &str, file: &str) {
    say!("{}", tables::text(survey));
    for finding in figures::findings(survey) {
        say!("- {}: {}; {}", finding.name, finding.value, finding.remark);
    }
    say!("\nmachine file: {file} (what no user program can measure is as {base}, and says so)");
}

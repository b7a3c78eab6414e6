//! `tlbkit calibrate`: what this host costs, as a machine file.

mod base;
mod figures;
pub(crate) mod measured;
mod tables;
pub(crate) mod write;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use jiff::Timestamp;
use serde_json::json;
use tlbkit_host::{Effort, PARTS, Survey, ring};
use tlbkit_sim::machine::Machine;

use crate::output::check_folder;
use crate::{Ending, Format, progress};
use measured::Origin;
use write::Sheet;

/// At the head of a file that was measured on a busy host.
const DISTURBED: &str = "# Others used the CPUs meanwhile: measure again on a quiet host before relying on it.\n";

/// How to measure, and where the result goes.
#[derive(Args)]
#[command(after_help = "Example: tlbkit calibrate --quick -o mine.toml && tlbkit run ebizzy-m --machine mine.toml")]
pub(crate) struct Options {
    /// The machine file to write; its name without the ending becomes the machine's
    #[arg(short, long, value_name = "FILE", default_value = "this-host.toml")]
    output: PathBuf,
    /// Few repetitions: some seconds on a quiet host
    #[arg(long)]
    quick: bool,
    /// Be a process of a ring that another calibration measures
    #[arg(long, hide = true)]
    ring_member: bool,
}

/// Measures it.
pub(crate) fn execute(options: &Options, format: Format) -> Result<Ending> {
    if options.ring_member {
        ring::serve()?;
        return Ok(Ending::Fine);
    }
    let file = options.output.display().to_string();
    check_folder(&options.output)?;
    let survey = survey(if options.quick { Effort::Quick } else { Effort::Full })?;
    let base = base::nearest(&survey);
    let machine = Machine::builtin(base)?;
    let sheet = Sheet {
        verb: "calibrate",
        origin: &origin(options, &survey, base),
        base: &machine,
        entries: measured::entries(&survey, &machine),
        fracturing: survey.collateral.fracturing(),
    };
    let text = if survey.disturbance.is_too_much() { DISTURBED } else { "" }.to_owned() + &sheet.text();
    // What `run` would refuse must not be left behind.
    Machine::parse(&file, &text).context("this host measures as no machine can be")?;
    fs::write(&options.output, text).with_context(|| file.clone())?;
    match format {
        Format::Json => print_json(&survey, base, &file),
        Format::Text => print_text(&survey, base, &file),
    }
    Ok(Ending::Fine)
}

fn survey(effort: Effort) -> Result<Survey> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut member = || {
        let mut command = Command::new(&program);
        command.args(["calibrate", "--ring-member"]);
        command
    };
    let bar = progress::bar(PARTS);
    let mut begin = |part| {
        bar.set_message(part);
        bar.inc(1);
    };
    let survey = Survey::take(effort, &mut member, &mut begin);
    bar.finish_and_clear();
    Ok(survey?)
}

fn origin<'a>(options: &Options, survey: &'a Survey, base: &'a str) -> Origin<'a> {
    let stem = options.output.file_stem().unwrap_or_default().to_string_lossy();
    Origin {
        machine: stem.into_owned(),
        host: &survey.host,
        date: Timestamp::now().strftime("%Y-%m-%d").to_string(),
        base,
    }
}

fn print_json(survey: &Survey, base: &str, file: &str) {
    for figure in figures::all(survey) {
        println!("{}", figure.json_row());
    }
    for finding in figures::findings(survey) {
        println!("{}", json!({ "finding": finding.name, "value": finding.value, "remark": finding.remark }));
    }
    println!(
        "{}",
        json!({ "machine_file": file, "base": base, "host": survey.host, "disturbance": survey.disturbance })
    );
}

fn print_text(survey: &Survey, base: &str, file: &str) {
    println!("{}", tables::text(survey));
    for finding in figures::findings(survey) {
        println!("- {}: {}; {}", finding.name, finding.value, finding.remark);
    }
    println!("\nmachine file: {file} (what no user program can measure is as {base}, and says so)");
}

//! `cargo xtask advice`: what `tune` predicts, beside what `try` measures, on nine programs with different allocators.
//!
//! For each program the host is calibrated, the program recorded and tuned, and the best three changes are tried: `tune
//! --try` as anyone runs it, by CPU time of interleaved pairs, so that other load adds noise and no bias. A row stands
//! for a change that was tried, right or wrong. It is a benchmark and no test: its figures are the host's, and only a
//! quiet host's mean much. Nothing is fitted: prices come from the calibration.

mod programs;
mod row;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tlbkit_sim::machine::Machine;

use crate::setup;
use programs::{PROGRAMS, Program};
use row::{Row, Size, rows};

/// Where programs are built and prices are kept, in cargo's folder.
const FOLDER: &str = "advice";

/// Runs those whose name holds one of `words`, or all.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<bool> {
    let chosen: Vec<&Program> = PROGRAMS.iter().filter(|program| is_meant(program.name, words)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
        bail!("no program `{}`; there are {}", words.join(" "), names.join(", "));
    }
    let folder = setup::target_dir(root).join(FOLDER);
    fs::create_dir_all(&folder)?;
    let tlbkit = built(root)?;
    println!("\n| program | change | predicted, ms | measured, ms | of the program | direction | size |");
    println!("|---|---|---|---|---|---|---|");
    let (mut right, mut all, mut sizes) = (0, 0, Vec::new());
    let mut cautions = Vec::new();
    for program in chosen {
        // Prices of the same minutes: on a host with neighbours those of an hour ago are another machine's.
        let machine = calibrated(&tlbkit, &folder)?;
        cautions.extend(caution(&machine)?.map(|caution| format!("{}: {caution}", program.name)));
        for row in attempt(&tlbkit, &machine, program, &folder)? {
            match row {
                Ok(row) => {
                    println!("{}", row.line(program.name));
                    right += u32::from(row.is_direction_right());
                    sizes.push(row.size());
                    all += 1;
                }
                Err(why) => println!("| {} | {why} | | | | | |", program.name),
            }
        }
    }
    for caution in cautions {
        println!("\nprices for {caution}");
    }
    let count = |wanted: Size| sizes.iter().filter(|&&size| size == wanted).count();
    let (fitting, open, wrong) = (count(Size::Right), count(Size::NotToldApart), count(Size::Wrong));
    println!("\ndirection right in {right} of {all}");
    println!("size right in {fitting}: the median in the stated range, or within 25 % of its middle");
    println!("size not told apart in {open}: the measured interval overlaps the range; wrong in {wrong}");
    Ok(true)
}

fn is_meant(name: &str, words: &[String]) -> bool {
    words.is_empty() || words.iter().any(|word| name.contains(word.as_str()))
}

/// The command itself, as the tree has it.
fn built(root: &Path) -> Result<PathBuf> {
    let status = Command::new("cargo").args(["build", "-p", "tlbkit-cli"]).current_dir(root).status()?;
    if !status.success() {
        bail!("the command `tlbkit` does not build");
    }
    Ok(setup::target_dir(root).join("debug/tlbkit"))
}

/// The prices of this host, measured now.
fn calibrated(tlbkit: &Path, folder: &Path) -> Result<PathBuf> {
    let file = folder.join("this-host.toml");
    let output = Command::new(tlbkit).args(["--json", "calibrate", "--quick", "--force", "-o"]).arg(&file).output()?;
    if !output.status.success() {
        bail!("calibrate: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(file)
}

/// What the file says against itself.
fn caution(machine: &Path) -> Result<Option<String>> {
    let file = machine.display().to_string();
    let text = fs::read_to_string(machine).with_context(|| format!("reading {file}"))?;
    Ok(Machine::parse(&file, &text)?.caution)
}

/// The rows of a program, or why there is none.
fn attempt(tlbkit: &Path, machine: &Path, program: &Program, folder: &Path) -> Result<Vec<Result<Row, String>>> {
    let command = match program.command(folder)? {
        Ok(command) => command,
        Err(how) => return Ok(vec![Err(format!("not here: {how}"))]),
    };
    let mut tune = Command::new(tlbkit);
    tune.args(["--json", "tune", "--try", "--machine"]).arg(machine).arg("--").args(command);
    tune.envs(program.environment.iter().copied());
    let output = tune.stdin(Stdio::null()).stderr(Stdio::piped()).output().context("running tlbkit tune")?;
    let text = String::from_utf8_lossy(&output.stdout);
    fs::write(folder.join(format!("{}.jsonl", program.name.replace(' ', "-"))), text.as_bytes())?;
    let values: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if output.status.code() == Some(2) || values.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Ok(vec![Err(format!("failed: {}", why.lines().last().unwrap_or_default()))]);
    }
    let rows = rows(&values);
    Ok(if rows.is_empty() { vec![Err("nothing to try".into())] } else { rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_file_says_against_itself_is_read_as_the_command_reads_it() -> Result<()> {
        let text = fs::read_to_string(setup::root()?.join("sim/machines/cascade-lake-96core.toml"))?;
        let file = std::env::temp_dir().join(format!("tlbkit-advice-{}.toml", std::process::id()));
        let cautioned = |text: &str| fs::write(&file, text).map_err(Into::into).and_then(|()| caution(&file));
        let without = cautioned(&text)?;
        let with = cautioned(&format!("caution='one \"noisy\" host'\n{text}"))?;
        let error = cautioned("caution = 1").map_err(|error| format!("{error:#}"));
        fs::remove_file(&file)?;
        assert_eq!((without, with.as_deref()), (None, Some("one \"noisy\" host")));
        assert!(error.is_err_and(|text| text.contains("tlbkit-advice-")));
        Ok(())
    }
}

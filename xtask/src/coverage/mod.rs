//! `cargo xtask coverage`: which lines of the protocol and of the page tables the checker's programs reach, in both its
//! builds. A function with a line that none reaches must stand in `verify/coverage.toml`, with the test that reaches it
//! or the reason why nothing does.

mod reached;
mod unreached;

use crate::setup::{self, Ready};
use crate::workshop::Sets;
use anyhow::{Context, Result, bail};
use reached::File;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use unreached::{Known, Why};

/// Seeds that each build runs, of all programs in turn and of random ones.
const SEEDS: u64 = 50_000;
/// The folders that are looked at; what old kernels did is left out.
const SOURCES: [&str; 2] = ["lib/tlbkit/src", "lib/tlbkit-pmap/src"];
const HISTORY: &str = "/history/";

/// The verb; false if a line is not reached and nobody says why, or a saying is about what is reached by now.
///
/// # Errors
/// If a tool is missing, the checker does not build, or it finds something.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let known = Known::read(root)?;
    let tools = match setup::llvm_tools() {
        Ready::Yes(folder) => folder,
        Ready::No(what) => bail!("{what}"),
    };
    let target = setup::target_dir(root).join("coverage");
    let (mut checkers, mut profiles) = (Vec::new(), Vec::new());
    for sets in Sets::ALL {
        let checker = build(root, &target, sets)?;
        let profile = target.join(format!("{}.profraw", sets.folder()));
        eprintln!("coverage: {SEEDS} seeds, {}", sets.folder());
        output(Command::new(&checker).args(["--budget", &SEEDS.to_string()]).env("LLVM_PROFILE_FILE", &profile))?;
        checkers.push(checker);
        profiles.push(profile);
    }
    let merged = target.join("all.profdata");
    output(Command::new(tools.join("llvm-profdata")).args(["merge", "-sparse", "-o"]).arg(&merged).args(&profiles))?;
    let export = |form: &[&str]| {
        let mut tool = Command::new(tools.join("llvm-cov"));
        tool.arg("export").args(form).arg(&checkers[0]).arg("-instr-profile").arg(&merged);
        output(tool.args(checkers[1..].iter().flat_map(|checker| [Path::new("-object"), checker])))
    };
    let mut files = reached::files(&export(&["-format=lcov"])?, &export(&["-summary-only"])?, root)?;
    files.retain(|file| SOURCES.iter().any(|folder| file.path.starts_with(folder)) && !file.path.contains(HISTORY));
    for folder in SOURCES {
        let of_it: Vec<&File> = files.iter().filter(|file| file.path.starts_with(folder)).collect();
        if of_it.is_empty() {
            bail!("the report names no file of {folder}");
        }
        println!("{}", table(folder, &of_it, &known));
    }
    let complaints = known.complaints(&files);
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    Ok(complaints.is_empty())
}

fn build(root: &Path, target: &Path, sets: Sets) -> Result<PathBuf> {
    let target = target.join(sets.folder());
    fs::create_dir_all(&target)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--quiet", "--package", "tlbkit-check"]).current_dir(root);
    cargo.env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    // Two threads count: without atomics one may write back what it read before the other counted.
    cargo.env(
        "RUSTFLAGS",
        format!("-C instrument-coverage -C llvm-args=-instrprof-atomic-counter-update-all {}", sets.flags()),
    );
    // What runs during the build is instrumented too.
    output(cargo.env("LLVM_PROFILE_FILE", target.join("build-%m.profraw")))?;
    Ok(target.join("release/tlbkit-check"))
}

/// What a command writes, if it succeeds.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A line for each file, then the folder's sums.
fn table(folder: &str, files: &[&File], known: &Known) -> String {
    let mut text = format!("{:<34} {:>11} {:>13}  not reached: in tests, with a reason\n", folder, "lines", "regions");
    let (mut lines, mut regions, mut elsewhere) = ((0, 0), (0, 0), (0, 0));
    for file in files {
        let of = |is_it: fn(&Why) -> bool| -> usize {
            let missed = file.missed.iter().filter(|missed| known.why(&file.path, &missed.function).is_some_and(is_it));
            missed.map(|missed| missed.lines.len()).sum()
        };
        let (tested, excused) = (of(|why| matches!(why, Why::Test(_))), of(|why| matches!(why, Why::Reason)));
        let name = file.path.rsplit('/').next().unwrap_or_default();
        text += &row(name, file.lines, file.regions, (tested, excused));
        for (sum, one) in [(&mut lines, file.lines), (&mut regions, file.regions), (&mut elsewhere, (tested, excused))]
        {
            *sum = (sum.0 + one.0, sum.1 + one.1);
        }
    }
    text + &row("together", lines, regions, elsewhere)
}

fn row(name: &str, lines: (usize, usize), regions: (usize, usize), elsewhere: (usize, usize)) -> String {
    let of = |(reached, all): (usize, usize)| format!("{reached}/{all}");
    format!("{name:<34} {:>11} {:>13}  {}, {}\n", of(lines), of(regions), elsewhere.0, elsewhere.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_an_error_with_what_it_wrote() {
        let error = output(Command::new("sh").args(["-c", "echo lost >&2; exit 3"])).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("lost") && text.contains("sh")));
    }

    #[test]
    fn the_sums_are_of_all_files() -> Result<()> {
        let file = |path: &str| File { path: path.to_owned(), lines: (3, 4), regions: (5, 7), missed: Vec::new() };
        let (one, two) = (file("lib/a/src/b.rs"), file("lib/a/src/c.rs"));
        let table = table("lib/a/src", &[&one, &two], &Known::parse("")?);
        let last: Vec<&str> = table.lines().last().context("no line")?.split_whitespace().collect();
        assert_eq!(last, ["together", "6/8", "10/14", "0,", "0"]);
        Ok(())
    }
}

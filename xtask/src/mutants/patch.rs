//! `verify/mutants/*.patch`: a header that says where the bug comes from, what it breaks and, for some, which program
//! alone the seeds run, which one shows it when all its schedules are explored, or in which build alone it shows; then
//! a unified diff. One that only an exploration shows names the deviations that it takes, and is not looked for through
//! seeds. Those of `verify/mutants/by-tests/` name the tests that are run, and the one that must fail.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

use crate::workshop::Sets;

/// One historical bug.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Patch {
    /// The file's name without its ending.
    pub(super) name: String,
    /// The kernel that shipped the bug, or the rule that it breaks.
    pub(super) origin: String,
    /// The program that all seeds run, where few of them meet the bug in another.
    pub(super) program: Option<String>,
    /// The small program of which all schedules within a bound are explored too, if they show it.
    pub(super) explored: Option<String>,
    /// Deviations that those schedules take, if seeds do not show it.
    pub(super) deviations: Option<u8>,
    /// The build that shows it.
    pub(super) sets: Sets,
    /// The tests that show it, if not the checker does.
    pub(super) witness: Option<Witness>,
    /// The file.
    pub(super) file: PathBuf,
}

/// Tests that look for a bug.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Witness {
    /// What `cargo test --package` is given.
    pub(super) tests: String,
    /// The test that must fail.
    pub(super) test: String,
}

/// All patches of `folder`, by name.
pub(super) fn read_all(folder: &Path) -> Result<Vec<Patch>> {
    let mut patches = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let file = entry?.path();
        if file.extension().is_some_and(|ending| ending == "patch") {
            let text = fs::read_to_string(&file)?;
            patches.push(parse(&file, &text).with_context(|| file.display().to_string())?);
        }
    }
    patches.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(patches)
}

fn parse(file: &Path, text: &str) -> Result<Patch> {
    let header = |field: &str| {
        let value = text.lines().take_while(|line| !line.starts_with("--- ")).find_map(|line| line.strip_prefix(field));
        value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let Some(origin) = header("Origin:") else { bail!("no line `Origin: ...` before the diff") };
    if header("Breaks:").is_none() {
        bail!("no line `Breaks: ...` before the diff");
    }
    let sets = match header("Build:").as_deref() {
        None => Sets::Wide,
        Some("narrow_sets") => Sets::Narrow,
        Some(other) => bail!("`Build:` is `narrow_sets` or left out, not `{other}`"),
    };
    let explored = header("Explored:");
    let deviations = header("Deviations:").map(|text| text.parse()).transpose().context("`Deviations:`")?;
    if deviations.is_some() && explored.is_none() {
        bail!("`Deviations: ...` without `Explored: ...`");
    }
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let witness = match (header("Tests:"), header("Fails:")) {
        (Some(tests), Some(test)) => Some(Witness { tests, test }),
        (None, None) => None,
        _ => bail!("`Tests: ...` and `Fails: ...` belong together"),
    };
    let program = header("Program:");
    Ok(Patch { name, origin, program, explored, deviations, sets, witness, file: file.to_path_buf() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_without_an_origin_is_refused() {
        let good = "Origin: somebody\nBreaks: something\n\n--- a/x\n+++ b/x\n";
        assert_eq!(parse(Path::new("m/a-bug.patch"), good).map(|p| p.name).ok().as_deref(), Some("a-bug"));
        for bad in [
            "Breaks: something\n--- a/x\n",
            "Origin:\nBreaks: b\n",
            "Origin: o\nBreaks: b\nBuild: x\n",
            "Origin: o\nBreaks: b\nTests: tlbkit-x86\n",
            "Origin: o\nBreaks: b\nDeviations: 3\n",
            "Origin: o\nBreaks: b\nExplored: x\nDeviations: many\n",
            "--- a/x\nOrigin: late\nBreaks: late\n",
        ] {
            assert!(parse(Path::new("m/a-bug.patch"), bad).is_err(), "{bad:?}");
        }
    }
}

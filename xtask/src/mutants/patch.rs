//! `verify/mutants/*.patch`: a header that says where the bug comes from, what it breaks and, for some, which program
//! or policy alone the seeds run, which program shows it when all its schedules are explored, or in which build alone
//! it shows; then a unified diff. One that only an exploration shows names the deviations that it takes, and is not
//! looked for through seeds. Those of `verify/mutants/by-tests/` name the tests that are run, and the one that must
//! fail.

use super::copy::Build;
use crate::workshop::Sets;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// One historical bug.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Patch {
    /// The file's name without its ending.
    pub(super) name: String,
    /// The kernel that shipped the bug, or the rule that it breaks.
    pub(super) origin: String,
    /// Who must notice it.
    pub(super) judge: Judge,
    /// The build that shows it, if the adversarial machine does.
    sets: Sets,
    /// What it changes, each a path from the root.
    pub(super) files: Vec<String>,
    /// The patch.
    pub(super) file: PathBuf,
}

/// Who must notice a bug.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Judge {
    /// The adversarial machine, in one of so many seeds.
    Seeds {
        /// The program that all seeds run, where few of them meet the bug in another.
        program: Option<String>,
        /// The policy of all seeds, where few others have the code that the bug is in.
        policy: Option<String>,
        /// The small program of which all schedules within a bound must show it too.
        explored: Option<String>,
    },
    /// One of all schedules of a small program with so many deviations: seeds do not find it.
    States { program: String, deviations: u8 },
    /// A test.
    Test(Witness),
}

/// A test that looks for a bug.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Witness {
    /// What `cargo test --package` is given.
    pub(super) tests: String,
    /// The test that must fail: its name, or the end of it from a module on.
    pub(super) test: String,
}

impl Patch {
    /// What has to be built for its judge.
    pub(super) const fn build(&self) -> Build {
        match self.judge {
            Judge::Test(_) => Build::Tests,
            Judge::Seeds { .. } | Judge::States { .. } => Build::Checker(self.sets),
        }
    }

    /// Whether it is built by itself: its judge looks at the instructions of the functions that it changes, so nothing
    /// else may stand in them, or asks what a kernel links, while other judges want more features.
    pub(super) fn is_alone(&self) -> bool {
        let is_alone = |tests: &str| matches!(tests, "tlbkit-x86 --test bytes" | "tlbkit --test protocol");
        matches!(&self.judge, Judge::Test(witness) if is_alone(&witness.tests))
    }
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
    let judge = match (header("Tests:"), header("Fails:"), explored, deviations) {
        (Some(tests), Some(test), None, None) => Judge::Test(Witness { tests, test }),
        (None, None, Some(program), Some(deviations)) => Judge::States { program, deviations },
        (None, None, explored, None) => {
            Judge::Seeds { program: header("Program:"), policy: header("Policy:"), explored }
        }
        (None, None, None, Some(_)) => bail!("`Deviations: ...` without `Explored: ...`"),
        _ => bail!("`Tests: ...` and `Fails: ...` belong together, and to nothing else"),
    };
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let files = text.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(str::to_owned).collect();
    Ok(Patch { name, origin, judge, sets, files, file: file.to_path_buf() })
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

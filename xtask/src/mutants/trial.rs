//! One historical bug: applied to a copy, built, and looked for on the adversarial machine.

use super::patch::Patch;
use crate::workshop::{OBSERVED, Sets, TESTKIT, Workshop};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What the checker needs to be built.
const CRATES: [&str; 6] =
    ["lib/tlbkit", "lib/tlbkit-arch", "lib/tlbkit-pmap", TESTKIT, OBSERVED, "verify/tlbkit-check"];

/// Each bug is built once and run for a second or two: a quick build is worth more than quick code.
const QUICK: &[(&str, &str)] = &[
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
];
/// Millions of seeds are worth the release build.
const FULL: &[(&str, &str)] = &[];

/// Deviations of the schedules that are explored, unless the patch asks for more.
const BOUND: u8 = 2;

/// What became of one bug.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Search {
    pub(super) mutant: String,
    pub(super) origin: String,
    /// The property that was broken, if one was.
    pub(super) by: Option<String>,
    /// Seeds or states until then, or all that there were.
    pub(super) needed: u64,
    /// Which of the two.
    pub(super) unit: &'static str,
    /// How long the search alone took.
    pub(super) seconds: f64,
}

/// A copy of the protocol and of what checks it.
pub(super) struct CheckerCopy {
    workshop: Workshop,
    budget: u64,
}

impl CheckerCopy {
    /// Copies the workspace at `root`; each bug is looked for through `budget` seeds.
    pub(super) fn new(root: &Path, target: &Path, budget: u64) -> Result<Self> {
        Ok(Self { workshop: Workshop::new(root, &target.join("mutants"), &CRATES)?, budget })
    }

    /// Applies `patch`, and takes it back.
    pub(super) fn try_on(&self, patch: &Patch) -> Result<()> {
        self.workshop.apply(&patch.file).context("the patch does not apply any more")?;
        self.workshop.revert(&patch.file)
    }

    /// Looks for `patch` in a copy that has it: through seeds, unless it names its deviations, then through all
    /// schedules of its program, if any.
    pub(super) fn look_for(&self, patch: &Patch) -> Result<Vec<Search>> {
        self.workshop.apply(&patch.file).context("the patch does not apply any more")?;
        let rows = self.build(QUICK, patch.sets).and_then(|checker| {
            let search = || self.search(&checker, patch, self.budget);
            let seeds = patch.deviations.is_none().then(search).transpose()?;
            let states = patch.explored.as_deref().map(|program| self.explore(&checker, patch, program)).transpose()?;
            Ok(seeds.into_iter().chain(states).collect())
        });
        self.workshop.revert(&patch.file)?;
        rows
    }

    /// Searches `times` as long on the protocol without the bug: nothing may be found.
    pub(super) fn unmutated(&self, times: u64, sets: Sets) -> Result<Search> {
        let checker = self.build(if times > 1 { FULL } else { QUICK }, sets)?;
        let what = match sets {
            Sets::Wide => "the protocol as it is",
            Sets::Narrow => "the same with two CPUs a word",
        };
        self.spend(&checker, ("(none)", what), self.budget * times, &[])
    }

    fn search(&self, checker: &Path, patch: &Patch, budget: u64) -> Result<Search> {
        let program = patch.program.as_ref().map(|name| ["--program", name]);
        self.spend(checker, (&patch.name, &patch.origin), budget, program.as_ref().map_or(&[], |args| &args[..]))
    }

    fn spend(&self, checker: &Path, (mutant, origin): (&str, &str), budget: u64, only: &[&str]) -> Result<Search> {
        let start = Instant::now();
        let budget_seeds = budget.to_string();
        let found = check(checker, &[&["--budget", &budget_seeds], only].concat())?;
        Ok(Search {
            mutant: mutant.to_owned(),
            origin: origin.to_owned(),
            by: found["finding"].as_str().map(str::to_owned),
            needed: found["seeds"].as_u64().context("the checker counts no seeds")?,
            unit: "seeds",
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    fn explore(&self, checker: &Path, patch: &Patch, program: &str) -> Result<Search> {
        let start = Instant::now();
        let bound = patch.deviations.unwrap_or(BOUND).to_string();
        let found = check(checker, &["--program", program, "--policy", "tlbkit", "--exhaustive", &bound])?;
        Ok(Search {
            mutant: patch.deviations.map_or_else(|| format!("  all of {program}"), |_| patch.name.clone()),
            origin: patch.deviations.map_or_else(|| patch.name.clone(), |_| format!("all of {program}")),
            by: found["finding"].as_str().map(str::to_owned),
            needed: found["states"].as_u64().context("the checker counts no states")?,
            unit: "states",
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// Builds the checker; where it is.
    fn build(&self, profile: &[(&str, &str)], sets: Sets) -> Result<PathBuf> {
        let target = self.workshop.target.join(sets.folder());
        let output = Command::new("cargo")
            .args(["build", "--release", "--quiet", "--package", "tlbkit-check"])
            .current_dir(&self.workshop.root)
            .env("CARGO_TARGET_DIR", &target)
            // What a bug leaves unused is not its point.
            .env("RUSTFLAGS", format!("--cap-lints=allow {}", sets.flags()))
            .envs(profile.iter().copied())
            .output()
            .context("running cargo")?;
        if !output.status.success() {
            bail!("it does not build: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(target.join("release/tlbkit-check"))
    }
}

/// What the checker answers.
fn check(checker: &Path, args: &[&str]) -> Result<serde_json::Value> {
    let output = Command::new(checker).args(args).arg("--json").output().context("running the checker")?;
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("the checker ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("reading the checker's answer")
}

//! One historical bug: applied to a copy, built, and looked for on the adversarial machine.

use super::patch::Patch;
use crate::workshop::Workshop;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What the checker needs to be built.
const CRATES: [&str; 3] = ["tlbkit", "tlbkit-pmap", "tlbkit-check"];

/// What became of one bug.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Row {
    pub(super) mutant: String,
    pub(super) origin: String,
    /// The property that was broken, if one was.
    pub(super) by: Option<String>,
    /// Seeds until then, or all that there were.
    pub(super) needed: u64,
    /// Of the search alone.
    pub(super) seconds: f64,
}

/// A copy of the protocol and of what checks it.
pub(super) struct Trial {
    workshop: Workshop,
    budget: u64,
}

impl Trial {
    /// Copies the workspace at `root`; each bug is looked for through `budget` seeds.
    pub(super) fn new(root: &Path, target: &Path, budget: u64) -> Result<Self> {
        Ok(Self { workshop: Workshop::new(root, &target.join("mutants"), &CRATES)?, budget })
    }

    /// Applies `patch`, and takes it back.
    pub(super) fn try_on(&self, patch: &Patch) -> Result<()> {
        self.workshop.apply(&patch.file).context("the patch does not apply any more")?;
        self.workshop.revert(&patch.file)
    }

    /// Looks for `patch` in a copy that has it.
    pub(super) fn look_for(&self, patch: &Patch) -> Result<Row> {
        self.workshop.apply(&patch.file).context("the patch does not apply any more")?;
        let row = self.search(&patch.name, &patch.origin, self.budget);
        self.workshop.revert(&patch.file)?;
        row
    }

    /// The same search `times` as long on what everybody links: nothing may be found.
    pub(super) fn unmutated(&self, times: u64) -> Result<Row> {
        self.search("(none)", "the protocol as it is", self.budget * times)
    }

    fn search(&self, mutant: &str, origin: &str, budget: u64) -> Result<Row> {
        self.build()?;
        let start = Instant::now();
        let output = Command::new(self.workshop.target.join("release/tlbkit-check"))
            .args(["--budget", &budget.to_string(), "--json"])
            .output()
            .context("running the checker")?;
        if !matches!(output.status.code(), Some(0 | 1)) {
            bail!("the checker ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        let found: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("reading the checker's answer")?;
        Ok(Row {
            mutant: mutant.to_owned(),
            origin: origin.to_owned(),
            by: found["finding"].as_str().map(str::to_owned),
            needed: found["seed"].as_u64().map_or(budget, |seed| seed + 1),
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    fn build(&self) -> Result<()> {
        let output = Command::new("cargo")
            .args(["build", "--release", "--quiet", "--package", "tlbkit-check"])
            .current_dir(&self.workshop.root)
            .env("CARGO_TARGET_DIR", &self.workshop.target)
            // What a bug leaves unused is not its point.
            .env("RUSTFLAGS", "--cap-lints=allow")
            // Each bug is built once and run for a second or two: a quick build is worth more than quick code.
            .envs([("CARGO_PROFILE_RELEASE_LTO", "off"), ("CARGO_PROFILE_RELEASE_DEBUG", "0")])
            .envs([("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"), ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")])
            .output()
            .context("running cargo")?;
        if !output.status.success() {
            bail!("it does not build: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

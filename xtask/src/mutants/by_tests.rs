//! Bugs outside the protocol: each is put into a copy of the crates, and tests that its patch names must fail.

use super::patch::{Patch, Witness};
use super::trial::Search;
use crate::workshop::{TESTED_CRATES, TESTED_DATA, Workshop};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

/// What is counted of them.
pub(super) const UNIT: &str = "tests";

/// A copy of crates whose tests look for bugs.
pub(super) struct TestedCopy {
    workshop: Workshop,
}

impl TestedCopy {
    /// Copies the workspace at `root`.
    pub(super) fn new(root: &Path, target: &Path) -> Result<Self> {
        let workshop = Workshop::new(root, &target.join("mutants-by-tests"), &TESTED_CRATES)?;
        workshop.add(root, TESTED_DATA)?;
        Ok(Self { workshop })
    }

    /// Applies `patch`, and takes it back.
    pub(super) fn try_on(&self, patch: &Patch) -> Result<()> {
        self.workshop.apply(&patch.file).context("the patch does not apply any more")?;
        self.workshop.revert(&patch.file)
    }

    /// Runs the tests of the witness on the copy as it is, which must pass: what always fails witnesses nothing.
    pub(super) fn hear_without_a_bug(&self, witness: &Witness) -> Result<()> {
        let failed = failed(&self.cargo_test(witness, &[])?)?;
        if !failed.is_empty() {
            bail!("`cargo test {}` fails without any bug: {}", witness.tests, failed.join(", "));
        }
        Ok(())
    }

    /// Puts `patch` in and runs the tests of its witness: the one that it names must fail.
    pub(super) fn look_for(&self, patch: &Patch, witness: &Witness) -> Result<Search> {
        self.workshop.apply(&patch.file).context("the patch does not apply any more")?;
        let start = Instant::now();
        let found = self.cargo_test(witness, &["--no-run"]).and_then(|built| {
            if !built.status.success() {
                bail!("it does not build: {}", String::from_utf8_lossy(&built.stderr).trim());
            }
            failed(&self.cargo_test(witness, &[])?)
        });
        self.workshop.revert(&patch.file)?;
        let found = found?;
        Ok(Search {
            mutant: patch.name.clone(),
            origin: patch.origin.clone(),
            by: found.iter().find(|name| name.ends_with(&witness.test)).cloned(),
            needed: found.len() as u64,
            unit: UNIT,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    fn cargo_test(&self, witness: &Witness, more: &[&str]) -> Result<Output> {
        Command::new("cargo")
            .args(["test", "--quiet", "--no-fail-fast", "--package"])
            .args(witness.tests.split_whitespace())
            .args(more)
            .current_dir(&self.workshop.root)
            .env("CARGO_TARGET_DIR", &self.workshop.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // What an interrupted search leaves behind must not decide the next one.
            .env("CARGO_INCREMENTAL", "0")
            // What a bug leaves unused is not its point. Not `allow`: tests of the C interface build an archive for a
            // machine without a system, and cargo learns by a warning of the compiler what that target cannot make.
            .env("RUSTFLAGS", "--cap-lints=warn")
            .output()
            .context("running cargo")
    }
}

/// Names of the tests that failed; an error if none did and the run did not pass either.
fn failed(output: &Output) -> Result<Vec<String>> {
    let text = String::from_utf8_lossy(&output.stdout);
    let names = failed_in(&text);
    if names.is_empty() && !output.status.success() {
        bail!("the tests ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(names)
}

/// What stands under each last heading `failures:` of a test program.
fn failed_in(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .split("failures:\n")
        .flat_map(|part| part.lines().take_while(|line| line.starts_with("    ") || line.is_empty()))
        .map(str::trim)
        .filter(|name| !name.is_empty() && !name.contains(' '))
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_by_name_out_of_several_programs() {
        let text = "\nrunning 2 tests\n.F\nfailures:\n\n---- b::two stdout ----\n\nthread 'b::two' panicked\n\n\n\
                    failures:\n    b::two\n    a::one\n\ntest result: FAILED. 1 passed\n\nrunning 1 test\nF\n\
                    failures:\n\n---- three stdout ----\n\n    quoted text\n\nfailures:\n    three\n\ntest result: F\n";
        assert_eq!(failed_in(text), ["a::one", "b::two", "three"]);
        assert_eq!(failed_in("running 1 test\n.\ntest result: ok. 1 passed\n"), [] as [&str; 0]);
    }
}

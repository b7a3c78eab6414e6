//! What the repository promises is tested: each numbered invariant by some test, each command of the README by one.

use super::repo::{Repo, Report};
use super::source::{Source, word_columns};

const INVARIANTS_COUNT: usize = 12;
const README_TEST: &str = "cli/tlbkit/tests/readme.rs";
/// What a line of a README begins with if a reader is meant to type it.
const COMMANDS: &[&str] = &["cargo ", "tlbkit ", "git ", "$ ", "./", "apt-get ", "sudo "];

pub(super) fn invariant_tested(repo: &Repo, report: &mut Report<'_>) {
    let Some(home) = repo.at("lib/tlbkit/src/lib.rs") else { return };
    for number in 1..=INVARIANTS_COUNT {
        let name = format!("INV-{number}");
        // The rules' own tests name invariants and prove none.
        let mut tested_by = repo.rust().filter(|source| source.crate_dir() != "xtask");
        if !tested_by.any(|source| test_names(source, &name)) {
            report(home, 1, format!("{name} is named by no test, at least one must"));
        }
    }
}

fn test_names(source: &Source, name: &str) -> bool {
    let mut tests = source.lines.iter().zip(&source.is_test).filter(|(_, is_test)| **is_test);
    tests.any(|(line, _)| word_columns(line, name).next().is_some())
}

pub(super) fn readme_tested(repo: &Repo, report: &mut Report<'_>) {
    let Some(readme) = repo.at("README.md") else { return };
    if !repo.at(README_TEST).is_some_and(|test| test.lines.iter().any(|line| line.contains("README.md"))) {
        report(readme, 1, format!("its commands are run by nothing, {README_TEST} must run them"));
    }
    let mut fence: Option<String> = None;
    for (at, line) in readme.lines.iter().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language.trim().to_owned()) };
        } else if is_untested_command(fence.as_deref(), line) {
            report(readme, at + 1, format!("a command outside a `sh` block, only those are run by {README_TEST}"));
        }
    }
}

/// True for a command in a block that the README's test does not look into.
fn is_untested_command(fence: Option<&str>, line: &str) -> bool {
    let is_other_block = fence.is_some_and(|language| language != "sh");
    is_other_block && COMMANDS.iter().any(|start| line.trim_start().starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::super::repo::testing::places;
    use super::*;

    #[test]
    fn an_invariant_that_no_test_names_is_found() {
        let all: String = (1..=12).map(|number| format!("// INV-{number}: holds.\n")).collect();
        let (home, other) = (("lib/tlbkit/src/lib.rs", all.as_str()), ("xtask/tests/a.rs", all.as_str()));
        assert_eq!(places(invariant_tested, &[home, other]).len(), 12, "neither is a test of the protocol");
        assert!(places(invariant_tested, &[home, ("lib/tlbkit/tests/a.rs", &all)]).is_empty());
        let first_gone = all.replace("INV-1:", "");
        assert_eq!(
            places(invariant_tested, &[home, ("lib/tlbkit/tests/a.rs", &first_gone)]).len(),
            1,
            "INV-12 is not INV-1"
        );
    }

    #[test]
    fn a_readme_command_that_nothing_runs_is_found() {
        let test = (README_TEST, "//! Runs README.md.");
        let good = "```sh\ncargo run\n```\ncargo is prose here\n```rust\nlet a = 1;\n```\n";
        assert!(places(readme_tested, &[("README.md", good), test]).is_empty());
        assert_eq!(places(readme_tested, &[("README.md", good)]), ["README.md:1"]);
        let bad = "```\ncargo run\n```\n```console\n$ tlbkit list\n```\n";
        assert_eq!(places(readme_tested, &[("README.md", bad), test]), ["README.md:2", "README.md:5"]);
    }
}

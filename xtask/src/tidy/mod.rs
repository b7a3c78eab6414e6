//! `cargo xtask tidy`: the repository checks itself against its own house rules.
//!
//! One rule is one small function from the whole repository to findings, and stands in `RULES` under its name; beside
//! each stands a test that shows it failing. What a rule is for is said in `CONTRIBUTING.md`. The lengths in `ADVICE`
//! are found in the same way, and fail nothing.

mod bools;
mod circles;
mod forbid;
mod links;
mod numbers;
mod proof;
mod repo;
mod size;
pub(crate) mod source;

use anyhow::Result;
pub(crate) use links::{is_elsewhere, resolve, targets};
use repo::{Repo, Rule, check, load};
use std::path::Path;

const RULES: &[(&str, Rule)] = &[
    ("line-columns", size::line_columns),
    ("readme-lines", size::readme_lines),
    ("architecture-lines", size::architecture_lines),
    ("module-head", forbid::module_head),
    ("module-file", forbid::module_file),
    ("unsafe-room", forbid::unsafe_room),
    ("asm-room", forbid::asm_room),
    ("no-std", forbid::no_std),
    ("unfinished", forbid::unfinished),
    ("machine-path", forbid::machine_path),
    ("ordering-reason", forbid::ordering_reason),
    ("bool-parameter", bools::bool_parameter),
    ("no-circles", circles::no_circles),
    ("dead-link", links::dead_links),
    ("dead-path", links::dead_paths),
    ("number-source", numbers::number_source),
    ("invariant-tested", proof::invariant_tested),
    ("readme-tested", proof::readme_tested),
];

/// What a reviewer may want to look at, and nobody has to change.
const ADVICE: &[(&str, Rule)] =
    &[("advice: file-lines", size::file_lines), ("advice: function-lines", size::function_lines)];

/// How much is printed of the lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lengths {
    /// One line with their counts.
    Counted,
    /// A line for each long file and function.
    Listed,
}

/// Prints every finding and returns how many there are. Advice is printed as `lengths` has it, and is no finding.
pub(crate) fn run(root: &Path, lengths: Lengths) -> Result<usize> {
    let repo = load(root)?;
    let findings = check(&repo, RULES);
    for finding in &findings {
        println!("{finding}");
    }
    for line in advice(&repo, lengths) {
        println!("{line}");
    }
    println!("tidy: {} files, {} rules, {} findings", repo.sources.len(), RULES.len(), findings.len());
    Ok(findings.len())
}

/// What is said of lengths, in lines.
fn advice(repo: &Repo, lengths: Lengths) -> Vec<String> {
    match lengths {
        Lengths::Listed => check(repo, ADVICE).iter().map(ToString::to_string).collect(),
        Lengths::Counted => match [0, 1].map(|at| check(repo, &ADVICE[at..=at]).len()) {
            [0, 0] => Vec::new(),
            [files_count, functions_count] => vec![format!(
                "advice: {files_count} files over {} lines, {functions_count} functions over {} \
                 (cargo xtask tidy --lengths lists them)",
                size::FILE_LINES_ADVISED,
                size::FUNCTION_LINES_ADVISED
            )],
        },
    }
}

/// Prints every circle of files, those of excused crates too.
pub(crate) fn circles(root: &Path) -> Result<usize> {
    let findings = check(&load(root)?, &[("no-circles", circles::every_circle)]);
    findings.iter().for_each(|finding| println!("{finding}"));
    Ok(findings.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_come_sorted_and_in_the_documented_form() {
        let repo = repo::testing::repo(&[("b.rs", "fn b() {}"), ("a.rs", "fn a() {}")]);
        let lines: Vec<String> = check(&repo, RULES).iter().map(ToString::to_string).collect();
        let heads: Vec<&String> = lines.iter().filter(|line| line.contains("module-head")).collect();
        assert_eq!(heads.len(), 2, "{lines:?}");
        assert!(heads[0].starts_with("a.rs:1: module-head: "), "{lines:?}");
    }

    #[test]
    fn lengths_are_advice_and_no_findings() {
        let long = format!("//! Long.\nfn a() {{\n{}}}\n", "\n".repeat(400));
        let repo = repo::testing::repo(&[("a.rs", &long)]);
        assert_eq!(check(&repo, RULES), []);
        let counted = advice(&repo, Lengths::Counted);
        assert!(counted[0].starts_with("advice: 1 files over 400 lines, 1 functions over 80 "), "{counted:?}");
        let listed = advice(&repo, Lengths::Listed);
        assert_eq!(listed[0], "a.rs:2: advice: function-lines: fn a has 402 lines, more than 80");
        assert_eq!(listed[1], "a.rs:401: advice: file-lines: 403 lines, more than 400");
        assert!(advice(&repo::testing::repo(&[("a.rs", "")]), Lengths::Counted).is_empty());
    }
}

//! `cargo xtask tidy`: the repository checks itself against its own house rules.
//!
//! One rule is one small function from the whole repository to findings, and stands in `RULES` under its name; beside
//! each stands a test that shows it failing. What a rule is for is said in `CONTRIBUTING.md`.

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
use repo::{Rule, check, load};
use std::path::Path;

const RULES: &[(&str, Rule)] = &[
    ("file-lines", size::file_lines),
    ("function-lines", size::function_lines),
    ("line-columns", size::line_columns),
    ("readme-lines", size::readme_lines),
    ("architecture-lines", size::architecture_lines),
    ("module-head", forbid::module_head),
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

/// Prints every finding and returns how many there are.
pub(crate) fn run(root: &Path) -> Result<usize> {
    let repo = load(root)?;
    let findings = check(&repo, RULES);
    for finding in &findings {
        println!("{finding}");
    }
    println!("tidy: {} files, {} rules, {} findings", repo.sources.len(), RULES.len(), findings.len());
    Ok(findings.len())
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
}

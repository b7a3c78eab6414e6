//! `docs/verification.md` names files and tests: all of them exist, and each line of the checklist has its row.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document() -> String {
    fs::read_to_string(root().join("docs/verification.md")).expect("docs/verification.md")
}

/// The first and the last number of each group of the checklist.
const GROUPS: [(u32, u32); 9] =
    [(1, 8), (10, 17), (20, 28), (30, 38), (40, 44), (50, 57), (60, 64), (70, 75), (80, 85)];

/// Where tests are.
const TESTED: [&str; 3] = ["lib", "verify/tlbkit-check", "verify/tlbkit-model"];

/// The rows of the checklist: the line, and what covers it.
fn rows(document: &str) -> Vec<(&str, &str)> {
    let lines = document.lines().filter(|line| line.starts_with("| C-"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [number, _, covered] = cells[..] else { panic!("three cells: {line}") };
            (number, covered)
        })
        .collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            *all += &fs::read_to_string(&path).expect("a source");
        }
    }
}

#[test]
fn every_line_of_the_checklist_has_one_row() {
    let document = document();
    let told: Vec<_> = rows(&document).into_iter().map(|(number, _)| number.to_owned()).collect();
    let expected: Vec<_> = GROUPS.iter().flat_map(|&(first, last)| first..=last).map(|n| format!("C-{n:02}")).collect();
    assert_eq!(told, expected);
}

#[test]
fn every_row_names_what_exists_or_says_why_there_is_nothing() {
    let mut tests = String::new();
    TESTED.iter().for_each(|folder| sources(&root().join(folder), &mut tests));
    let document = document();
    for (number, covered) in rows(&document) {
        let names = quoted(covered);
        assert!(covered.starts_with("none") || !names.is_empty(), "{number} has neither a test nor a reason");
        for name in names {
            let is_test = tests.contains(&format!("fn {name}("));
            let is_type = tests.contains(&format!("pub struct {name}("));
            let exists = if name.contains('/') { root().join(name).exists() } else { is_test || is_type };
            assert!(exists, "docs/verification.md: {number} names `{name}`, which does not exist");
        }
    }
}

#[test]
fn every_file_that_the_document_names_exists() {
    let document = document();
    let paths = quoted(&document).into_iter().filter(|name| name.contains('/') && !name.contains(' '));
    for path in paths {
        assert!(root().join(path).exists(), "docs/verification.md names `{path}`");
    }
}

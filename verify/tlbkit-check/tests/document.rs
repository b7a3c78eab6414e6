//! What documents say of the source is so: `docs/verification.md` names files and tests that exist, `docs/glossary.md`
//! names that exist; `docs/kernel/rules.md` states each cited rule, and `docs/lab/sources.md` lists each cited source.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document() -> String {
    fs::read_to_string(root().join("docs/verification.md")).expect("docs/verification.md")
}

/// The first and the last number of each group of rules.
const GROUPS: [(u32, u32); 9] =
    [(1, 8), (10, 17), (20, 28), (30, 38), (40, 45), (50, 57), (60, 64), (70, 75), (80, 85)];

/// Where tests are.
const TESTED: [&str; 3] = ["lib", "verify/tlbkit-check", "verify/tlbkit-model"];

/// What `verify/rules.toml` says of each rule: its number, and what covers it.
fn rows(rules: &str) -> Vec<(&str, &str)> {
    let entries = rules.split("\nC-").skip(1).filter_map(|entry| entry.split_once(" = "));
    entries.map(|(number, covered)| (number, covered.trim())).collect()
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

fn covering() -> String {
    fs::read_to_string(root().join("verify/rules.toml")).expect("verify/rules.toml")
}

/// The numbers of all rules, as they are cited.
fn numbers() -> impl Iterator<Item = String> {
    GROUPS.iter().flat_map(|&(first, last)| first..=last).map(|number| format!("C-{number:02}"))
}

#[test]
fn every_rule_has_what_covers_it_once() {
    let covering = covering();
    let listed: Vec<_> = rows(&covering).into_iter().map(|(number, _)| format!("C-{number}")).collect();
    assert_eq!(listed, numbers().collect::<Vec<_>>());
}

#[test]
fn what_covers_a_rule_exists_or_there_is_a_reason_for_nothing() {
    let mut tests = String::new();
    TESTED.iter().for_each(|folder| sources(&root().join(folder), &mut tests));
    let covering = covering();
    for (number, covered) in rows(&covering) {
        let names: Vec<_> = covered.split('"').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "C-{number} has neither a test nor a reason");
        for name in names.into_iter().filter(|_| !covered.starts_with("{ none")) {
            let is_test = tests.contains(&format!("fn {name}("));
            let is_type = tests.contains(&format!("pub struct {name}("));
            let exists = if name.contains('/') { root().join(name).exists() } else { is_test || is_type };
            assert!(exists, "verify/rules.toml: C-{number} names `{name}`, which does not exist");
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

/// Where rules are cited.
const CITING: [&str; 8] = ["lib", "sim", "verify", "metal", "linux", "cli", "xtask", "docs"];

/// All text below a folder, without what was built there.
fn texts(folder: &Path, visit: &mut dyn FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            texts(&path, visit);
        } else if path
            .extension()
            .is_some_and(|ending| ["rs", "toml", "md", "patch", "c", "h"].iter().any(|e| ending == *e))
        {
            visit(&path, &fs::read_to_string(&path).expect("text"));
        }
    }
}

/// The numbers of rules in a text: `C-` and two digits, not the end of a longer word.
fn cited(text: &str) -> Vec<&str> {
    let places = text.match_indices("C-").filter(|&(at, _)| !text[..at].ends_with(char::is_alphanumeric));
    let numbers = places.filter_map(|(at, _)| text.get(at..at + 4));
    numbers.filter(|number| number[2..].chars().all(|c| c.is_ascii_digit())).collect()
}

#[test]
fn every_rule_is_stated_once_and_in_order() {
    let rules = fs::read_to_string(root().join("docs/kernel/rules.md")).expect("docs/kernel/rules.md");
    let stated = rules.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("** "));
    let stated: Vec<_> = stated.map(|(number, _)| number.to_owned()).collect();
    assert_eq!(stated, numbers().collect::<Vec<_>>());
}

#[test]
fn every_rule_that_is_cited_is_stated() {
    let rules = fs::read_to_string(root().join("docs/kernel/rules.md")).expect("docs/kernel/rules.md");
    let mut citations = 0;
    for folder in CITING {
        texts(&root().join(folder), &mut |path, text| {
            for number in cited(text) {
                citations += 1;
                assert!(rules.contains(&format!("- **{number}** ")), "{}: no rule {number}", path.display());
            }
        });
    }
    assert!(citations > 200, "only {citations} citations found");
}

#[test]
fn every_source_of_a_machine_is_listed_or_says_that_there_is_none() {
    let sources = fs::read_to_string(root().join("docs/lab/sources.md")).expect("docs/lab/sources.md");
    let rows = sources.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**: "));
    let names: Vec<_> = rows.flat_map(|(names, _)| names.split(", ")).map(str::to_owned).collect();
    let known = |text: &str| {
        text.contains("no source")
            || text.contains("document 00")
            || names.iter().any(|name| text.contains(name.as_str()))
    };
    texts(&root().join("sim/machines"), &mut |path, text| {
        for (n, line) in text.lines().enumerate() {
            let Some((_, rest)) = line.split_once("source = \"") else { continue };
            let source = rest.split('"').next().unwrap_or_default();
            assert!(known(source), "{}:{}: docs/lab/sources.md lists no `{source}`", path.display(), n + 1);
        }
    });
}

#[test]
fn every_name_of_the_glossary_is_in_the_source() {
    let glossary = fs::read_to_string(root().join("docs/glossary.md")).expect("docs/glossary.md");
    let mut library = String::new();
    sources(&root().join("lib/tlbkit/src"), &mut library);
    let words: std::collections::HashSet<_> = library.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    // A row of the protocol's words: the word, Linux's, ours, what it is.
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| **")?.split('|').nth(2));
    let names: Vec<_> = rows.flat_map(quoted).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(words.contains(name), "docs/glossary.md: `{name}` is not in lib/tlbkit/src");
    }
}

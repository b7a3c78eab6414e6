//! `docs/model.md` ties each step of the model to the functions that it stands for: both sides exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The rows of the table of steps: the steps, the file, the functions.
fn rows(document: &str) -> Vec<(Vec<&str>, &str, Vec<&str>)> {
    let table = document.split("| step of the model |").nth(1).expect("the table of steps");
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
            (quoted(cells[0]), quoted(cells[1])[0], quoted(cells[2]))
        })
        .collect()
}

/// The variants of `Step`, as the source declares them.
fn steps(source: &str) -> BTreeSet<String> {
    let body = source.split("pub enum Step {").nth(1).and_then(|rest| rest.split("\n}").next()).expect("the steps");
    let declares = |line: &str| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
    let name = |line: &str| line.trim().split(|c: char| !c.is_alphanumeric()).next().map(str::to_owned);
    body.lines().filter(|line| declares(line)).filter_map(name).collect()
}

#[test]
fn every_function_that_the_table_names_exists() {
    for (steps, file, functions) in rows(&read("docs/model.md")) {
        let source = read(&format!("lib/tlbkit/src/{file}"));
        assert!(!functions.is_empty(), "{steps:?} stand for nothing");
        for function in functions {
            let is_there = [format!("fn {function}("), format!("fn {function}<")].iter().any(|f| source.contains(f));
            assert!(
                is_there,
                "docs/model.md: {steps:?} stand for `{function}`, which lib/tlbkit/src/{file} does not have"
            );
        }
    }
}

#[test]
fn every_step_stands_in_the_table() {
    let document = read("docs/model.md");
    let listed: BTreeSet<String> = rows(&document).into_iter().flat_map(|row| row.0).map(str::to_owned).collect();
    assert_eq!(listed, steps(&read("verify/tlbkit-model/src/step.rs")));
}

#[test]
fn every_mistake_stands_in_the_document() {
    let document = read("docs/model.md");
    for deviation in tlbkit_model::Deviation::ALL {
        assert!(document.contains(&format!("| `{deviation:?}` |")), "docs/model.md: {deviation:?} is missing");
    }
}

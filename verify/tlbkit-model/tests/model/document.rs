//! The model says of each step which functions of `tlbkit` it stands for: those functions exist.

use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The steps as the source declares them, each with the names that its documentation says it stands for.
fn steps(source: &str) -> Vec<(&str, Vec<&str>)> {
    let body = source.split("pub enum Step {").nth(1).and_then(|rest| rest.split("\n}").next()).expect("the steps");
    let mut names = Vec::new();
    let mut steps = Vec::new();
    for line in body.lines() {
        if line.contains("/// Stands for ") || line.contains("/// and for ") {
            names.extend(line.split('`').skip(1).step_by(2));
        } else if line.starts_with("    ") && line[4..].starts_with(char::is_uppercase) {
            let step = line.trim().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            steps.push((step, std::mem::take(&mut names)));
        }
    }
    steps
}

#[test]
fn every_function_that_a_step_stands_for_exists() {
    let source = read("verify/tlbkit-model/src/step.rs");
    let steps = steps(&source);
    assert!(steps.len() > 40, "{steps:?}");
    for (step, names) in steps {
        let files: Vec<_> = names.iter().filter(|name| name.ends_with(".rs")).collect();
        assert!(!files.is_empty() && files.len() < names.len(), "{step} stands for nothing");
        let mut functions = Vec::new();
        for name in names {
            if !name.ends_with(".rs") {
                functions.push(name);
                continue;
            }
            let source = read(&format!("lib/tlbkit/src/{name}"));
            for function in functions.drain(..) {
                let is_there =
                    [format!("fn {function}("), format!("fn {function}<")].iter().any(|f| source.contains(f));
                assert!(is_there, "{step} stands for `{function}`, which lib/tlbkit/src/{name} does not have");
            }
        }
    }
}

//! Which public functions of `tlbkit` the checker's programs call, by themselves or through `tlbkit-pmap`: all but
//! those listed here, each of which has a test that calls it, or a reason. It looks for names, so a function is taken
//! for called if another one of its name is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What programs are made of.
const PROGRAMS: [&str; 2] = ["verify/tlbkit-check/src", "lib/tlbkit-pmap/src"];
/// Where tests call what programs do not.
const TESTS: [&str; 3] = ["lib/tlbkit/tests", "lib/tlbkit-pmap/tests", "lib/tlbkit-c/tests"];

/// Functions that no program calls, and a test does: they read, write or parse something, and flush nothing.
const BY_TESTS: [&str; 18] = [
    "contradicts",
    "counting_into",
    "destroy_later",
    "events",
    "from_operands",
    "generation",
    "has_tables",
    "held",
    "is_everything",
    "keeping",
    "kernel_set",
    "loaded",
    "missing",
    "operands",
    "preset",
    "size",
    "stats",
    "user_half",
];

/// Functions that neither calls, and why that is enough.
const BY_NOBODY: [(&str, &str); 7] = [
    ("complaint", "words: the default of `unanswered` says them, and tests of waits read that"),
    ("fence", "its callers are the protocol's own files, and observers that take its place"),
    ("count_address", "a simulator asks where a word lies; tests of `tlbkit-sim` do"),
    ("part_at", "the same"),
    ("index", "a number for a kernel's own tables"),
    ("online", "a kernel's look at who is there"),
    ("loaded_token", "a kernel's look at what is loaded"),
];

fn sources(folder: &Path, visit: &mut dyn FnMut(String)) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, visit);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            visit(fs::read_to_string(&path).expect("a source"));
        }
    }
}

fn all(folders: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut text = String::new();
    folders
        .iter()
        .map(|folder| root.join(folder))
        .for_each(|path: PathBuf| sources(&path, &mut |source| text += &source));
    text
}

/// The names of the public functions of `tlbkit`.
fn public() -> BTreeSet<String> {
    let text = all(&["lib/tlbkit/src"]);
    let declared = text.lines().filter_map(|line| line.trim_start().strip_prefix("pub ")).filter_map(|line| {
        let name = line.trim_start_matches("const ").trim_start_matches("unsafe ").strip_prefix("fn ")?;
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    });
    declared.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Whether `text` calls a function of that name.
fn calls(text: &str, name: &str) -> bool {
    let is_call = |rest: &str| rest.starts_with('(') || rest.starts_with("::<") || rest.starts_with(')');
    let found = |before: &str| {
        let call = format!("{before}{name}");
        text.match_indices(&call).any(|(at, _)| is_call(&text[at + call.len()..]))
    };
    found(".") || found("::")
}

#[test]
fn programs_call_every_public_function_but_those_with_a_test_or_a_reason() {
    let (programs, tests) = (all(&PROGRAMS), all(&TESTS));
    let uncalled: BTreeSet<_> = public().into_iter().filter(|name| !calls(&programs, name)).collect();
    let listed = BY_TESTS.into_iter().chain(BY_NOBODY.map(|(name, _)| name)).map(str::to_owned).collect();
    assert_eq!(uncalled, listed, "no program calls these, and these are listed");
    assert!(BY_TESTS.iter().all(|name| calls(&tests, name)), "a listed function has a test");
}

//! Inside each crate files form layers: no file uses, by however many steps, a file that uses it.
//!
//! A parent may hold its children, and may pass on what they define by `pub use`. A child that uses what its parent's
//! own file defines, while that file uses the child, is a circle: what both need belongs in a file below both.

mod modules;
mod uses;

use super::repo::{Repo, Report};
use modules::Modules;
use std::collections::{BTreeMap, BTreeSet};
use uses::{Use, uses};

/// Folders of crates that may still have circles, and how many files may be in them: none has any.
const STILL_CIRCULAR: &[(&str, usize)] = &[];

pub(super) fn no_circles(repo: &Repo, report: &mut Report<'_>) {
    report_circles(repo, STILL_CIRCULAR, report);
}

/// Reports the circles of all crates, the excused ones too.
pub(super) fn every_circle(repo: &Repo, report: &mut Report<'_>) {
    report_circles(repo, &[], report);
}

/// Reports each circle, of crates in `excused` only if their circles have grown.
fn report_circles(repo: &Repo, excused: &[(&str, usize)], report: &mut Report<'_>) {
    let mut found: BTreeMap<Vec<String>, Vec<Use>> = BTreeMap::new();
    for root in repo.rust().filter(|source| is_root(&source.path)) {
        match Modules::read(repo, &root.path) {
            Ok(modules) => found.extend(circles(&uses(&modules))),
            Err(error) => {
                report(root, error.span().start().line, format!("a file of this crate does not parse, {error}"));
            }
        }
    }
    let mut files_counts: BTreeMap<&str, usize> = BTreeMap::new();
    for files in found.keys() {
        if let Some(first) = repo.at(&files[0]) {
            *files_counts.entry(first.crate_dir()).or_default() += files.len();
        }
    }
    for (files, uses) in &found {
        let Some(first) = repo.at(&files[0]) else { continue };
        let is_excused = |&(name, most): &(&str, usize)| name == first.crate_dir() && files_counts[name] <= most;
        if !excused.iter().any(is_excused) {
            report(first, uses[0].line, format!("a circle of {} files:{}", files.len(), listed(uses)));
        }
    }
}

/// True for a file from which a crate is built: a library, a program, a test or a benchmark.
pub(super) fn is_root(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let (file, folder) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    match (folder, parts.next()) {
        ("src", _) => file == "lib.rs" || file == "main.rs",
        ("tests" | "benches" | "bin" | "examples" | "fuzz_targets", _) => true,
        (_, Some("tests" | "benches")) => file == "main.rs",
        _ => false,
    }
}

/// The circles among `uses`: their files, and the uses that close them.
fn circles(uses: &[Use]) -> BTreeMap<Vec<String>, Vec<Use>> {
    let mut below: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for step in uses {
        below.entry(&step.from).or_default().insert(&step.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = below.keys().map(|&file| (file, reach(&below, file))).collect();
    let leads = |from: &str, to: &str| reached.get(from).is_some_and(|files| files.contains(to));
    let mut found: BTreeMap<Vec<String>, Vec<Use>> = BTreeMap::new();
    for step in uses.iter().filter(|step| leads(&step.to, &step.from)) {
        let circle = reached[step.from.as_str()].iter().filter(|&&file| leads(file, &step.from));
        found.entry(circle.map(|&file| file.to_owned()).collect()).or_default().push(step.clone());
    }
    found
}

/// Every file that `start` uses, by however many steps.
fn reach<'a>(below: &BTreeMap<&'a str, BTreeSet<&'a str>>, start: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        open.extend(below.get(file).into_iter().flatten().filter(|&&next| reached.insert(next)));
    }
    reached
}

/// One line for each pair of files: where the first use stands, the other file, and the names used.
fn listed(uses: &[Use]) -> String {
    let mut pairs: BTreeMap<(&str, &str), (usize, BTreeSet<&str>)> = BTreeMap::new();
    for step in uses {
        let (line, names) = pairs.entry((&step.from, &step.to)).or_insert((step.line, BTreeSet::new()));
        *line = step.line.min(*line);
        names.insert(&step.name);
    }
    let lines = pairs.into_iter().map(|((from, to), (line, names))| {
        format!("\n    {from}:{line} uses {to} ({})", names.into_iter().collect::<Vec<_>>().join(", "))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::super::repo::testing::{self, places};
    use super::*;

    /// The files of each circle in a crate `k` of `files`, as one text a circle.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<String> = files.iter().map(|(name, _)| format!("lib/k/src/{name}")).collect();
        let named: Vec<_> = paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text)).collect();
        let repo = testing::repo(&named);
        let modules = Modules::read(&repo, "lib/k/src/lib.rs").into_iter();
        let files = modules.flat_map(|modules| circles(&uses(&modules)).into_keys());
        files.map(|files| files.join(" ").replace("lib/k/src/", "")).collect()
    }

    #[test]
    fn layers_pass() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use a::A;\nconst LAST: u8 = 0;"),
            ("a.rs", "use crate::b::B; pub struct A(B); fn f() { crate::c::g(crate::LAST) }"),
            ("b.rs", "use super::c; pub struct B(c::C); #[cfg(test)] mod tests { use crate::a::A; }"),
            ("c.rs", "use std::fmt; pub struct C; pub fn g(_: u8) {}"),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn imports_in_a_circle_are_found_over_any_number_of_steps() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::{self, B as Other}; pub struct A; pub use Other as O;"),
            ("b.rs", "use super::c::*; pub struct B(C);"),
            ("c.rs", "pub struct C(crate::a::A);"),
            ("d.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&files), ["a.rs b.rs c.rs"]);
    }

    #[test]
    fn a_child_that_needs_its_parent_is_a_circle_only_if_the_parent_needs_the_child() {
        let child = ("a/b.rs", "use super::Limit; pub struct B(Limit);");
        let door = ("a/mod.rs", "mod b; pub use b::B; pub struct Limit;");
        let user = ("a/mod.rs", "mod b; pub use b::B; pub struct Limit; fn f(_: B) {}");
        assert!(found(&[("lib.rs", "mod a;"), door, child]).is_empty());
        assert_eq!(found(&[("lib.rs", "mod a;"), user, child]), ["a/b.rs a/mod.rs"]);
    }

    #[test]
    fn a_name_passed_on_counts_for_the_file_that_defines_it() {
        let files = [
            ("lib.rs", "pub mod a; mod b; pub use b::B; mod door { pub use crate::a::A; }"),
            ("a.rs", "use crate::B; pub struct A;"),
            ("b.rs", "use crate::door::A; pub struct B;"),
        ];
        assert_eq!(found(&files), ["a.rs b.rs"]);
    }

    #[test]
    fn a_method_counts_for_the_file_that_holds_it() {
        let steps = "use crate::world::World; impl World { pub fn step(&self) {} }";
        let calling = |body: &str| {
            let world = format!("pub struct World; struct Outer {{ world: World }} {body}");
            found(&[("lib.rs", "mod world; mod steps;"), ("world.rs", &world), ("steps.rs", steps)])
        };
        assert!(calling("impl World { fn run(&self) {} } fn f(other: &str) { other.step() }").is_empty());
        for body in [
            "impl World { fn run(&self) { self.step() } }",
            "impl World { fn run(&self) { Self::step(self) } }",
            "fn f(world: &mut World) { world.step() }",
            "impl Outer { fn f(&self) { assert!(self.world.step() == (), \"of {}\", 1) } }",
        ] {
            assert_eq!(calling(body), ["steps.rs world.rs"], "{body}");
        }
    }

    #[test]
    fn paths_inside_macros_are_followed() {
        let lib = ("lib.rs", "mod a; mod b;");
        let b = ("b.rs", "use crate::a::A; pub struct B;");
        for body in ["fn f() { vec![crate::b::B; 2] }", "macro_rules! m { ($x:ty) => { $crate::b::B } }"] {
            assert_eq!(found(&[lib, b, ("a.rs", &format!("pub struct A; {body}"))]), ["a.rs b.rs"], "{body}");
        }
    }

    #[test]
    fn an_excused_crate_may_keep_its_circles_but_not_get_more() {
        let files = [
            ("lib/k/src/lib.rs", "mod a; mod b;"),
            ("lib/k/src/a.rs", "\nuse crate::b::B; pub struct A;"),
            ("lib/k/src/b.rs", "use crate::a::A; pub struct B;"),
            ("lib/l/src/lib.rs", "fn f("),
        ];
        let broken = "lib/l/src/lib.rs:1";
        assert_eq!(places(no_circles, &files), ["lib/k/src/a.rs:2", broken]);
        assert_eq!(places(|repo, report| report_circles(repo, &[("k", 2)], report), &files), [broken]);
        assert_eq!(places(|repo, report| report_circles(repo, &[("k", 1)], report), &files).len(), 2);
    }
}

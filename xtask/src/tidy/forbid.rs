//! Rules on what may stand where: each dangerous or unfinished thing has a room of its own, or none.

use super::circles::is_root;
use super::repo::{Repo, Report};
use super::source::{Source, word_columns};
use crate::libraries::LIBRARIES;

const UNSAFE_ROOMS: &[&str] =
    &["tlbkit-x86", "kernel", "tlbkit-c", "tlbkit-sim", "tlbkit-check", "tlbkit-host", "fuzz"];
const ASM_ROOMS: &[&str] = &["tlbkit-x86", "kernel"];
/// What may not know std besides the [`LIBRARIES`].
const NO_STD_CRATES: &[&str] = &["tlbkit-workloads", "kernel"];
const ORDERINGS: &[&str] = &["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
const REASON_LINES_ABOVE: usize = 4;
/// Written in halves, so that this file does not find itself.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp/ba", "sh_jobs"), concat!("/fa", "rm")];
const MARKERS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")];

pub(super) fn module_head(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.rust() {
        if !source.lines.first().is_some_and(|line| line.starts_with("//!")) {
            report(source, 1, "the first line is not `//!`, which must say the file's one idea".to_owned());
        }
    }
}

/// The root of a test lies beside the folder from which it takes modules by `#[path]`: as a `mod.rs` it would be none.
pub(super) fn module_file(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.rust().filter(|source| !is_root(&source.path)) {
        let folder = format!("{}/", source.path.trim_end_matches(".rs"));
        if repo.rust().any(|other| other.path.starts_with(&folder)) {
            report(source, 1, format!("a module beside its folder, it must be {folder}mod.rs"));
        }
    }
}

pub(super) fn unsafe_room(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.rust().filter(|source| !UNSAFE_ROOMS.contains(&source.crate_dir())) {
        for (line, _) in source.numbered_code().filter(|(_, code)| has_word(code, "unsafe")) {
            report(source, line, format!("`unsafe`, allowed in {} only", UNSAFE_ROOMS.join(", ")));
        }
    }
}

pub(super) fn asm_room(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.rust().filter(|source| !ASM_ROOMS.contains(&source.crate_dir())) {
        for (line, _) in source.numbered_code().filter(|(_, code)| code.contains("asm!")) {
            report(source, line, format!("inline assembly, allowed in {} only", ASM_ROOMS.join(", ")));
        }
    }
}

pub(super) fn no_std(repo: &Repo, report: &mut Report<'_>) {
    let is_bound = |source: &&Source| {
        [LIBRARIES, NO_STD_CRATES].concat().contains(&source.crate_dir()) && source.path.contains("/src/")
    };
    for source in repo.rust().filter(is_bound) {
        for (line, code) in source.numbered_code().filter(|(line, _)| !source.is_test[line - 1]) {
            let names_std = word_columns(code, "std").any(|at| code[at + 3..].starts_with("::"));
            if names_std || code.contains("extern crate std") {
                report(source, line, "std in a no_std crate, allowed in its tests only".to_owned());
            }
        }
    }
}

pub(super) fn unfinished(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.rust() {
        for (line, code) in source.numbered_code() {
            let calls = has_word(code, "todo!") || has_word(code, "unimplemented!");
            if calls || code.contains("#[ignore") {
                report(source, line, "unfinished code or an ignored test, none is allowed".to_owned());
            }
        }
        for (at, line) in source.lines.iter().enumerate() {
            if let Some(marker) = MARKERS.iter().find(|marker| has_word(line, marker)) {
                report(source, at + 1, format!("`{marker}`, open work belongs in an issue"));
            }
        }
    }
}

pub(super) fn machine_path(repo: &Repo, report: &mut Report<'_>) {
    for source in &repo.sources {
        for (at, line) in source.lines.iter().enumerate() {
            if let Some(path) = MACHINE_PATHS.iter().find(|path| names_path(line, path)) {
                report(source, at + 1, format!("`{path}`, no path of one person's machine is allowed"));
            }
        }
    }
}

/// True if `path` begins an absolute path in `line`, and not in the middle of a relative one.
fn names_path(line: &str, path: &str) -> bool {
    let is_inner = |c: char| c.is_alphanumeric() || "._-~}".contains(c);
    line.match_indices(path).any(|(at, _)| {
        let whole = path.ends_with('/') || !line[at + path.len()..].starts_with(|c: char| c.is_alphanumeric());
        whole && !line[..at].chars().next_back().is_some_and(is_inner)
    })
}

pub(super) fn ordering_reason(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.rust().filter(|source| source.path.starts_with("lib/tlbkit/src/")) {
        for (line, code) in source.numbered_code().filter(|(line, _)| !source.is_test[line - 1]) {
            let uses = ORDERINGS.iter().any(|name| has_word(code, &format!("Ordering::{name}")));
            if uses && !is_explained(source, line) {
                let limit = format!("a comment on it or within {REASON_LINES_ABOVE} lines above must name its partner");
                report(source, line, format!("a memory ordering without a reason, {limit}"));
            }
        }
    }
}

fn is_explained(source: &Source, line: usize) -> bool {
    let first = line.saturating_sub(REASON_LINES_ABOVE + 1);
    let earlier = &source.lines[first..line - 1];
    earlier.iter().any(|text| text.trim_start().starts_with("//")) || source.lines[line - 1].contains("//")
}

fn has_word(line: &str, word: &str) -> bool {
    word_columns(line, word).next().is_some()
}

#[cfg(test)]
mod tests {
    use super::super::repo::testing::places;
    use super::*;

    #[test]
    fn a_file_without_a_head_is_found() {
        assert_eq!(
            places(module_head, &[("a.rs", "//! A.\n"), ("b.rs", "// B.\n"), ("c.rs", "")]),
            ["b.rs:1", "c.rs:1"]
        );
    }

    #[test]
    fn a_module_beside_its_folder_is_found() {
        let files = ["cli/src/a.rs", "cli/src/a/b.rs", "cli/src/c/mod.rs", "cli/src/c/d.rs", "cli/src/ab.rs"];
        assert_eq!(places(module_file, &files.map(|path| (path, ""))), ["cli/src/a.rs:1"]);
        let apart = ["cli/tests/a.rs", "cli/tests/a/b.rs", "xtask/src/a.rs", "xtask/src/a/programs.toml"];
        assert!(places(module_file, &apart.map(|path| (path, ""))).is_empty());
    }

    #[test]
    fn unsafe_is_found_outside_its_rooms() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nunsafe { f() }";
        assert_eq!(
            places(unsafe_room, &[("lib/tlbkit/src/a.rs", text), ("metal/kernel/src/a.rs", text)]),
            ["lib/tlbkit/src/a.rs:3"]
        );
    }

    #[test]
    fn assembly_is_found_outside_its_rooms() {
        let text = "fn f() {\n    core::arch::asm!(\"nop\") }";
        let found = places(asm_room, &[("sim/tlbkit-sim/src/a.rs", text), ("lib/tlbkit-x86/src/a.rs", text)]);
        assert_eq!(found, ["sim/tlbkit-sim/src/a.rs:2"]);
    }

    #[test]
    fn std_is_found_in_no_std_crates_but_not_in_their_tests() {
        let text =
            "use core::mem;\nuse std::mem;\n#[cfg(test)]\nmod tests {\n    use std::vec;\n}\nextern crate std;\n";
        let files = [("lib/tlbkit/src/a.rs", text), ("lib/tlbkit/tests/a.rs", text), ("cli/src/a.rs", text)];
        assert_eq!(places(no_std, &files), ["lib/tlbkit/src/a.rs:2", "lib/tlbkit/src/a.rs:7"]);
    }

    #[test]
    fn unfinished_code_is_found_in_code_and_comments() {
        let text =
            format!("todo!();\n#[ignore = \"slow\"]\n// {}: later\nlet s = \"todo!()\";\nunimplemented!()", MARKERS[0]);
        assert_eq!(places(unfinished, &[("a.rs", &text)]), ["a.rs:1", "a.rs:2", "a.rs:3", "a.rs:5"]);
    }

    #[test]
    fn machine_paths_are_found_in_any_file() {
        let text = format!("see kernel{0}x\nsee {0}x\n{1}\n{1}er", MACHINE_PATHS[1], MACHINE_PATHS[3]);
        assert_eq!(places(machine_path, &[("a.toml", &text)]), ["a.toml:2", "a.toml:3"]);
    }

    #[test]
    fn an_ordering_needs_a_comment_near() {
        let near = "// Relaxed: no partner.\n\n\n\nx.load(Ordering::Relaxed);\nx.load(Ordering::Relaxed);";
        let other = "cmp::Ordering::Less;\nx.load(Ordering::Acquire); // Acquire: pairs with publish.\n";
        let found = places(
            ordering_reason,
            &[("lib/tlbkit/src/a.rs", near), ("lib/tlbkit/src/b.rs", other), ("cli/src/a.rs", near)],
        );
        assert_eq!(found, ["lib/tlbkit/src/a.rs:6"]);
    }
}

//! Rules on size: what must fit in a reader's head must first fit on a screen.
//!
//! Lengths of Rust files and functions are advice. While they were limits, stories were cut at them, and the pieces
//! were harder to follow than the whole.

use super::repo::{Repo, Report};
use super::source::Function;

pub(super) const FILE_LINES_ADVISED: usize = 400;
pub(super) const FUNCTION_LINES_ADVISED: usize = 80;
const LINE_COLUMNS_MAX: usize = 120;
const README_LINES_MAX: usize = 150;
const ARCHITECTURE_LINES_MAX: usize = 90;

pub(super) fn file_lines(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.rust().filter(|source| source.lines.len() > FILE_LINES_ADVISED) {
        report(source, FILE_LINES_ADVISED + 1, format!("{} lines, more than {FILE_LINES_ADVISED}", source.lines.len()));
    }
}

pub(super) fn function_lines(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.rust() {
        for Function { name, lines: (first, last), .. } in &source.functions {
            let lines_count = last + 1 - first;
            if lines_count > FUNCTION_LINES_ADVISED {
                report(
                    source,
                    *first,
                    format!("fn {name} has {lines_count} lines, more than {FUNCTION_LINES_ADVISED}"),
                );
            }
        }
    }
}

pub(super) fn line_columns(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.rust() {
        for (at, line) in source.lines.iter().enumerate() {
            let columns_count = line.chars().count();
            if columns_count > LINE_COLUMNS_MAX {
                report(source, at + 1, format!("{columns_count} columns, at most {LINE_COLUMNS_MAX}"));
            }
        }
    }
}

pub(super) fn readme_lines(repo: &Repo, report: &mut Report<'_>) {
    limit_lines(repo, "README.md", README_LINES_MAX, report);
}

pub(super) fn architecture_lines(repo: &Repo, report: &mut Report<'_>) {
    limit_lines(repo, "ARCHITECTURE.md", ARCHITECTURE_LINES_MAX, report);
}

fn limit_lines(repo: &Repo, path: &str, lines_max: usize, report: &mut Report<'_>) {
    if let Some(source) = repo.at(path).filter(|source| source.lines.len() > lines_max) {
        report(source, lines_max + 1, format!("{} lines, at most {lines_max}", source.lines.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::repo::testing::places;
    use super::*;

    #[test]
    fn a_file_over_the_limit_is_found() {
        assert!(places(file_lines, &[("a.rs", &"\n".repeat(400))]).is_empty());
        assert_eq!(places(file_lines, &[("a.rs", &"\n".repeat(401))]), ["a.rs:401"]);
    }

    #[test]
    fn a_function_over_the_limit_is_found_at_its_head() {
        let function = |body: usize| {
            format!("struct S;\n    fn long(f: fn()) {{\n{}    }}\nfn after() {{}}\n", "{}\n".repeat(body))
        };
        assert!(places(function_lines, &[("a.rs", &function(78))]).is_empty());
        assert_eq!(places(function_lines, &[("a.rs", &function(79))]), ["a.rs:2"]);
    }

    #[test]
    fn a_method_without_a_body_ends_at_its_semicolon() {
        let text = format!("trait T {{\n    fn short(a: [u8; 4]);\n{}\n}}", "\n".repeat(100));
        assert!(places(function_lines, &[("a.rs", &text)]).is_empty());
    }

    #[test]
    fn a_long_line_is_found_by_characters_not_bytes() {
        assert!(places(line_columns, &[("a.rs", &"é".repeat(120))]).is_empty());
        assert_eq!(places(line_columns, &[("a.rs", &format!("\n{}", "x".repeat(121)))]), ["a.rs:2"]);
    }

    #[test]
    fn long_front_documents_are_found() {
        assert!(
            places(readme_lines, &[("README.md", &"\n".repeat(150)), ("docs/README.md", &"\n".repeat(200))]).is_empty()
        );
        assert_eq!(places(readme_lines, &[("README.md", &"\n".repeat(151))]), ["README.md:151"]);
        assert_eq!(places(architecture_lines, &[("ARCHITECTURE.md", &"\n".repeat(91))]), ["ARCHITECTURE.md:91"]);
    }
}

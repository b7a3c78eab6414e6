//! A link inside the repository leads somewhere: to a file or folder that exists, and to a heading that it has. So does
//! a path in backticks.

use super::repo::{Repo, Report};
use super::source::Source;

pub(super) fn dead_links(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.ending(".md") {
        for (line, text) in prose(source) {
            for target in targets(&text).into_iter().filter(|target| !is_elsewhere(target)) {
                if let Some(why) = trouble(repo, source, &target) {
                    report(source, line, format!("link to `{target}`, {why}"));
                }
            }
        }
    }
}

/// What stands for a name that the reader chooses.
const PLACEHOLDER: &str = "NAME";
/// The one document that may name files which no longer exist.
const HISTORY: &str = "CHANGELOG.md";

/// Paths in inline code that begin with a folder of the root.
pub(super) fn dead_paths(repo: &Repo, report: &mut Report<'_>) {
    for source in repo.ending(".md").filter(|source| source.path != HISTORY) {
        for (line, code) in inline_code(source) {
            let named = code.trim_end_matches('/');
            let is_of_the_root = named.split_once('/').is_some_and(|(folder, _)| repo.has(folder));
            let is_path = named.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
            if is_path && is_of_the_root && !repo.has(named) && !named.contains(PLACEHOLDER) {
                report(source, line, format!("`{code}`, which does not exist"));
            }
        }
    }
}

/// The pieces of inline code outside fenced blocks, with the numbers of their lines.
fn inline_code(source: &Source) -> Vec<(usize, &str)> {
    let lines = unfenced(source);
    lines.into_iter().flat_map(|(at, line)| line.split('`').skip(1).step_by(2).map(move |code| (at, code))).collect()
}

/// The numbered lines outside fenced blocks, without their inline code.
fn prose(source: &Source) -> Vec<(usize, String)> {
    let without_code = |line: &str| line.split('`').step_by(2).collect::<Vec<_>>().join("``");
    unfenced(source).into_iter().map(|(at, line)| (at, without_code(line))).collect()
}

/// The numbered lines outside fenced blocks.
fn unfenced(source: &Source) -> Vec<(usize, &str)> {
    let mut is_fenced = false;
    let mut lines = Vec::new();
    for (at, line) in source.lines.iter().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            lines.push((at + 1, line.as_str()));
        }
    }
    lines
}

/// What stands in the round brackets of `[text](target "title")`, and behind `[name]:`.
pub(crate) fn targets(line: &str) -> Vec<String> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = line.strip_prefix('[').and_then(|rest| rest.split_once("]:")).map(|(_, target)| target);
    inline.chain(named).filter_map(|target| target.split_whitespace().next()).map(str::to_owned).collect()
}

pub(crate) fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// What is wrong with a link from `source`, if anything.
fn trouble(repo: &Repo, source: &Source, target: &str) -> Option<&'static str> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { source.path.clone() } else { resolve(&source.path, file) };
    let exists = path.is_empty() || repo.has(&path);
    if !exists {
        return Some("which does not exist");
    }
    let named = repo.at(&path).filter(|_| !heading.is_empty() && path.ends_with(".md"))?;
    let has_heading = prose_headings(named).any(|known| known == heading);
    (!has_heading).then_some("which has no such heading")
}

/// `link` as seen from the folder of `from`, as a path from the root.
pub(crate) fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = if link.starts_with('/') { Vec::new() } else { from.split('/').collect() };
    parts.pop();
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// The anchors that a page of Markdown offers: its headings in lower case, spaces as hyphens, punctuation dropped.
fn prose_headings(source: &Source) -> impl Iterator<Item = String> + '_ {
    source.lines.iter().filter(|line| line.starts_with('#')).map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::repo::testing::places;
    use super::*;

    const THERE: (&str, &str) = ("docs/there.md", "# The `one` heading!\n");

    #[test]
    fn links_that_lead_somewhere_pass() {
        let text = "[a](there.md) [b](../README.md#top) [c](https://x.y/z) `[d](no.md)` [e](there.md#the-one-heading)\n\
                    ```\n[f](no.md)\n```\n";
        assert!(places(dead_links, &[THERE, ("docs/a.md", text), ("README.md", "# Top")]).is_empty());
    }

    #[test]
    fn a_path_in_backticks_that_is_nowhere_is_found() {
        let [folder, file] = [("sim", ""), ("sim/a.toml", "")];
        let text = "`sim/a.toml`, `sim/`, `sim/NAME.toml`, `sim/*.toml`, `other/b`, sim/c\n```\n`sim/d`\n```\n\
                    `sim/a.toml` and `sim/e.toml`\n";
        assert_eq!(places(dead_paths, &[folder, file, ("docs/a.md", text)]), ["docs/a.md:5"]);
        assert!(places(dead_paths, &[folder, file, ("CHANGELOG.md", text)]).is_empty());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "[a](docs/there.md)\n[b](there.md)\n[c](docs/there.md#nine)\n[d]: docs/gone.md\n[e](#nothing)\n";
        let found = places(dead_links, &[THERE, ("README.md", text)]);
        assert_eq!(found, ["README.md:2", "README.md:3", "README.md:4", "README.md:5"]);
    }
}

//! `cargo xtask tidy`: the repository checks itself against its own house rules.
//!
//! One rule is one small function from the whole repository to findings, and stands in `RULES` under its name; beside
//! each stands a test that shows it failing. What a rule is for is said in `CONTRIBUTING.md`.

mod circles;
mod forbid;
mod links;
mod numbers;
mod proof;
mod size;
pub(crate) mod source;

use anyhow::{Context, Result};
use source::Source;
use std::{fmt, fs, path::Path};

/// One breach of one rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    /// What was found, and after a comma the limit that it breaks.
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.what)
    }
}

/// Every text file of the repository, sorted by path.
#[derive(Debug)]
pub(crate) struct Repo {
    sources: Vec<Source>,
    /// Every path there is, files and folders, for links.
    paths: Vec<String>,
}

impl Repo {
    /// The Rust files.
    fn rust(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.is_rust())
    }

    /// The files whose name ends in `ending`.
    fn ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = &'a Source> {
        self.sources.iter().filter(move |source| source.path.ends_with(ending))
    }

    /// The file at exactly this path.
    fn at(&self, path: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.path == path)
    }
}

/// What a rule reports: where, and what.
type Report<'a> = dyn FnMut(&Source, usize, String) + 'a;

type Rule = fn(&Repo, &mut Report<'_>);

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
    ("no-circles", circles::no_circles),
    ("dead-link", links::dead_links),
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

fn check(repo: &Repo, rules: &[(&'static str, Rule)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for &(rule, look) in rules {
        let mut report = |source: &Source, line: usize, what: String| {
            findings.push(Finding { path: source.path.clone(), line, rule, what });
        };
        look(repo, &mut report);
    }
    findings.sort_by(|a, b| (&a.path, a.line, a.rule).cmp(&(&b.path, b.line, b.rule)));
    findings
}

/// Reads the tree below `root`, without what a build or a run leaves there.
fn load(root: &Path) -> Result<Repo> {
    let mut repo = Repo { sources: Vec::new(), paths: Vec::new() };
    walk(root, "", &mut repo)?;
    repo.sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(repo)
}

fn walk(dir: &Path, prefix: &str, repo: &mut Repo) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if name == ".git" || name == "target" || path == "report" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{path}/"), repo)?;
        } else if name != "Cargo.lock" && entry.file_type()?.is_file() {
            // What is not UTF-8 (a picture, a recorded trace) has no lines to rule on.
            if let Ok(text) = String::from_utf8(fs::read(entry.path())?) {
                repo.sources.push(Source::new(&path, &text));
            }
        }
        repo.paths.push(path);
    }
    Ok(())
}

/// What each rule's test states its case with.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A repository of the given files.
    pub(crate) fn repo(files: &[(&str, &str)]) -> Repo {
        let sources = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        Repo { sources, paths: files.iter().map(|(path, _)| (*path).to_owned()).collect() }
    }

    /// The places, as `path:line`, that one rule reports.
    pub(crate) fn places(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
        let found = check(&repo(files), &[("the-rule", rule)]);
        found.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_come_sorted_and_in_the_documented_form() {
        let repo = testing::repo(&[("b.rs", "fn b() {}"), ("a.rs", "fn a() {}")]);
        let lines: Vec<String> = check(&repo, RULES).iter().map(ToString::to_string).collect();
        let heads: Vec<&String> = lines.iter().filter(|line| line.contains("module-head")).collect();
        assert_eq!(heads.len(), 2, "{lines:?}");
        assert!(heads[0].starts_with("a.rs:1: module-head: "), "{lines:?}");
    }

    #[test]
    fn build_output_is_not_read() -> Result<()> {
        let root = std::env::temp_dir().join(format!("tlbkit-tidy-{}", std::process::id()));
        for dir in ["src", "target", ".git"] {
            fs::create_dir_all(root.join(dir))?;
            fs::write(root.join(dir).join("a.rs"), "fn a() {}")?;
        }
        let repo = load(&root)?;
        fs::remove_dir_all(&root)?;
        assert_eq!(repo.sources.iter().map(|source| source.path.as_str()).collect::<Vec<_>>(), ["src/a.rs"]);
        Ok(())
    }
}

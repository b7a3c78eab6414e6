//! The repository as the rules see it, and what a rule reports.

use super::source::Source;
use anyhow::{Context, Result};
use std::{fmt, fs, path::Path};

/// One breach of one rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Breach {
    path: String,
    line: usize,
    rule: &'static str,
    /// What was found, and after a comma the limit that it breaks.
    what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.what)
    }
}

/// Every text file of the repository, sorted by path.
#[derive(Debug)]
pub(super) struct Repo {
    pub(super) sources: Vec<Source>,
    /// Every path there is, files and folders, for links.
    pub(super) paths: Vec<String>,
}

impl Repo {
    /// The Rust files.
    pub(super) fn rust(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.is_rust())
    }

    /// The files whose name ends in `ending`.
    pub(super) fn ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = &'a Source> {
        self.sources.iter().filter(move |source| source.path.ends_with(ending))
    }

    /// Whether there is a file or folder at exactly this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|known| known == path)
    }

    /// The file at exactly this path.
    pub(super) fn at(&self, path: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.path == path)
    }
}

/// What a rule reports: where, and what.
pub(super) type Report<'a> = dyn FnMut(&Source, usize, String) + 'a;

pub(super) type Rule = fn(&Repo, &mut Report<'_>);

/// Every finding of `rules`, in order.
pub(super) fn check(repo: &Repo, rules: &[(&'static str, Rule)]) -> Vec<Breach> {
    let mut findings = Vec::new();
    for &(rule, look) in rules {
        let mut report = |source: &Source, line: usize, what: String| {
            findings.push(Breach { path: source.path.clone(), line, rule, what });
        };
        look(repo, &mut report);
    }
    findings.sort_by(|a, b| (&a.path, a.line, a.rule).cmp(&(&b.path, b.line, b.rule)));
    findings
}

/// Reads the tree below `root`, without what a build or a run leaves there.
pub(super) fn load(root: &Path) -> Result<Repo> {
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
pub(super) mod testing {
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

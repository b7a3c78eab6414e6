//! `cargo xtask tidy`: the house rules that no stock tool knows. rustfmt and clippy have the others.
//!
//! One rule is one function from the whole repository to findings, and stands in `RULES` under its name; below each
//! stands a test that shows it failing. What a rule is for is said in `CONTRIBUTING.md`.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use toml::{Table, Value};

/// A text file of the repository.
struct File {
    /// From the root, with `/`.
    path: String,
    lines: Vec<String>,
}

/// Every text file, sorted by path, and every path there is, of files and folders.
struct Repo {
    files: Vec<File>,
    paths: Vec<String>,
}

/// Where, and what: the path, the line from 1, what is wrong.
type Finding = (String, usize, String);
type Rule = fn(&Repo) -> Vec<Finding>;

const RULES: &[(&str, Rule)] = &[
    ("line-columns", line_columns),
    ("page-lines", page_lines),
    ("module-head", module_head),
    ("room", rooms),
    ("unfinished", unfinished),
    ("machine-path", machine_path),
    ("ordering-reason", ordering_reason),
    ("dead-link", dead_links),
    ("dead-path", dead_paths),
    ("number-source", number_source),
    ("invariant-tested", invariant_tested),
    ("readme-tested", readme_tested),
];

/// Prints every finding and returns how many there are.
pub(crate) fn run(root: &Path) -> Result<usize> {
    let repo = load(root)?;
    let all = RULES.iter().flat_map(|&(name, rule)| rule(&repo).into_iter().map(move |finding| (finding, name)));
    let mut all: Vec<(Finding, &str)> = all.collect();
    all.sort();
    for ((path, line, what), rule) in &all {
        println!("{path}:{line}: {rule}: {what}");
    }
    println!("tidy: {} files, {} rules, {} findings", repo.files.len(), RULES.len(), all.len());
    Ok(all.len())
}

/// Reads the tree below `root`, without what a build or a run leaves there.
fn load(root: &Path) -> Result<Repo> {
    let mut repo = Repo { files: Vec::new(), paths: Vec::new() };
    walk(root, "", &mut repo)?;
    repo.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(repo)
}

fn walk(folder: &Path, prefix: &str, repo: &mut Repo) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
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
                repo.files.push(File { path: path.clone(), lines: text.lines().map(str::to_owned).collect() });
            }
        }
        repo.paths.push(path);
    }
    Ok(())
}

impl Repo {
    fn ending<'a>(&'a self, ending: &'a str) -> impl Iterator<Item = &'a File> {
        self.files.iter().filter(move |file| file.path.ends_with(ending))
    }

    fn at(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    fn has(&self, path: &str) -> bool {
        self.paths.iter().any(|known| known == path)
    }
}

impl File {
    /// The lines with their numbers, from 1.
    fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines.iter().enumerate().map(|(at, line)| (at + 1, line.as_str()))
    }

    /// The lines without comments and without literals that end where they begin, to look for a word in.
    fn code(&self) -> impl Iterator<Item = (usize, String)> {
        self.numbered().map(|(at, line)| {
            let without_literals: String = line.replace("\\\"", "").split('"').step_by(2).collect();
            (at, without_literals.split("//").next().unwrap_or_default().to_owned())
        })
    }

    /// The line at which the tests of a file begin, which stand at its end.
    fn tests_begin(&self) -> usize {
        let is_test = self.path.split('/').any(|part| part == "tests" || part == "tests.rs");
        let module =
            self.lines.windows(2).position(|two| two[0].starts_with("#[cfg(") && two[1].starts_with("mod tests"));
        if is_test { 1 } else { module.map_or(usize::MAX, |at| at + 1) }
    }

    fn found(&self, line: usize, what: impl Into<String>) -> Finding {
        (self.path.clone(), line, what.into())
    }
}

/// Whether `word` stands in `line`, and not as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let is_cut = before.ends_with(is_word) && word.starts_with(is_word);
        !(is_cut || after.starts_with(is_word) && word.ends_with(is_word))
    })
}

/// rustfmt leaves comments and literals as they are.
fn line_columns(repo: &Repo) -> Vec<Finding> {
    const MAX: usize = 120;
    let long = |file: &File| {
        let columns = file.numbered().map(|(at, line)| (at, line.chars().count()));
        let long = columns.filter(|(_, columns)| *columns > MAX);
        long.map(|(at, columns)| file.found(at, format!("{columns} columns, at most {MAX}"))).collect::<Vec<_>>()
    };
    repo.ending(".rs").flat_map(long).collect()
}

fn page_lines(repo: &Repo) -> Vec<Finding> {
    let limits = [("README.md", 100), ("ARCHITECTURE.md", 70), ("CHANGELOG.md", 60)];
    let long = limits.into_iter().filter_map(|(path, max)| {
        let file = repo.at(path).filter(|file| file.lines.len() > max)?;
        Some(file.found(max + 1, format!("{} lines, at most {max}", file.lines.len())))
    });
    long.collect()
}

fn module_head(repo: &Repo) -> Vec<Finding> {
    let headless = repo.ending(".rs").filter(|file| !file.lines.first().is_some_and(|line| line.starts_with("//!")));
    headless.map(|file| file.found(1, "the first line is not `//!`, which must say the file's one idea")).collect()
}

/// Words, and the crates in which alone they may stand, by their folders.
const ROOMS: &[(&str, &[&str])] = &[
    (
        "unsafe",
        &[
            "lib/tlbkit-x86",
            "lib/tlbkit-c",
            "metal/kernel",
            "metal/ostd",
            "sim/tlbkit-sim",
            "verify/tlbkit-check",
            "verify/fuzz",
            "linux/tlbkit-host",
        ],
    ),
    ("asm!", &["lib/tlbkit-x86", "metal/kernel"]),
];

fn rooms(repo: &Repo) -> Vec<Finding> {
    let mut all = Vec::new();
    for &(word, rooms) in ROOMS {
        let outside = |file: &&File| !rooms.iter().any(|room| file.path.starts_with(&format!("{room}/")));
        for file in repo.ending(".rs").filter(outside) {
            let lines = file.code().filter(|(_, code)| has_word(code, word));
            all.extend(lines.map(|(at, _)| file.found(at, format!("`{word}`, allowed in {} only", rooms.join(", ")))));
        }
    }
    all
}

/// Written in halves, so that this file does not find itself.
const MARKERS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO"), concat!("#[ign", "ore")];

fn unfinished(repo: &Repo) -> Vec<Finding> {
    let marked = |file: &File| {
        let marker = |line: &str| MARKERS.iter().find(|marker| has_word(line, marker));
        let lines = file.numbered().filter_map(|(at, line)| Some((at, marker(line)?)));
        lines.map(|(at, marker)| file.found(at, format!("`{marker}`, nothing is left unfinished"))).collect::<Vec<_>>()
    };
    repo.ending(".rs").flat_map(marked).collect()
}

const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp/ba", "sh_jobs"), concat!("/fa", "rm")];

fn machine_path(repo: &Repo) -> Vec<Finding> {
    let mut all = Vec::new();
    for file in &repo.files {
        for (at, line) in file.numbered() {
            let path = MACHINE_PATHS.iter().find(|path| names_path(line, path));
            all.extend(
                path.map(|path| file.found(at, format!("`{path}`, no path of one person's machine is allowed"))),
            );
        }
    }
    all
}

/// True if `path` begins an absolute path in `line`, and not in the middle of a relative one.
fn names_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let whole = path.ends_with('/') || !line[at + path.len()..].starts_with(|c: char| c.is_alphanumeric());
        whole && !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~}".contains(c))
    })
}

fn ordering_reason(repo: &Repo) -> Vec<Finding> {
    const LINES_ABOVE: usize = 4;
    const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
    let mut all = Vec::new();
    for file in repo.ending(".rs").filter(|file| file.path.starts_with("lib/tlbkit/src/")) {
        for (at, code) in file.code().take_while(|(at, _)| *at < file.tests_begin()) {
            let above = &file.lines[at.saturating_sub(LINES_ABOVE + 1)..at - 1];
            let is_explained =
                above.iter().any(|line| line.trim_start().starts_with("//")) || file.lines[at - 1].contains("//");
            if !is_explained && ORDERINGS.iter().any(|name| has_word(&code, &format!("Ordering::{name}"))) {
                let limit = format!("a comment on it or within {LINES_ABOVE} lines above must name its partner");
                all.push(file.found(at, format!("a memory ordering without a reason, {limit}")));
            }
        }
    }
    all
}

/// The numbered lines of a page outside fenced blocks.
fn unfenced(file: &File) -> Vec<(usize, &str)> {
    let mut is_fenced = false;
    let mut lines = Vec::new();
    for (at, line) in file.numbered() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            lines.push((at, line));
        }
    }
    lines
}

/// A link inside the repository leads to a file or folder that exists, and to a heading that it has.
fn dead_links(repo: &Repo) -> Vec<Finding> {
    let mut all = Vec::new();
    for file in repo.ending(".md") {
        for (at, line) in unfenced(file) {
            let prose = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
            for target in targets(&prose).filter(|target| !target.contains("://") && !target.starts_with("mailto:")) {
                all.extend(trouble(repo, file, target).map(|why| file.found(at, format!("link to `{target}`, {why}"))));
            }
        }
    }
    all
}

/// What stands in the round brackets of `[text](target "title")`, and behind `[name]:`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named = line.strip_prefix('[').and_then(|rest| rest.split_once("]:")).map(|(_, target)| target);
    inline.chain(named).filter_map(|target| target.split_whitespace().next())
}

fn trouble(repo: &Repo, from: &File, target: &str) -> Option<&'static str> {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { from.path.clone() } else { resolve(&from.path, path) };
    if !path.is_empty() && !repo.has(&path) {
        return Some("which does not exist");
    }
    let page = repo.at(&path).filter(|_| !heading.is_empty() && path.ends_with(".md"))?;
    let mut headings = page.lines.iter().filter(|line| line.starts_with('#')).map(|line| anchor(line));
    (!headings.any(|known| known == heading)).then_some("which has no such heading")
}

/// `link` as seen from the folder of `from`, as a path from the root.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = if link.starts_with('/') { Vec::new() } else { from.split('/').collect() };
    parts.pop();
    for part in link.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." { _ = parts.pop() } else { parts.push(part) }
    }
    parts.join("/")
}

/// What a link calls a heading: in lower case, spaces as hyphens, punctuation dropped.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A path in backticks that begins with a folder of the root exists. The changelog may name what is gone.
fn dead_paths(repo: &Repo) -> Vec<Finding> {
    let is_dead = |code: &str| {
        let named = code.trim_end_matches('/');
        let is_of_the_root = named.split_once('/').is_some_and(|(folder, _)| repo.has(folder));
        let is_path = named.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b));
        // A reader chooses a NAME.
        is_path && is_of_the_root && !repo.has(named) && !named.contains("NAME")
    };
    let mut all = Vec::new();
    for file in repo.ending(".md").filter(|file| file.path != "CHANGELOG.md") {
        for (at, line) in unfenced(file) {
            let dead = line.split('`').skip(1).step_by(2).filter(|code| is_dead(code));
            all.extend(dead.map(|code| file.found(at, format!("`{code}`, which does not exist"))));
        }
    }
    all
}

/// Every number that somebody measured says who: in `sim/machines/` and `sim/experiments/` the table that holds it has
/// a `source` and a `kind`, or stands inside a table that does. An experiment may name one `[source]` for the whole
/// file; a kind is never given for a whole file.
fn number_source(repo: &Repo) -> Vec<Finding> {
    let mut all = Vec::new();
    for file in repo.ending(".toml") {
        let is_experiment = file.path.starts_with("sim/experiments/");
        if !is_experiment && !file.path.starts_with("sim/machines/") {
            continue;
        }
        match file.lines.join("\n").parse::<Table>() {
            Ok(table) => {
                let said = Said { source: is_experiment && table.contains_key("source"), kind: false };
                let mut bare = Vec::new();
                entries(&table, "", said, &mut bare);
                all.extend(bare.into_iter().map(|what| file.found(1, what)));
            }
            Err(error) => all.push(file.found(1, format!("not TOML: {}", error.message()))),
        }
    }
    all
}

/// What the tables around a number have said for it.
#[derive(Clone, Copy)]
struct Said {
    source: bool,
    kind: bool,
}

fn entries(table: &Table, place: &str, said: Said, bare: &mut Vec<String>) {
    // What describes a source (its number, its year) is not itself a measurement.
    for (key, value) in table.iter().filter(|(key, _)| *key != "source") {
        numbers(value, &format!("{place}{key}"), said, bare);
    }
}

fn numbers(value: &Value, place: &str, said: Said, bare: &mut Vec<String>) {
    let missing = match (said.source, said.kind) {
        (true, true) => None,
        (true, false) => Some("`kind`"),
        (false, true) => Some("`source`"),
        (false, false) => Some("`source` and `kind`"),
    };
    match value {
        Value::Table(table) => {
            let said = Said {
                source: said.source || table.contains_key("source"),
                kind: said.kind || table.contains_key("kind"),
            };
            entries(table, &format!("{place}."), said, bare);
        }
        Value::Array(items) => {
            items.iter().for_each(|item| numbers(item, place, said, bare));
            // One finding a list: a histogram of forty numbers lacks one source, not forty.
            bare.dedup();
        }
        Value::Integer(_) | Value::Float(_) => {
            bare.extend(missing.map(|what| format!("`{place}` is a number, its table must have {what}")));
        }
        _ => {}
    }
}

fn invariant_tested(repo: &Repo) -> Vec<Finding> {
    const COUNT: usize = 12;
    let Some(home) = repo.at("lib/tlbkit/src/lib.rs") else { return Vec::new() };
    let is_tested = |number: &usize| {
        let name = format!("INV-{number}");
        // These rules' own tests name invariants and prove none.
        repo.ending(".rs").filter(|file| !file.path.starts_with("xtask/")).any(|file| {
            let begin = file.tests_begin();
            file.numbered().any(|(at, line)| at >= begin && has_word(line, &name))
        })
    };
    let untested = (1..=COUNT).filter(|number| !is_tested(number));
    untested.map(|number| home.found(1, format!("INV-{number} is named by no test, at least one must"))).collect()
}

const README_TEST: &str = "cli/tlbkit/tests/readme.rs";
/// What a line of a README begins with if a reader is meant to type it.
const COMMANDS: &[&str] = &["cargo ", "tlbkit ", "git ", "$ ", "./", "apt-get ", "sudo "];

fn readme_tested(repo: &Repo) -> Vec<Finding> {
    let Some(readme) = repo.at("README.md") else { return Vec::new() };
    let mut all = Vec::new();
    if !repo.at(README_TEST).is_some_and(|test| test.lines.iter().any(|line| line.contains("README.md"))) {
        all.push(readme.found(1, format!("its commands are run by nothing, {README_TEST} must run them")));
    }
    let mut fence: Option<&str> = None;
    for (at, line) in readme.numbered() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(language.trim()) };
        } else if fence.is_some_and(|it| it != "sh")
            && COMMANDS.iter().any(|start| line.trim_start().starts_with(start))
        {
            all.push(readme.found(at, format!("a command outside a `sh` block, only those are run by {README_TEST}")));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places, as `path:line`, that a rule finds in these files.
    fn places(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        let paths = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let files = files.iter().map(|&(path, text)| File { path: path.to_owned(), lines: lines(text) }).collect();
        rule(&Repo { files, paths }).iter().map(|(path, line, _)| format!("{path}:{line}")).collect()
    }

    #[test]
    fn long_lines_and_pages_are_found_by_characters_and_lines() {
        assert!(places(line_columns, &[("a.rs", &"é".repeat(120))]).is_empty());
        assert_eq!(places(line_columns, &[("a.rs", &format!("\n{}", "x".repeat(121)))]), ["a.rs:2"]);
        assert!(
            places(page_lines, &[("README.md", &"\n".repeat(100)), ("docs/README.md", &"\n".repeat(200))]).is_empty()
        );
        assert_eq!(places(page_lines, &[("ARCHITECTURE.md", &"\n".repeat(71))]), ["ARCHITECTURE.md:71"]);
    }

    #[test]
    fn a_file_without_a_head_is_found() {
        let files = [("a.rs", "//! A.\n"), ("b.rs", "// B.\n"), ("c.rs", "")];
        assert_eq!(places(module_head, &files), ["b.rs:1", "c.rs:1"]);
    }

    #[test]
    fn unsafe_and_assembly_are_found_outside_their_rooms() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\nlet a = \"unsafe\";\nunsafe { core::arch::asm!(\"nop\") }";
        let files = [("lib/tlbkit/src/a.rs", text), ("metal/kernel/src/a.rs", text), ("sim/tlbkit-sim/src/a.rs", text)];
        let found = places(rooms, &files);
        assert_eq!(found, ["lib/tlbkit/src/a.rs:4", "lib/tlbkit/src/a.rs:4", "sim/tlbkit-sim/src/a.rs:4"]);
    }

    #[test]
    fn unfinished_code_and_machine_paths_are_found() {
        let text = format!("// {}: later\n{} = \"slow\"]\nlet fine = 1;", MARKERS[0], MARKERS[3]);
        assert_eq!(places(unfinished, &[("a.rs", &text)]), ["a.rs:1", "a.rs:2"]);
        let text = format!("see kernel{0}x\nsee {0}x\n{1}\n{1}er", MACHINE_PATHS[1], MACHINE_PATHS[3]);
        assert_eq!(places(machine_path, &[("a.toml", &text)]), ["a.toml:2", "a.toml:3"]);
    }

    #[test]
    fn an_ordering_needs_a_comment_near() {
        let near = "// Relaxed: no partner.\n\n\n\nx.load(Ordering::Relaxed);\nx.load(Ordering::Relaxed);\n\
                    #[cfg(test)]\nmod tests {\n    x.load(Ordering::Relaxed);\n";
        let other = "cmp::Ordering::Less;\nx.load(Ordering::Acquire); // Acquire: pairs with publish.\n";
        let files = [("lib/tlbkit/src/a.rs", near), ("lib/tlbkit/src/b.rs", other), ("cli/src/a.rs", near)];
        assert_eq!(places(ordering_reason, &files), ["lib/tlbkit/src/a.rs:6"]);
    }

    #[test]
    fn links_and_paths_that_lead_nowhere_are_found() {
        let there = ("docs/there.md", "# The `one` heading!\n");
        let fine = "[a](there.md) [b](../README.md#top) [c](https://x.y/z) `[d](no.md)` [e](there.md#the-one-heading)\n\
                    ```\n[f](no.md)\n```\n";
        assert!(places(dead_links, &[there, ("docs/a.md", fine), ("README.md", "# Top")]).is_empty());
        let dead = "[a](docs/there.md)\n[b](there.md)\n[c](docs/there.md#nine)\n[d]: docs/gone.md\n[e](#nothing)\n";
        let found = places(dead_links, &[there, ("README.md", dead)]);
        assert_eq!(found, ["README.md:2", "README.md:3", "README.md:4", "README.md:5"]);
        let paths = "`sim/a.toml`, `sim/`, `sim/NAME.toml`, `sim/*.toml`, `other/b`, sim/c\n```\n`sim/d`\n```\n\
                     `sim/a.toml` and `sim/e.toml`\n";
        let files = [("sim", ""), ("sim/a.toml", ""), ("docs/a.md", paths), ("CHANGELOG.md", paths)];
        assert_eq!(places(dead_paths, &files), ["docs/a.md:5"]);
    }

    #[test]
    fn numbers_without_source_or_kind_are_found() {
        let sourced = "name = 'm'\n[cycles]\nsource = 's'\nkind = 'input'\ninvlpg = 1\nsizes = [[1, 2], [3, 4]]\n";
        let inline = "invlpg = { value = 3, bounds = { low = 2 }, source = 's', kind = 'prior' }\n";
        let fine =
            [("sim/machines/a.toml", sourced), ("sim/machines/b.toml", inline), ("cli/Cargo.toml", "[a]\nb = 1")];
        assert!(places(number_source, &fine).is_empty());
        let bare =
            "kind = 'prior'\nsource = 's'\n[tlb]\nsource = 's'\nways = 4\n[[row]]\nkind = 'prior'\nsizes = [1, 2]\n";
        assert_eq!(places(number_source, &[("sim/machines/a.toml", bare)]).len(), 2);
        let text = "[source]\nyear = 2009\n[[figure]]\nkind = 'input'\npublished = 1.8\n[other]\nx = 1\n";
        assert_eq!(places(number_source, &[("sim/experiments/a.toml", text)]).len(), 1, "one kind is missing");
        assert_eq!(places(number_source, &[("sim/machines/a.toml", text)]).len(), 2, "no source for a whole machine");
        assert_eq!(places(number_source, &[("sim/machines/a.toml", "a = = 1")]).len(), 1);
    }

    #[test]
    fn an_invariant_that_no_test_names_is_found() {
        let all: String = (1..=12).map(|number| format!("// INV-{number}: holds.\n")).collect();
        let (home, other) = (("lib/tlbkit/src/lib.rs", all.as_str()), ("xtask/tests/a.rs", all.as_str()));
        assert_eq!(places(invariant_tested, &[home, other]).len(), 12, "neither is a test of the protocol");
        assert!(places(invariant_tested, &[home, ("lib/tlbkit/tests/a.rs", &all)]).is_empty());
        let without_1 = all.replace("INV-1:", "");
        let found = places(invariant_tested, &[home, ("lib/tlbkit/tests/a.rs", &without_1)]);
        assert_eq!(found.len(), 1, "INV-12 is not INV-1");
    }

    #[test]
    fn a_readme_command_that_nothing_runs_is_found() {
        let test = (README_TEST, "//! Runs README.md.");
        let good = "```sh\ncargo run\n```\ncargo is prose here\n```rust\nlet a = 1;\n```\n";
        assert!(places(readme_tested, &[("README.md", good), test]).is_empty());
        assert_eq!(places(readme_tested, &[("README.md", good)]), ["README.md:1"]);
        let bad = "```\ncargo run\n```\n```console\n$ tlbkit list\n```\n";
        assert_eq!(places(readme_tested, &[("README.md", bad), test]), ["README.md:2", "README.md:5"]);
    }
}

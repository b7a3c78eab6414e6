//! `cargo xtask fences`: each fence and each ordering of the protocol, the page tables and the C interface is taken
//! away or weakened, one at a time, in a copy; that crate's handshakes under loom must notice every one.

mod change;
mod trial;

use crate::outcome::StepOutcome;
use anyhow::{Context, Result, bail};
use change::Change;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;
use trial::{CratesCopy, Depth, SUBJECTS, Subject, Verdict};

/// What became of one change.
struct TriedChange {
    subject: &'static str,
    change: Change,
    verdict: Verdict,
    time_s: f64,
}

/// The verb; false if a change goes unnoticed.
///
/// # Errors
/// If the arguments are wrong, the unchanged source fails, or a changed one does not build.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<bool> {
    let Wanted { is_json, subjects, files } = read(args)?;
    let wanted = wanted_changes(root, &subjects, &files)?;
    let copy = CratesCopy::new(root)?;
    let mut all = Vec::new();
    for (subject, changes) in &wanted {
        eprintln!("fences: the unchanged source of {}", subject.name);
        match copy.verdict(subject, Depth::Whole)? {
            Verdict::Survived => {}
            other => bail!("the unchanged source of {} fails already: {other}", subject.name),
        }
        for (n, change) in changes.iter().enumerate() {
            eprintln!("fences: {} {}/{} {change}", subject.name, n + 1, changes.len());
            let tried = tried(&copy, subject, change).with_context(|| change.to_string())?;
            if is_json {
                println!("{}", json(&tried));
            }
            all.push(tried);
        }
    }
    if !is_json {
        println!("{}", table(&all));
    }
    Ok(all.iter().all(|tried| matches!(tried.verdict, Verdict::Killed(_))))
}

/// What the arguments ask for.
struct Wanted {
    is_json: bool,
    subjects: Vec<Subject>,
    /// Files whose changes are made, all if none is named.
    files: Vec<String>,
}

fn read(args: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted { is_json: false, subjects: Vec::new(), files: Vec::new() };
    for arg in args {
        match SUBJECTS.iter().find(|subject| subject.name == arg) {
            Some(subject) => wanted.subjects.push(*subject),
            None if arg == "--json" => wanted.is_json = true,
            None if arg.ends_with(".rs") => wanted.files.push(arg.clone()),
            None => {
                bail!("`fences` takes `--json`, files as `flush/shootdown.rs`, and names of {}, got `{arg}`", names())
            }
        }
    }
    if wanted.subjects.is_empty() {
        wanted.subjects = SUBJECTS.to_vec();
    }
    Ok(wanted)
}

fn names() -> String {
    SUBJECTS.map(|subject| subject.name).join(", ")
}

/// The step of `cargo xtask test`: the handshakes on the sources as they are, whole in one build and quickly in the
/// other, as both together take minutes.
///
/// # Errors
/// If they do not build.
pub(crate) fn handshakes(root: &Path) -> Result<StepOutcome> {
    let copy = CratesCopy::new(root)?;
    for subject in &SUBJECTS {
        match copy.verdict(subject, Depth::Quick)? {
            Verdict::Survived => {}
            other => return Ok(StepOutcome::Failed(format!("{}: {other}", subject.name))),
        }
    }
    Ok(StepOutcome::Ok(String::new()))
}

fn tried(copy: &CratesCopy, subject: &Subject, change: &Change) -> Result<TriedChange> {
    let start = Instant::now();
    let verdict = copy.verdict_of(subject, change)?;
    let time_s = start.elapsed().as_secs_f64();
    Ok(TriedChange { subject: subject.name, change: change.clone(), verdict, time_s })
}

/// The changes to each crate, to `files` alone if there are any.
///
/// # Errors
/// If there is nothing to change in one of `files`.
fn wanted_changes(root: &Path, subjects: &[Subject], files: &[String]) -> Result<Vec<(Subject, Vec<Change>)>> {
    let of = |subject: &Subject| Ok((*subject, all_changes(&root.join(subject.sources()))?));
    let mut wanted = subjects.iter().map(of).collect::<Result<Vec<_>>>()?;
    let there: BTreeSet<String> =
        wanted.iter().flat_map(|(_, changes)| changes).map(|change| change.file.clone()).collect();
    if let Some(file) = files.iter().find(|file| !there.contains(*file)) {
        let there = there.into_iter().collect::<Vec<_>>().join(", ");
        bail!("nothing to weaken in `{file}`; there is something in {there}");
    }
    wanted.iter_mut().for_each(|(_, changes)| {
        changes.retain(|change| files.is_empty() || files.contains(&change.file));
    });
    Ok(wanted)
}

/// Every change to every file of the folder and of those in it, in order.
fn all_changes(folder: &Path) -> Result<Vec<Change>> {
    let mut names = Vec::new();
    add_names(folder, "", &mut names)?;
    names.sort();
    let mut changes = Vec::new();
    // `sync.rs` is the wrapper of the atomics and uses none for itself.
    for name in names.iter().filter(|name| name.ends_with(".rs") && *name != "sync.rs") {
        changes.extend(change::changes(name, &fs::read_to_string(folder.join(name))?));
    }
    Ok(changes)
}

/// Adds the paths of the files below `folder`, each with `above` in front.
fn add_names(folder: &Path, above: &str, names: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let name = format!("{above}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            add_names(&entry.path(), &format!("{name}/"), names)?;
        } else {
            names.push(name);
        }
    }
    Ok(())
}

fn table(all: &[TriedChange]) -> String {
    let mut text = String::new();
    for TriedChange { subject, change, verdict, time_s } in all {
        let place = format!("{subject} {}:{}", change.file, change.line);
        let what = change.what();
        text += &format!("{place:<29} {:<14} {what:<24} {verdict:<60} {time_s:>6.1} s\n", change.function);
    }
    let killed = all.iter().filter(|tried| matches!(tried.verdict, Verdict::Killed(_))).count();
    text + &format!("{killed} of {} changes noticed", all.len())
}

fn json(tried: &TriedChange) -> String {
    let (by, outcome) = match &tried.verdict {
        Verdict::Killed(by) => (by.as_slice(), "killed"),
        Verdict::Survived => (&[][..], "survived"),
        Verdict::TimedOut => (&[][..], "timed out"),
    };
    let (change, seconds) = (&tried.change, tried.time_s);
    serde_json::json!({
        "crate": tried.subject, "file": change.file, "line": change.line, "site": change.function,
        "change": change.what(), "outcome": outcome, "killed_by": by, "seconds": seconds,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Vec<TriedChange> {
        let changes = change::changes("a.rs", "fn f() {\n    fence(Ordering::SeqCst);\n}\n");
        let verdicts = [Verdict::Killed(vec!["lazy::one".to_owned(), "join::two".to_owned()]), Verdict::Survived];
        changes
            .into_iter()
            .zip(verdicts)
            .map(|(change, verdict)| TriedChange { subject: "tlbkit", change, verdict, time_s: 1.5 })
            .collect()
    }

    #[test]
    fn the_table_tells_who_noticed_and_how_many() {
        let table = table(&two());
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with("tlbkit a.rs:2") && lines[0].contains("lazy::one and 1 more"), "{table}");
        assert!(lines[1].contains("NOT NOTICED") && lines[2] == "1 of 2 changes noticed", "{table}");
    }

    #[test]
    fn each_json_line_names_its_place_and_outcome() {
        let line = json(&two()[0]);
        assert!(line.contains("\"outcome\":\"killed\"") && line.contains("\"line\":2"), "{line}");
    }

    #[test]
    fn another_argument_is_refused_by_name() {
        let error = run(Path::new("/"), &["--fast".to_owned()]).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("`--fast`")));
    }

    #[test]
    fn a_file_without_anything_to_weaken_is_refused_beside_those_that_have() -> Result<()> {
        let root = crate::setup::root()?;
        let none = wanted_changes(&root, &SUBJECTS, &["no-such.rs".to_owned()]);
        let error = none.map(drop).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("`no-such.rs`") && text.contains("flush/shootdown.rs")));
        let of_one = wanted_changes(&root, &SUBJECTS, &["flush/shootdown.rs".to_owned()])?;
        let files: BTreeSet<&str> =
            of_one.iter().flat_map(|(_, changes)| changes).map(|change| change.file.as_str()).collect();
        assert_eq!(files, BTreeSet::from(["flush/shootdown.rs"]));
        Ok(())
    }

    #[test]
    fn orderings_in_folders_below_are_weakened_too() -> Result<()> {
        let folder = std::env::temp_dir().join(format!("tlbkit-fences-{}", std::process::id()));
        fs::create_dir_all(folder.join("below/lower"))?;
        for file in ["top.rs", "below/middle.rs", "below/lower/low.rs", "below/notes.txt"] {
            fs::write(folder.join(file), "fn f() {\n    word.load(Ordering::Acquire);\n}\n")?;
        }
        let changes = all_changes(&folder);
        fs::remove_dir_all(&folder)?;
        let files: Vec<_> = changes?.into_iter().map(|change| change.file).collect();
        assert_eq!(files, ["below/lower/low.rs", "below/middle.rs", "top.rs"]);
        Ok(())
    }

    #[test]
    fn a_crate_and_a_file_are_chosen_by_their_names() -> Result<()> {
        let chosen = |args: &[&str]| -> Result<Vec<&str>> {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            Ok(read(&args)?.subjects.iter().map(|subject| subject.name).collect())
        };
        assert_eq!(chosen(&["tlbkit-pmap", "--json"])?, ["tlbkit-pmap"]);
        assert_eq!(chosen(&[])?, ["tlbkit", "tlbkit-pmap", "tlbkit-c"]);
        assert_eq!(read(&["flush/shootdown.rs".to_owned()])?.files, ["flush/shootdown.rs"]);
        Ok(())
    }
}

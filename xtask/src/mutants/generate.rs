//! Bugs of the kind that authors make, put into each body of a crate's functions: a call left out, two calls exchanged,
//! an `else` forgotten, a field of a struct update, a flag of two, a half of a condition, all words but the first, the
//! next generation, the other side of a comparison. Fences and orderings are weakened by `cargo xtask fences`.
//!
//! All stand in one source, as patches do; those that do not compile are taken out. Each is looked for by seeds, where
//! the adversarial machine has no part in what is changed, and by the crate's own tests; what nobody notices is a gap
//! of the judges, or is excused with its reason in `verify/mutants/excused.toml`.

use super::copy::{Build, Errors, Generated};
use super::judge;
use super::patch::Witness;
use super::schemata::{self, Bodies, Function};
use crate::setup;
use crate::workshop::Sets;
use anyhow::{Context, Result, anyhow, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Whose functions are changed, and who is asked.
struct Part {
    folder: &'static str,
    /// The tests, after the seeds: its own, then those of who uses it.
    tests: &'static [&'static str],
    judges: Judges,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Judges {
    SeedsAndTests,
    /// The adversarial machine believes the same code, or does not have it.
    Tests,
}

const OF_PMAP: &str = "tlbkit-pmap --features tlbkit/history --lib --test pmap";
const CHANGED: [Part; 5] = [
    Part {
        folder: "lib/tlbkit/src",
        tests: &["tlbkit --features history --lib --test protocol --test properties", OF_PMAP],
        judges: Judges::SeedsAndTests,
    },
    Part { folder: "lib/tlbkit-pmap/src", tests: &[OF_PMAP], judges: Judges::SeedsAndTests },
    Part { folder: "lib/tlbkit-arch/src", tests: &["tlbkit-arch --test arch"], judges: Judges::Tests },
    Part {
        folder: "lib/tlbkit-x86/src",
        // Not the bytes: a function that has its bugs beside it is compiled to others.
        tests: &["tlbkit-x86 --lib --test facts --test traps"],
        judges: Judges::Tests,
    },
    Part {
        folder: "lib/tlbkit-c/src",
        // The archive, which is built anew, comes last.
        tests: &["tlbkit-c --features x86,reuse,directories --lib --test same_trace --test x86 --test host"],
        judges: Judges::Tests,
    },
];
/// Rules of old kernels: a choice among policies that were, each compared with its source by hand.
const UNCHANGED: &str = "policy/history/";
/// Whose constant functions are left alone.
const PROTOCOL: &str = "lib/tlbkit/src";
/// What a lock tells loom, and nobody else.
const SEEN_BY_LOOM: &str = ".guarded.";
/// Changes that nobody can notice, each with the reason.
const EXCUSES: &str = "verify/mutants/excused.toml";
/// What each program of tests is given: no test of the bytes of an archive, as above, and none that links an archive
/// without a system, as the choice of a bug asks the environment.
const TEST: [&str; 3] = [
    "--quiet",
    "--skip=the_linked_archive_has_each_instruction_in_its_place",
    "--skip=constants_that_were_not_loaded_do_not_fit",
];
/// Seeds for each: most bugs take a few dozen.
const SEEDS: &str = "4000";
/// Seeds in each build for what neither these nor the tests notice.
const MORE_SEEDS: &str = "20000";
/// Changes after which a line says how many are done.
const PROGRESS: usize = 100;
/// Times that changes which do not compile are taken out.
const ROUNDS: usize = 20;

/// One change of one body.
struct Change {
    operator: &'static str,
    file: String,
    line: usize,
    /// The function's name.
    function: String,
    /// What stands there, and what takes its place.
    was: String,
    is: String,
    /// The function's place in its file, and its whole body as changed.
    place: usize,
    body: String,
    constness: Constness,
}

/// Whether a function may have been called where only a constant one may.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Constness {
    No,
    Maybe,
}

/// An edit of a file: the operator, where, and what takes its place.
type Edit = (&'static str, Range<usize>, String);

/// Changes that are alike in one function, and why they are no bug.
struct Excuse {
    file: String,
    function: String,
    operator: String,
    was: String,
    is: String,
}

impl Excuse {
    fn is_of(&self, change: &Change) -> bool {
        let Self { file, function, operator, was, is } = self;
        (&**file, &**function, &**operator, &**was, &**is)
            == (&*change.file, &*change.function, change.operator, &*change.was, &*change.is)
    }
}

/// Who noticed a change, or that nobody has to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Seeds,
    Tests,
    Excused,
    Survived,
}

/// The verb's part `--generate`: changes of files whose path has one of `parts` in it, of all if there are none; after
/// `--sample N` so many of them. False if something survived, or an excuse is none any more.
pub(super) fn run(root: &Path, args: &[String]) -> Result<bool> {
    let (sample, parts) = match args {
        [flag, count, parts @ ..] if flag == "--sample" => (Some(count.parse().context("`--sample`")?), parts),
        parts => (None, parts),
    };
    let copies = Generated::new(root, &setup::target_dir(root).join("mutants/generated"))?;
    let is_asked = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(&**part));
    let mut changes = Vec::new();
    for part in &CHANGED {
        for file in sources(&root.join(part.folder))? {
            let name = file.strip_prefix(root)?.to_string_lossy().into_owned();
            if is_asked(&name) && !name.contains(UNCHANGED) {
                add_changes(&name, &fs::read_to_string(&file)?, &mut changes)?;
            }
        }
    }
    if let Some(count) = sample {
        changes = spread(changes, count);
    }
    let mut excuses = excuses(&fs::read_to_string(root.join(EXCUSES))?).context(EXCUSES)?;
    let is_made = |excuse: &Excuse| sample.is_none() || changes.iter().any(|change| excuse.is_of(change));
    excuses.retain(|excuse| is_asked(&excuse.file) && is_made(excuse));
    let built = build(&copies, &changes)?;
    let fates = ask(&copies, &changes, &built, &excuses)?;
    print_counts("operator", &changes, &fates, |change| change.operator);
    print_counts("file", &changes, &fates, |change| &change.file);
    let idle: Vec<_> = excuses.iter().filter(|excuse| !is_needed(excuse, &changes, &fates)).collect();
    for Excuse { file, function, operator, was, is } in &idle {
        println!("excused for nothing: {file}: {function}: {operator}: `{was}` became `{is}`");
    }
    Ok(idle.is_empty() && !fates.values().any(|fate| *fate == Fate::Survived))
}

/// So many of `all`, from everywhere in it, and the same ones each time.
fn spread<T>(all: Vec<T>, count: usize) -> Vec<T> {
    /// 2^64 by the golden ratio: multiples of it lie as far apart as they can.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut numbered: Vec<_> = all.into_iter().enumerate().collect();
    numbered.sort_by_key(|(n, _)| (*n as u64).wrapping_mul(STEP));
    numbered.truncate(count);
    numbered.sort_by_key(|(n, _)| *n);
    numbered.into_iter().map(|(_, one)| one).collect()
}

/// Whether a change that nobody noticed has this excuse.
fn is_needed(excuse: &Excuse, changes: &[Change], fates: &BTreeMap<usize, Fate>) -> bool {
    fates.iter().any(|(&n, &fate)| fate == Fate::Excused && excuse.is_of(&changes[n]))
}

fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn excuses(text: &str) -> Result<Vec<Excuse>> {
    let table: toml::Table = text.parse()?;
    let list = table.get("excused").and_then(toml::Value::as_array).context("no [[excused]]")?;
    let excuse = |entry: &toml::Value| {
        let field = |name: &str| {
            let value = entry.get(name).and_then(toml::Value::as_str);
            value.map(on_one_line).with_context(|| format!("no `{name}` in {entry}"))
        };
        if field("reason")?.is_empty() {
            bail!("no reason in {entry}");
        }
        let [file, function, operator] = [field("file")?, field("function")?, field("operator")?];
        Ok(Excuse { file, function, operator, was: field("was")?, is: field("is")? })
    };
    list.iter().map(excuse).collect()
}

/// Prints how many changes of each kind were made, are left after the compiler, and met each fate.
fn print_counts<'c>(
    what: &str,
    changes: &'c [Change],
    fates: &BTreeMap<usize, Fate>,
    kind: impl Fn(&'c Change) -> &'c str,
) {
    let kinds: BTreeSet<&str> = changes.iter().map(&kind).collect();
    println!(
        "\n{what:<36} {:>5} {:>6} {:>6} {:>6} {:>8} {:>9}",
        "made", "built", "seeds", "tests", "excused", "survived"
    );
    for is_sum in [false, true] {
        for name in kinds.iter().filter(|_| !is_sum).chain(["all"].iter().filter(|_| is_sum)) {
            let is_it = |n: usize| is_sum || kind(&changes[n]) == *name;
            let made = (0..changes.len()).filter(|&n| is_it(n)).count();
            let of = |fate: Option<Fate>| {
                fates.iter().filter(|(n, found)| is_it(**n) && fate.is_none_or(|fate| fate == **found)).count()
            };
            let [seeds, tests, excused, survived] =
                [Fate::Seeds, Fate::Tests, Fate::Excused, Fate::Survived].map(|fate| of(Some(fate)));
            let name = name.trim_start_matches("lib/");
            println!("{name:<36} {made:>5} {:>6} {seeds:>6} {tests:>6} {excused:>8} {survived:>9}", of(None));
        }
    }
}

fn sources(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Builds what judges, with all changes that compile; returns these, by number.
fn build(copies: &Generated, changes: &[Change]) -> Result<BTreeSet<usize>> {
    let mut left: BTreeSet<usize> = (0..changes.len()).collect();
    for _ in 0..ROUNDS {
        let mut by_file: BTreeMap<&str, Vec<(u32, Bodies)>> = BTreeMap::new();
        for &n in &left {
            let bodies = Bodies::from([(changes[n].place, changes[n].body.clone())]);
            by_file.entry(&changes[n].file).or_default().push((n as u32 + 1, bodies));
        }
        copies.write(&by_file)?;
        let Errors { bugs, constants } = copies.errors(&by_file.keys().copied().collect())?;
        if bugs.is_empty() && constants.is_empty() {
            return Ok(left);
        }
        let is_bad = |n: usize| {
            let Change { function, constness, .. } = &changes[n];
            bugs.contains(&(n as u32 + 1)) || *constness == Constness::Maybe && constants.contains(function)
        };
        let count = left.len();
        left.retain(|&n| !is_bad(n));
        if left.len() == count {
            bail!("{constants:?} are called where only constant functions are, and no change is to blame");
        }
        println!("{count} changes, {} of which do not compile", count - left.len());
    }
    bail!("after {ROUNDS} rounds some changes do not compile yet")
}

/// Who notices each change: the seeds, the tests, or nobody.
fn ask(
    copies: &Generated,
    changes: &[Change],
    built: &BTreeSet<usize>,
    excuses: &[Excuse],
) -> Result<BTreeMap<usize, Fate>> {
    let part_of =
        |n: usize| CHANGED.iter().find(|part| changes[n].file.starts_with(part.folder)).expect("it is of one");
    let is_asked = |part: &&Part| built.iter().any(|&n| part_of(n).folder == part.folder);
    let asked: Vec<&Part> = CHANGED.iter().filter(is_asked).collect();
    let all_tests: BTreeSet<&str> = asked.iter().flat_map(|part| part.tests).copied().collect();
    let witness = |tests: &&str| Witness { tests: (*tests).to_owned(), test: String::new() };
    let checkers = if asked.iter().any(|part| part.judges == Judges::SeedsAndTests) {
        let [wide, narrow] = [Sets::Wide, Sets::Narrow].map(|sets| copies.build(Build::Checker(sets), &[]));
        Some((wide?, narrow?))
    } else {
        None
    };
    let tests = copies.build(Build::Tests, &all_tests.iter().map(witness).collect::<Vec<_>>())?;
    for program in all_tests.iter().flat_map(|part| tests.of_tests(part)) {
        if !judge::ends_well(program, None, &TEST)? {
            bail!("`{}` of {} fails without any bug", program.target, program.package);
        }
    }
    for checker in checkers.iter().flat_map(|(wide, narrow)| [wide, narrow]) {
        if !judge::ends_well(checker.checker()?, None, &["--budget", SEEDS])? {
            bail!("the adversarial machine finds something without any bug, or does not end");
        }
    }
    // Tests that build an archive write into one place.
    let archive = Mutex::new(());
    let (all, next, noticed) =
        (built.iter().copied().collect::<Vec<_>>(), AtomicUsize::new(0), Mutex::<BTreeMap<_, _>>::default());
    let work = || -> Result<()> {
        // Relaxed: a counter; the threads are joined before its results are read.
        while let Some(&n) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let number = Some(n as u32 + 1);
            let notices = |program, args: &[&str]| Ok::<_, anyhow::Error>(!judge::ends_well(program, number, args)?);
            let part = part_of(n);
            let checkers = checkers.as_ref().filter(|_| part.judges == Judges::SeedsAndTests);
            let mut programs = part.tests.iter().flat_map(|tests_of| tests.of_tests(tests_of));
            let _alone = programs.clone().any(|program| program.target == "host").then(|| archive.lock());
            let fate = if let Some((wide, _)) = checkers
                && notices(wide.checker()?, &["--budget", SEEDS])?
            {
                Fate::Seeds
            } else if programs.try_fold(false, |by, program| Ok::<_, anyhow::Error>(by || notices(program, &TEST)?))? {
                Fate::Tests
            } else if let Some((wide, narrow)) = checkers
                && (notices(narrow.checker()?, &["--budget", MORE_SEEDS])?
                    || notices(wide.checker()?, &["--budget", MORE_SEEDS])?)
            {
                Fate::Seeds
            } else if excuses.iter().any(|excuse| excuse.is_of(&changes[n])) {
                Fate::Excused
            } else {
                let Change { operator, file, line, function, was, is, .. } = &changes[n];
                println!("survived: {file}:{line}: {function}: {operator}: `{was}` became `{is}`");
                Fate::Survived
            };
            let mut noticed = noticed.lock().unwrap_or_else(PoisonError::into_inner);
            noticed.insert(n, fate);
            if noticed.len().is_multiple_of(PROGRESS) {
                println!("{} of {} changes asked", noticed.len(), all.len());
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers = [(); 2].map(|()| scope.spawn(work));
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(noticed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn add_changes(file: &str, text: &str, changes: &mut Vec<Change>) -> Result<()> {
    // Tests stand at the end of a file.
    let end = text.find("#[cfg(all(test").or_else(|| text.find("#[cfg(test)]")).unwrap_or(text.len());
    for (place, Function { name: function, body, constness, is_opaque }) in
        schemata::functions(text)?.into_iter().enumerate()
    {
        // What is read at run time is no constant. In the protocol such functions make the tables of policies.
        let is_constant = constness.is_some();
        let is_looms = text[body.clone()].contains("#[cfg(loom)]");
        if is_constant && file.starts_with(PROTOCOL) || is_opaque || is_looms || body.start > end {
            continue;
        }
        let constness = if is_constant { Constness::Maybe } else { Constness::No };
        let mut edits = Vec::new();
        let inside = body.start + 1..body.end - 1;
        add_edits(text, &tokens_at(text, inside.clone())?, inside.start, Delimiter::Brace, &mut edits);
        edits.retain(|(_, at, _)| !text[at.clone()].contains(SEEN_BY_LOOM));
        for (operator, at, is) in edits {
            let mut changed = text[body.clone()].to_owned();
            changed.replace_range(at.start - body.start..at.end - body.start, &is);
            let line = text[..at.start].lines().count();
            let (was, is) = (on_one_line(&text[at]), on_one_line(&is));
            let (file, function) = (file.to_owned(), function.clone());
            changes.push(Change { operator, file, line, function, was, is, place, body: changed, constness });
        }
    }
    Ok(())
}

fn tokens_at(text: &str, range: Range<usize>) -> Result<Vec<TokenTree>> {
    let tokens: TokenStream = text[range].parse().map_err(|error| anyhow!("no tokens of Rust: {error}"))?;
    Ok(tokens.into_iter().collect())
}

/// Adds all edits of a list of tokens, which begins at `base` of the file and stands between such delimiters.
fn add_edits(text: &str, tokens: &[TokenTree], base: usize, between: Delimiter, edits: &mut Vec<Edit>) {
    let at = |n: usize| tokens[n].span().byte_range().start + base..tokens[n].span().byte_range().end + base;
    let from_to = |range: Range<usize>| at(range.start).start..at(range.end - 1).end;
    let is = |n: usize, word: &str| tokens.get(n).is_some_and(|token| token.to_string() == word);
    let group = |n: usize, of: Delimiter| matches!(tokens.get(n), Some(TokenTree::Group(g)) if g.delimiter() == of);
    for n in 0..tokens.len() {
        if is(n, "else") && group(n + 1, Delimiter::Brace) {
            edits.push(("else", at(n + 1), "{}".to_owned()));
        }
        if n > 0 && is(n - 1, ".") && group(n + 1, Delimiter::Parenthesis) {
            match tokens[n].to_string().as_str() {
                "with" => edits.push(("flag", at(n - 1).start..at(n + 1).end, String::new())),
                "next" if text[at(n + 1)] == *"()" => {
                    edits.push(("generation", at(n - 1).start..at(n + 1).end, String::new()));
                }
                "iter" => edits.push(("first word", at(n + 1), "().take(1)".to_owned())),
                _ => {}
            }
        }
        let pair = [n, n + 1].map(|n| tokens.get(n).map(ToString::to_string).unwrap_or_default()).concat();
        let other = match pair.as_str() {
            "<=" => "<",
            ">=" => ">",
            "==" => "!=",
            "!=" => "==",
            _ => "",
        };
        let is_one = matches!(&tokens[n], TokenTree::Punct(punct) if punct.spacing() == proc_macro2::Spacing::Joint);
        if !other.is_empty() && is_one && !is(n + 2, "=") {
            edits.push(("comparison", from_to(n..n + 2), other.to_owned()));
        }
        if is(n, ".") && is(n + 1, ".") && between == Delimiter::Brace && n > 0 && is(n - 1, ",") {
            add_fields(tokens, n, &from_to, edits);
        }
    }
    add_halves(text, tokens, &from_to, edits);
    if between == Delimiter::Brace {
        add_calls(text, tokens, &from_to, edits);
    }
    for (n, token) in tokens.iter().enumerate() {
        // What a constant asserts, the compiler notices.
        let is_constant = n > 0 && is(n - 1, "const");
        if let TokenTree::Group(group) = token
            && !is_constant
        {
            let inner: Vec<_> = group.stream().into_iter().collect();
            add_edits(text, &inner, base, group.delimiter(), edits);
        }
    }
}

/// Each field that stands before `..` at `rest` in a struct update is left out.
fn add_fields(
    tokens: &[TokenTree],
    rest: usize,
    from_to: &dyn Fn(Range<usize>) -> Range<usize>,
    edits: &mut Vec<Edit>,
) {
    let mut start = 0;
    for n in (0..rest).filter(|&n| tokens[n].to_string() == ",") {
        edits.push(("field", from_to(start..n + 1), String::new()));
        start = n + 1;
    }
}

/// Each part of `a && b`, `a || b` and `A | B` is left out.
fn add_halves(text: &str, tokens: &[TokenTree], from_to: &dyn Fn(Range<usize>) -> Range<usize>, edits: &mut Vec<Edit>) {
    let word = |n: usize| tokens[n].to_string();
    let ends = |n: usize| {
        matches!(word(n).as_str(), ";" | "," | "if" | "while" | "return" | "else" | "match")
            || matches!(&tokens[n], TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
            || word(n) == "="
                && !(n > 0 && "=<>!".contains(&word(n - 1)))
                && !(n + 1 < tokens.len() && word(n + 1) == "=")
    };
    let mut start = 0;
    for end in (0..=tokens.len()).filter(|&n| n == tokens.len() || ends(n)) {
        let segment = start..end;
        start = end + 1;
        let (mut places, mut n) = (Vec::new(), segment.start);
        while n < segment.end {
            let is_pair = n + 1 < segment.end && word(n) == word(n + 1) && "&|".contains(&word(n)) && n > segment.start;
            let is_flags = word(n) == "|" && n > segment.start && n + 1 < segment.end;
            if is_pair || is_flags {
                places.push(n..n + if is_pair { 2 } else { 1 });
            }
            n += if is_pair { 2 } else { 1 };
        }
        if places.is_empty() || segment.clone().any(|n| word(n) == "let") {
            continue;
        }
        for (which, place) in places.iter().enumerate() {
            let before = if which == 0 { segment.start } else { places[which - 1].end };
            let after = places.get(which + 1).map_or(segment.end, |next| next.start);
            let operator = if place.len() == 2 { "half" } else { "flag" };
            if before < place.start && place.end < after {
                let whole = from_to(before..after);
                edits.push((operator, whole.clone(), text[from_to(place.end..after)].to_owned()));
                edits.push((operator, whole, text[from_to(before..place.start)].to_owned()));
            }
        }
    }
}

/// Each call that is a statement is left out, and exchanged with a call that follows it.
fn add_calls(text: &str, tokens: &[TokenTree], from_to: &dyn Fn(Range<usize>) -> Range<usize>, edits: &mut Vec<Edit>) {
    let (mut start, mut before): (usize, Option<Range<usize>>) = (0, None);
    for n in 0..tokens.len() {
        let is_block = matches!(&tokens[n], TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
        if tokens[n].to_string() != ";" && !is_block {
            continue;
        }
        let statement = start..n;
        start = n + 1;
        let first = tokens[statement.clone()].first().map(ToString::to_string).unwrap_or_default();
        let is_call = statement.len() > 1
            && first != "fence"
            && !is_block
            && matches!(&tokens[n - 1], TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
            && !matches!(first.as_str(), "let" | "return" | "assert" | "assert_eq" | "debug_assert" | "bail" | "#")
            && !tokens[statement.clone()].iter().any(|token| token.to_string() == "=");
        if !is_call {
            before = None;
            continue;
        }
        let at = from_to(statement.start..n + 1);
        edits.push(("call", at.clone(), String::new()));
        // Nobody sees in which order a CPU writes two words of its own.
        let is_own = |range: &Range<usize>| text[range.clone()].contains(".set(");
        if let Some(before) = before.replace(at.clone()).filter(|before| !(is_own(before) && is_own(&at))) {
            let both = format!("{} {}", &text[at.clone()], &text[before.clone()]);
            edits.push(("exchange", before.start..at.end, both));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(body: &str) -> Result<Vec<(&'static str, String)>> {
        let text = format!("fn f() {{ {body} }}");
        let mut changes = Vec::new();
        add_changes("a.rs", &text, &mut changes)?;
        let inside = |body: String| body.trim_matches(|c| "{} ".contains(c)).to_owned();
        Ok(changes.into_iter().map(|change| (change.operator, inside(change.body))).collect())
    }

    #[test]
    fn each_excuse_is_of_a_change_that_is_made_and_has_a_reason() -> Result<()> {
        let root = setup::root()?;
        for excuse in excuses(&fs::read_to_string(root.join(EXCUSES))?)? {
            let (file, mut made) = (&excuse.file, Vec::new());
            add_changes(file, &fs::read_to_string(root.join(file))?, &mut made)?;
            assert!(made.iter().any(|change| excuse.is_of(change)), "{file}: {}: `{}`", excuse.function, excuse.was);
        }
        assert!(excuses("[[excused]]\nfile = 'a'\nreason = ''\n").is_err());
        Ok(())
    }

    #[test]
    fn a_sample_is_spread_over_all() {
        let sample = spread((0..1000).collect(), 10);
        let gaps: Vec<i32> = sample.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(sample.len(), 10);
        assert!(gaps.iter().all(|&gap| (30..300).contains(&gap)), "{sample:?}");
        assert_eq!(spread(vec![1, 2], 10), [1, 2]);
    }

    #[test]
    fn each_operator_makes_what_it_says() -> Result<()> {
        let has = |body: &str, operator: &str, is: &str| -> Result<bool> {
            Ok(edits(body)?.iter().any(|(of, changed)| *of == operator && changed == is))
        };
        assert!(edits("fence(SeqCst); x")?.is_empty(), "fences are weakened elsewhere");
        assert!(!has("a.set(1); b.set(2); x", "exchange", "b.set(2); a.set(1); x")?, "nobody sees that");
        assert!(has("a.b(1); c(); x", "call", "a.b(1);  x")?);
        assert!(has("a.b(1); c(); x", "exchange", "c(); a.b(1); x")?);
        assert!(has("if c { d() } else { e() } x", "else", "if c { d() } else {} x")?);
        assert!(has("S(if a && b.c { 1 } else { 2 })", "half", "S(if b.c { 1 } else { 2 })")?);
        assert!(has("g(X | Y)", "flag", "g(Y)")?);
        assert!(has("n.with(M)", "flag", "n")?);
        assert!(has("g(S { a: 1, ..s })", "field", "g(S {  ..s })")?);
        assert!(has("w.iter().sum()", "first word", "w.iter().take(1).sum()")?);
        assert!(has("g(a.next())", "generation", "g(a)")?);
        assert!(has("g(a <= b)", "comparison", "g(a < b)")?);
        assert!(edits("let a = b(); a")?.is_empty(), "what is used is not left out");
        assert!(edits("const { assert!(a == b) }; x")?.is_empty(), "the compiler notices");
        assert!(edits("self.guarded.write(); x")?.is_empty(), "nobody but loom");
        assert!(edits("#[cfg(loom)] self.cell.with(|_| ());")?.is_empty(), "nobody but loom");
        Ok(())
    }
}

//! Bugs of the kind that authors make, put into each body of a crate's functions: a fence or a call left out, two calls
//! exchanged, an `else` forgotten, a field of a struct update, a flag of two, a half of a condition, all words but the
//! first, the next generation, the other side of a comparison. All stand in one source, as patches do; those that do
//! not compile are taken out. Who notices none of them is asked by seeds and by the crates' own tests.

use super::copy::{Build, Generated};
use super::judge;
use super::patch::Witness;
use super::schemata::{self, Bodies, Function};
use crate::setup;
use crate::workshop::Sets;
use anyhow::{Result, anyhow, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Whose functions are changed.
const CHANGED: [&str; 2] = ["lib/tlbkit/src", "lib/tlbkit-pmap/src"];
/// What is asked after the seeds.
const TESTS: [&str; 2] =
    ["tlbkit --features history --lib --test protocol --test properties", "tlbkit-pmap --test pmap"];
/// Seeds for each: most bugs take a few dozen.
const SEEDS: &str = "4000";
/// Times that changes which do not compile are taken out.
const ROUNDS: usize = 20;

/// One change of one body.
struct Change {
    operator: &'static str,
    file: String,
    line: usize,
    /// What stands there, and what takes its place.
    was: String,
    is: String,
    /// The function's place in its file, and its whole body as changed.
    place: usize,
    body: String,
}

/// An edit of a file: the operator, where, and what takes its place.
type Edit = (&'static str, Range<usize>, String);

/// The verb's part `--generate`: changes whose file has `part` in its name. False if something survived.
pub(super) fn run(root: &Path, part: Option<&str>) -> Result<bool> {
    let copies = Generated::new(root, &setup::target_dir(root).join("mutants/generated"))?;
    let mut changes = Vec::new();
    for folder in CHANGED {
        for file in sources(&root.join(folder))? {
            let name = file.strip_prefix(root)?.to_string_lossy().into_owned();
            if part.is_none_or(|part| name.contains(part)) {
                add_changes(&name, &fs::read_to_string(&file)?, &mut changes)?;
            }
        }
    }
    let made = changes.iter().map(|change| change.operator).fold(BTreeMap::new(), |mut made, operator| {
        *made.entry(operator).or_insert(0) += 1;
        made
    });
    let built = build(&copies, &changes)?;
    let noticed = ask(&copies, &changes, &built)?;
    println!("{:<12} {:>5} {:>6} {:>6} {:>6} {:>9}", "operator", "made", "built", "seeds", "tests", "survived");
    for (operator, made) in made {
        let of = |by: Option<Option<&str>>| {
            let is = |(n, found): &(&usize, &Option<&str>)| {
                changes[**n].operator == operator && by.is_none_or(|by| by == **found)
            };
            noticed.iter().filter(is).count()
        };
        let [seeds, tests] = ["seeds", "tests"].map(|by| of(Some(Some(by))));
        println!("{operator:<12} {made:>5} {:>6} {seeds:>6} {tests:>6} {:>9}", of(None), of(Some(None)));
    }
    Ok(noticed.values().all(Option::is_some))
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
        let bad = copies.errors()?;
        if bad.is_empty() {
            return Ok(left);
        }
        println!("{} changes, {} of which do not compile", left.len(), bad.len());
        left.retain(|n| !bad.contains(&(*n as u32 + 1)));
    }
    bail!("after {ROUNDS} rounds some changes do not compile yet")
}

/// Who notices each change: the seeds, the tests, or nobody.
fn ask(
    copies: &Generated,
    changes: &[Change],
    built: &BTreeSet<usize>,
) -> Result<BTreeMap<usize, Option<&'static str>>> {
    let witnesses = TESTS.map(|tests| Witness { tests: tests.to_owned(), test: String::new() });
    let checker = copies.build(Build::Checker(Sets::Wide), &[])?;
    let tests = copies.build(Build::Tests, &witnesses)?;
    let (all, next, noticed) =
        (built.iter().copied().collect::<Vec<_>>(), AtomicUsize::new(0), Mutex::<BTreeMap<_, _>>::default());
    let work = || -> Result<()> {
        // Relaxed: a counter; the threads are joined before its results are read.
        while let Some(&n) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let number = Some(n as u32 + 1);
            let by = if !judge::ends_well(checker.checker()?, number, &["--budget", SEEDS])? {
                Some("seeds")
            } else {
                let mut programs = TESTS.iter().flat_map(|of| tests.of_tests(of));
                let passes = programs.try_fold(true, |so_far, program| {
                    Ok::<_, anyhow::Error>(so_far && judge::ends_well(program, number, &["--quiet"])?)
                })?;
                (!passes).then_some("tests")
            };
            if by.is_none() {
                let Change { operator, file, line, was, is, .. } = &changes[n];
                println!("survived: {file}:{line}: {operator}: `{was}` became `{is}`");
            }
            noticed.lock().unwrap_or_else(PoisonError::into_inner).insert(n, by);
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
    for (place, Function { body, constness, is_opaque, .. }) in schemata::functions(text)?.into_iter().enumerate() {
        // What is read at run time is no constant.
        if constness.is_some() || is_opaque || body.start > end {
            continue;
        }
        let mut edits = Vec::new();
        let inside = body.start + 1..body.end - 1;
        add_edits(text, &tokens_at(text, inside.clone())?, inside.start, Delimiter::Brace, &mut edits);
        for (operator, at, is) in edits {
            let mut changed = text[body.clone()].to_owned();
            changed.replace_range(at.start - body.start..at.end - body.start, &is);
            let line = text[..at.start].lines().count();
            let short = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            let (was, is) = (short(&text[at]), short(&is));
            changes.push(Change { operator, file: file.to_owned(), line, was, is, place, body: changed });
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
    for token in tokens {
        if let TokenTree::Group(group) = token {
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
            && !is_block
            && matches!(&tokens[n - 1], TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
            && !matches!(first.as_str(), "let" | "return" | "assert" | "assert_eq" | "debug_assert" | "bail" | "#")
            && !tokens[statement.clone()].iter().any(|token| token.to_string() == "=");
        if !is_call {
            before = None;
            continue;
        }
        let at = from_to(statement.start..n + 1);
        edits.push((if first == "fence" { "fence" } else { "call" }, at.clone(), String::new()));
        if let Some(before) = before.replace(at.clone()) {
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
    fn each_operator_makes_what_it_says() -> Result<()> {
        let has = |body: &str, operator: &str, is: &str| -> Result<bool> {
            Ok(edits(body)?.iter().any(|(of, changed)| *of == operator && changed == is))
        };
        assert!(has("fence(SeqCst); x", "fence", "x")?);
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
        Ok(())
    }
}

//! Many bugs in one source, so that all are built at once: a function that patches change keeps its body, and has each
//! patch's body beside it, behind the number of that bug. Which number it is, the environment says at run time.
//!
//! That takes patches that change nothing but bodies of functions. What else a patch may change, a constant or the
//! fields of a struct, is the same for everybody in a build, so such a bug is built by itself; so is one in a function
//! that returns an `impl Trait`, which is one type, or that a macro is given.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// Stands before the number of a bug, and before the body that has number 0: what does not compile is found by it.
pub(super) const MARK: &str = "/*bug ";

/// The variable that chooses a bug, by its number from 1.
pub(super) const CHOICE: &str = "TLBKIT_BUG";

/// What stands in the copy of `tlbkit`, at the end of its root. It links no `std`, as a kernel's archive is judged too.
pub(super) const CHOOSER: &str = include_str!("choice.in");

/// Bodies that a patch puts in place of those of a file, by the place of the function among the file's functions.
pub(super) type Bodies = BTreeMap<usize, String>;

/// The bodies in `after`, a file as a patch leaves it, that are others in `before`; `None` if something else differs.
pub(super) fn changed_bodies(before: &str, after: &str) -> Result<Option<Bodies>> {
    let (old, new) = (functions(before)?, functions(after)?);
    if skeleton(before, &old)? != skeleton(after, &new)? {
        return Ok(None);
    }
    let mut bodies = Bodies::new();
    for (place, (old, new)) in old.iter().zip(&new).enumerate() {
        let body = &after[new.body.clone()];
        if tokens(&before[old.body.clone()])? == tokens(body)? {
            continue;
        }
        if old.is_opaque {
            return Ok(None);
        }
        bodies.insert(place, body.to_owned());
    }
    Ok(Some(bodies))
}

/// The file `text` with the bodies of all `bugs`, which have their numbers, behind a choice that `crate_path` holds.
pub(super) fn merged(text: &str, bugs: &[(u32, Bodies)], crate_path: &str) -> Result<String> {
    let mut merged = text.to_owned();
    // From the end on, so that the places of those before stay.
    for (place, function) in functions(text)?.iter().enumerate().rev() {
        let mut arms = String::new();
        for (number, bodies) in bugs {
            if let Some(body) = bodies.get(&place) {
                write!(arms, "{MARK}{number}*/ {number} => {body} ")?;
            }
        }
        if arms.is_empty() {
            continue;
        }
        let own = &text[function.body.clone()];
        merged.replace_range(
            function.body.clone(),
            &format!("{{ match {crate_path}::bug::chosen() {{ {arms} {MARK}0*/ _ => {own} }} }}"),
        );
        // What is read at run time is no constant. No bug is in a function that a constant is made by.
        if let Some(constness) = &function.constness {
            merged.replace_range(constness.clone(), "");
        }
    }
    Ok(merged)
}

/// A function with a body, in no other function.
#[derive(Default)]
pub(super) struct Function {
    pub(super) name: String,
    /// With its braces.
    pub(super) body: Range<usize>,
    pub(super) constness: Option<Range<usize>>,
    /// Whether it returns a type that it does not name, or is a macro's, which may make a constant function of it.
    pub(super) is_opaque: bool,
}

/// The functions of a file, in their order.
pub(super) fn functions(text: &str) -> Result<Vec<Function>> {
    let mut found = Vec::new();
    add_functions(parsed(text)?, &mut found);
    Ok(found)
}

/// Adds the functions that stand in `tokens`, in their order.
fn add_functions(tokens: TokenStream, found: &mut Vec<Function>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.to_string() == word);
    let mut at = 0;
    while at < tokens.len() {
        let is_named = matches!(tokens.get(at + 1), Some(TokenTree::Ident(_)));
        if is(at, "fn") && is_named {
            let words_before = (0..at).rev().take_while(|&before| matches!(&tokens[before], TokenTree::Ident(_)));
            let constness = words_before.into_iter().find(|&word| is(word, "const"));
            let mut function = Function {
                name: tokens[at + 1].to_string(),
                constness: constness.map(|word| tokens[word].span().byte_range()),
                ..Function::default()
            };
            // A trait's function without a body ends here too. Braces between angles are a constant.
            while at < tokens.len() && !is(at, ";") {
                function.is_opaque |= is(at, "-") && is(at + 2, "impl");
                match &tokens[at] {
                    TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is(at + 1, ">") => {
                        function.body = group.span().byte_range();
                        found.push(function);
                        break;
                    }
                    _ => at += 1,
                }
            }
        } else if let TokenTree::Group(group) = &tokens[at] {
            let first = found.len();
            add_functions(group.stream(), found);
            let is_macros = at > 0 && is(at - 1, "!");
            found[first..].iter_mut().for_each(|function| function.is_opaque |= is_macros);
        }
        at += 1;
    }
}

fn parsed(text: &str) -> Result<TokenStream> {
    text.parse().map_err(|error| anyhow!("no tokens of Rust: {error}"))
}

/// All that stands around the bodies, without comments.
fn skeleton(text: &str, functions: &[Function]) -> Result<String> {
    let mut around = text.to_owned();
    functions.iter().rev().for_each(|function| around.replace_range(function.body.clone(), "{}"));
    tokens(&around)
}

fn tokens(text: &str) -> Result<String> {
    Ok(parsed(text)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
use a::b;
const fn one() -> u32 { 1 }
impl S {
    /// Two.
    fn two(&self) { if self.x { f(); } }
    fn many(&self) -> impl Iterator<Item = u32> { 0..2 }
    fn three(&self, of: A<{ N + 1 }>) -> u32 where A: B, { 3 }
}
";

    #[test]
    fn bodies_that_differ_stand_beside_their_own() -> Result<()> {
        let first = changed_bodies(BEFORE, &BEFORE.replace("f();", "/* nothing */"))?;
        let second = changed_bodies(BEFORE, &BEFORE.replace("{ 1 }", "{ 2 }").replace("f();", "g();"))?;
        let bugs = [(7, first.unwrap_or_default()), (8, second.unwrap_or_default())];
        let merged = merged(BEFORE, &bugs, "crate")?;
        let one = "fn one() -> u32 { match crate::bug::chosen() { /*bug 8*/ 8 => { 2 }  /*bug 0*/ _ => { 1 } } }";
        assert!(merged.contains(one) && !merged.contains("const"), "{merged}");
        let three = BEFORE.replace("{ 3 }", "{ 4 }");
        assert_eq!(
            changed_bodies(BEFORE, &three)?.map(|bodies| bodies.into_values().collect()),
            Some(vec!["{ 4 }".to_owned()])
        );
        assert!(
            merged.contains(
                "7 => { if self.x { /* nothing */ } } /*bug 8*/ 8 => { if self.x { g(); } }  /*bug 0*/ _ => "
            ),
            "{merged}"
        );
        Ok(())
    }

    #[test]
    fn what_differs_around_bodies_or_in_a_nameless_type_is_built_by_itself() -> Result<()> {
        let after = |from: &str, to: &str| changed_bodies(BEFORE, &BEFORE.replace(from, to));
        assert_eq!(after("a::b", "a::c")?, None);
        assert_eq!(after("-> u32", "-> u64")?, None);
        assert_eq!(after("0..2", "0..3")?, None);
        // Comments and white space are nothing.
        assert_eq!(after("use a::b;", "// Of a.\nuse  a::b;")?, Some(Bodies::new()));
        Ok(())
    }
}

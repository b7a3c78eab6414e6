//! The fences and orderings of a source file, and each of them made one step weaker.

use crate::tidy::source::{Source, word_columns};
use std::fmt;
use std::ops::Range;

/// One place, made one step weaker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// The file's name.
    pub(super) file: String,
    /// Its line, from 1.
    pub(super) line: usize,
    /// The function that it is in.
    pub(super) function: String,
    weakening: Weakening,
}

/// The step from an ordering to a weaker one, or from a fence to none.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Weakening {
    is_fence: bool,
    from: &'static str,
    /// `None` takes the fence away.
    to: Option<&'static str>,
    columns: Range<usize>,
}

/// Orderings that can be weaker, and the next weaker ones.
const WEAKER: [(&str, &[&str]); 4] = [
    ("SeqCst", &["AcqRel"]),
    ("AcqRel", &["Acquire", "Release"]),
    ("Acquire", &["Relaxed"]),
    ("Release", &["Relaxed"]),
];

const FENCE: &str = "fence(";
const PATH: &str = "Ordering::";

impl Change {
    /// The kind of place, and the step.
    pub(super) fn what(&self) -> String {
        let Weakening { is_fence, from, to, .. } = &self.weakening;
        let kind = if *is_fence { "fence " } else { "" };
        format!("{kind}{from} -> {}", to.unwrap_or("none"))
    }

    /// `text`, the file, with the change made.
    pub(super) fn apply(&self, text: &str) -> String {
        let line = |(n, line): (usize, &str)| {
            if n + 1 != self.line {
                return format!("{line}\n");
            }
            let Weakening { to, columns: Range { start, end }, .. } = self.weakening;
            let replacement = to.map_or("()".to_owned(), |to| format!("{PATH}{to}"));
            format!("{}{replacement}{}\n", &line[..start], &line[end..])
        };
        text.lines().enumerate().map(line).collect()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {} {}", self.file, self.line, self.function, self.what())
    }
}

/// Every change to `text`, the file `name`, outside its tests.
pub(super) fn changes(name: &str, text: &str) -> Vec<Change> {
    let source = Source::new(name, text);
    let mut function = String::new();
    let mut found = Vec::new();
    for (line, code) in source.numbered_code().filter(|(line, _)| !source.is_test[line - 1]) {
        if let Some(name) = function_name(code) {
            function = name.to_owned();
        }
        for column in word_columns(code, PATH) {
            found.extend(at(code, column).map(|weakening| Change {
                file: name.to_owned(),
                line,
                function: function.clone(),
                weakening,
            }));
        }
    }
    found
}

/// The changes to the ordering that stands at `column`.
fn at(code: &str, column: usize) -> impl Iterator<Item = Weakening> {
    let ordering = &code[column + PATH.len()..];
    let is_whole =
        |name: &str| ordering.starts_with(name) && !ordering[name.len()..].starts_with(char::is_alphanumeric);
    let fence = code[..column].ends_with(FENCE).then(|| column - FENCE.len());
    WEAKER.iter().filter(move |(from, _)| is_whole(from)).flat_map(move |&(from, weaker)| {
        let end = column + PATH.len() + from.len();
        let steps = weaker.iter().filter(move |&&to| fence.is_none() || to != "Relaxed");
        let weakened =
            steps.map(move |&to| Weakening { is_fence: fence.is_some(), from, to: Some(to), columns: column..end });
        // The parenthesis goes with the fence.
        let removed = fence.map(|start| Weakening { is_fence: true, from, to: None, columns: start..end + 1 });
        weakened.chain(removed)
    })
}

fn function_name(code: &str) -> Option<&str> {
    let at = word_columns(code, "fn").next()?;
    let name = code[at + 2..].trim_start();
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (end > 0).then(|| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
fn one() {
    // fence(Ordering::SeqCst) in a comment
    fence(Ordering::SeqCst);
    word.load(Ordering::Relaxed);
}
pub(crate) fn two(order: Ordering) {
    word.swap(0, Ordering::AcqRel) + other.load(Ordering::Acquire);
}
#[cfg(test)]
mod tests {
    fn three() {
        word.load(Ordering::Acquire);
    }
}
";

    #[test]
    fn each_ordering_becomes_one_step_weaker_and_a_fence_goes() {
        let found: Vec<String> = changes("a.rs", TEXT).iter().map(ToString::to_string).collect();
        let expected = [
            "a.rs:3 one fence SeqCst -> AcqRel",
            "a.rs:3 one fence SeqCst -> none",
            "a.rs:7 two AcqRel -> Acquire",
            "a.rs:7 two AcqRel -> Release",
            "a.rs:7 two Acquire -> Relaxed",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_change_touches_its_place_alone() {
        let changed: Vec<String> = changes("a.rs", TEXT).iter().map(|change| change.apply(TEXT)).collect();
        assert!(
            changed[0].contains("    fence(Ordering::AcqRel);\n") && changed[0].contains("swap(0, Ordering::AcqRel)")
        );
        assert!(changed[1].contains("    ();\n"), "{}", changed[1]);
        assert!(changed[4].contains("swap(0, Ordering::AcqRel) + other.load(Ordering::Relaxed);"), "{}", changed[4]);
        assert!(changed.iter().all(|text| text.lines().count() == TEXT.lines().count()));
    }
}

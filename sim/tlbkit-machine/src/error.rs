//! Why a machine could not be had; and what the TOML parser says of a machine file, in the words of such a file and on
//! one line.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use thiserror::Error;

/// Why a machine could not be had.
#[derive(Debug, Error)]
pub enum MachineError {
    /// No machine has this name.
    #[error("no machine is called {name}; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The answer of the operating system.
        source: io::Error,
    },
    /// The file is too large to be one.
    #[error("{}: no machine file: must be at most {most_bytes} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How large it may be.
        most_bytes: u64,
    },
    /// The file says something that it may not say.
    #[error("{file}:{line}: {}: {limit}", written(field, value.as_ref()))]
    Invalid {
        /// The file.
        file: String,
        /// Its line, from one.
        line: usize,
        /// The field.
        field: String,
        /// What it says, if it is there and says something.
        value: Option<String>,
        /// What it may say.
        limit: String,
    },
}

fn written(field: &str, value: Option<&String>) -> String {
    value.map_or_else(|| field.to_owned(), |value| format!("{field} = {value}"))
}

/// What the parser says of the `text` of a file, as an error that names the line, the field, its value and what it may
/// be.
pub(super) fn parser_error(file: &str, text: &str, error: &toml::de::Error) -> MachineError {
    let span = error.span().unwrap_or_default();
    let line = line_at(text, span.start);
    let written = text.lines().nth(line - 1).unwrap_or_default();
    let said = error.message().lines().collect::<Vec<_>>().join(" ");
    let quoted = |prefix: &str| said.strip_prefix(prefix).and_then(|rest| rest.split('`').next());
    let (field, value, limit) = match (quoted("missing field `"), quoted("unknown field `")) {
        (Some(field), _) => (name_inside(written, span.start, field), None, "is missing".to_owned()),
        (_, Some(field)) => unknown_field(text, &span, written, field, &said),
        _ => wrong_value(text, span, written, &said),
    };
    let (field, value, limit) = (plain(&field), value.map(|value| plain(&value)), plain_whole(&limit));
    MachineError::Invalid { file: file.into(), line, field, value, limit }
}

/// The name of a `field` in what begins at `byte`, on the line that is `written` there: a section, a field with braces,
/// or the whole file.
fn name_inside(written: &str, byte: usize, field: &str) -> String {
    let section = written.trim_start().strip_prefix('[').and_then(|rest| rest.split(']').next());
    let outer = section.map(|section| section.trim_start_matches('['));
    match outer.or_else(|| written.split_once('=').map(|(left, _)| left.trim()).filter(|_| byte > 0)) {
        Some(outer) => format!("{outer}.{field}"),
        None => field.to_owned(),
    }
}

/// Field, value and limit.
type Complaint = (String, Option<String>, String);

/// The complaint about an unknown `field`, whose name stands at `span`.
fn unknown_field(text: &str, span: &Range<usize>, written: &str, field: &str, said: &str) -> Complaint {
    let known = wanted(said).map_or_else(String::new, |wanted| format!("; must be {wanted}"));
    let limit = format!("no such field is known{known}");
    let (left, right) = written.split_once('=').unwrap_or((written, ""));
    if left.trim() == field || left.trim() == written.trim() {
        return (field.to_owned(), Some(right.to_owned()).filter(|right| !right.is_empty()), limit);
    }
    // In braces, after others.
    let rest = text.get(span.end..).and_then(|rest| rest.split([',', '}', '\n']).next()).unwrap_or_default();
    let value = rest.trim_start_matches([' ', '=']).to_owned();
    (format!("{}.{field}", left.trim()), Some(value), limit)
}

/// The complaint about a value of the wrong kind.
fn wrong_value(text: &str, span: Range<usize>, written: &str, said: &str) -> Complaint {
    let (left, right) = written.split_once('=').unwrap_or((written, ""));
    let inner = inner_field(text, span.start);
    let pointed = text.get(span).filter(|pointed| !pointed.contains('\n') && pointed.len() < written.len());
    let (left, right) = (left.to_owned(), Some(right.trim().to_owned()).filter(|right| !right.is_empty()));
    let is_of_value = ["invalid type", "invalid length", "unknown variant"].iter().any(|begin| said.starts_with(begin));
    match (wanted(said), said.strip_prefix("wanted ")) {
        (Some(wanted), _) if is_of_value => {
            (inner.unwrap_or(left), pointed.map(String::from).or(right), format!("must be {wanted}"))
        }
        (_, Some(wanted)) => (inner.unwrap_or(left), pointed.map(String::from).or(right), format!("must be {wanted}")),
        _ if said.starts_with("duplicate key") => (left, right, "stands in this section twice".to_owned()),
        _ if right.is_none() && written.contains('=') => (left, right, "needs a value".to_owned()),
        _ => (left, right, format!("is no TOML: {said}")),
    }
}

/// What the parser wants, in words of a machine file instead of the program's.
fn wanted(said: &str) -> Option<String> {
    let (_, wanted) = said.split_once("expected ")?;
    let words = [("f64", "a number"), ("a sequence", "a list"), ("a boolean", "true or false")];
    let is_program = wanted.starts_with("struct ") || wanted.starts_with("internally");
    let plain = words.iter().fold(wanted.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours));
    Some(if is_program { "a section of fields".to_owned() } else { plain })
}

/// The dotted name of what stands at `byte` in braces, as `invlpg.value`; none if it stands in none.
fn inner_field(text: &str, byte: usize) -> Option<String> {
    let before = text.get(..byte)?;
    let line = before.rsplit('\n').next()?;
    let (outer, inside) = line.split_once('{')?;
    let (key, _) = inside.rsplit_once('=')?;
    let key = key.trim_end().rsplit([' ', ',', '{']).next()?;
    Some(format!("{}.{key}", outer.trim_end_matches([' ', '='])))
}

/// Characters of a value that a message shows.
const MOST_SHOWN: usize = 60;

/// The begin of what a file says, without characters that would control a terminal.
fn plain(text: &str) -> String {
    let text = plain_whole(text.trim());
    let begin: String = text.chars().take(MOST_SHOWN).collect();
    if begin.len() < text.len() { begin + "..." } else { text }
}

fn plain_whole(text: &str) -> String {
    let of = |letter: char| if letter.is_control() { letter.escape_default().collect() } else { String::from(letter) };
    text.chars().map(of).collect()
}

/// The line, from one, of a byte.
pub(super) fn line_at(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|&byte| byte == b'\n').count()
}

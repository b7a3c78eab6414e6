//! A file as the rules see it: its lines as written, and, for Rust, the same lines with comments and literals blanked.
//!
//! Blanking keeps every newline and every column of code, so a rule that finds a word in `code` can name its line, and
//! a word inside a comment or a string can never trip it. A full parser would be exact and slow to build.

/// The folders of the root that group crates by purpose.
const PURPOSES: &[&str] = &["lib", "sim", "verify", "metal", "linux"];

/// One text file of the repository.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path from the root of the repository, with `/`.
    pub(crate) path: String,
    /// Every line as written.
    pub(crate) lines: Vec<String>,
    /// The same lines without comments and without the insides of literals; empty unless the file is Rust.
    pub(crate) code: Vec<String>,
    /// For each line, whether it is compiled for tests only.
    pub(crate) is_test: Vec<bool>,
}

impl Source {
    /// Reads `text` as the file at `path`.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let blanked = if path.ends_with(".rs") { blank(text) } else { String::new() };
        let code: Vec<String> = blanked.lines().map(str::to_owned).collect();
        let is_test = if is_test_path(path) { vec![true; lines.len()] } else { test_lines(&code) };
        Self { path: path.to_owned(), lines, code, is_test }
    }

    /// True for a Rust file.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The name of the crate's folder, or of another folder of that rank: the first below one of [`PURPOSES`], or the
    /// first there is.
    pub(crate) fn crate_dir(&self) -> &str {
        self.path.split('/').find(|part| !PURPOSES.contains(part)).unwrap_or("")
    }

    /// The numbered lines of code, from 1.
    pub(crate) fn numbered_code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().map(|(at, line)| (at + 1, line.as_str()))
    }
}

fn is_test_path(path: &str) -> bool {
    let in_folder = path.split('/').any(|part| part == "tests");
    in_folder || path.ends_with("/tests.rs") || path.ends_with("_tests.rs")
}

/// Marks the lines of each item that stands under `#[cfg(test)]`.
fn test_lines(code: &[String]) -> Vec<bool> {
    let mut marks = vec![false; code.len()];
    let mut at = 0;
    while at < code.len() {
        if code[at].trim_start().starts_with("#[cfg(test)]") {
            let end = item_end(code, at, "#[cfg(test)]".len());
            marks[at..=end].fill(true);
            at = end;
        }
        at += 1;
    }
    marks
}

/// The line on which the item that begins at `start` ends: its closing brace, or its semicolon if it has no body.
pub(crate) fn item_end(code: &[String], start: usize, skip_columns: usize) -> usize {
    let (mut braces, mut brackets) = (0_i32, 0_i32);
    for (at, line) in code.iter().enumerate().skip(start) {
        let skip = if at == start { skip_columns + (line.len() - line.trim_start().len()) } else { 0 };
        for c in line.chars().skip(skip) {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                '{' => braces += 1,
                '}' => {
                    braces -= 1;
                    if braces <= 0 {
                        return at;
                    }
                }
                ';' if braces == 0 && brackets == 0 => return at,
                _ => {}
            }
        }
    }
    code.len().saturating_sub(1)
}

/// What the blanking pass is inside of.
enum Inside {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text { quote: char },
    RawText { hashes: usize },
}

/// `text` with comments and the insides of string and character literals turned into spaces.
fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut inside = Inside::Code;
    let mut at = 0;
    while at < chars.len() {
        let (next, taken) = step(&inside, &chars, at);
        let keeps = matches!((&inside, &next), (Inside::Code, Inside::Code));
        for &c in &chars[at..at + taken] {
            out.push(if keeps || c == '\n' || c == '"' { c } else { ' ' });
        }
        inside = next;
        at += taken;
    }
    out
}

/// What follows the characters at `at`, and how many of them that decides.
fn step(inside: &Inside, chars: &[char], at: usize) -> (Inside, usize) {
    let here = chars[at];
    let pair = (here, chars.get(at + 1).copied().unwrap_or('\n'));
    match *inside {
        Inside::Code => step_code(chars, at, pair),
        Inside::LineComment if here == '\n' => (Inside::Code, 1),
        Inside::LineComment => (Inside::LineComment, 1),
        Inside::BlockComment { depth } => match pair {
            ('/', '*') => (Inside::BlockComment { depth: depth + 1 }, 2),
            ('*', '/') if depth == 1 => (Inside::Code, 2),
            ('*', '/') => (Inside::BlockComment { depth: depth - 1 }, 2),
            _ => (Inside::BlockComment { depth }, 1),
        },
        Inside::Text { quote } if here == '\\' => (Inside::Text { quote }, 2.min(chars.len() - at)),
        Inside::Text { quote } if here == quote => (Inside::Code, 1),
        Inside::Text { quote } => (Inside::Text { quote }, 1),
        Inside::RawText { hashes } => {
            let closes = here == '"' && chars[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes;
            if closes { (Inside::Code, 1 + hashes) } else { (Inside::RawText { hashes }, 1) }
        }
    }
}

fn step_code(chars: &[char], at: usize, pair: (char, char)) -> (Inside, usize) {
    match pair {
        ('/', '/') => (Inside::LineComment, 2),
        ('/', '*') => (Inside::BlockComment { depth: 1 }, 2),
        ('"', _) => (Inside::Text { quote: '"' }, 1),
        ('r', '"' | '#') if !is_word(at.checked_sub(1).map(|i| chars[i])) => raw_start(chars, at),
        ('b', 'r') if !is_word(at.checked_sub(1).map(|i| chars[i])) => match raw_start(chars, at + 1) {
            (raw @ Inside::RawText { .. }, taken) => (raw, taken + 1),
            _ => (Inside::Code, 1),
        },
        // A lifetime has no closing quote two characters on; a character literal has, or begins with a backslash.
        ('\'', '\\') => (Inside::Text { quote: '\'' }, 1),
        ('\'', _) if chars.get(at + 2) == Some(&'\'') => (Inside::Text { quote: '\'' }, 1),
        _ => (Inside::Code, 1),
    }
}

/// A raw string's opening at `at` (on its `r`), if it is one: `r#name` is an identifier.
fn raw_start(chars: &[char], at: usize) -> (Inside, usize) {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    let opens = chars.get(at + 1 + hashes) == Some(&'"');
    if opens { (Inside::RawText { hashes }, hashes + 2) } else { (Inside::Code, 1) }
}

/// True for a character that can be part of an identifier.
pub(crate) fn is_word(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// The byte columns at which `word` stands in `line`, not as a part of a longer identifier.
pub(crate) fn word_columns<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    line.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let starts_whole = !(is_word(before) && is_word(word.chars().next()));
        starts_whole && !(is_word(after) && is_word(word.chars().next_back()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_kept() {
        let text =
            "let a = \"unsafe // \\\" x\"; // unsafe\n/* unsafe /* nested */\n unsafe */ let b = 'u';\nlet c: &'a T;";
        let code = blank(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
        assert!(code.contains("let b = ") && code.contains("let c: &'a T;"), "{code}");
    }

    #[test]
    fn raw_strings_end_at_their_own_hashes() {
        let code = blank("let a = r#\"one \" unsafe \"#; let r#type = br\"unsafe\"; done");
        assert!(!code.contains("unsafe"), "{code}");
        assert!(code.contains("let r#type = ") && code.ends_with("; done"), "{code}");
    }

    #[test]
    fn test_lines_cover_the_item_and_no_more() {
        let text =
            "fn a() {}\n#[cfg(test)]\nuse x::{y};\nfn b() {}\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\nfn d() {}\n";
        let source = Source::new("k/src/a.rs", text);
        assert_eq!(source.is_test, [false, true, true, false, true, true, true, true, false]);
    }

    #[test]
    fn words_are_whole_identifiers() {
        assert_eq!(word_columns("unsafe_code unsafe {", "unsafe").collect::<Vec<_>>(), [12]);
    }
}

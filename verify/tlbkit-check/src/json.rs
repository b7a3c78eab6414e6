//! The little JSON that this crate writes: it is rebuilt for every mutant, so it asks no larger crate.

use std::fmt::Write as _;

/// `text` as a JSON string, with its quotes.
#[must_use]
pub fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                // Writing to a string cannot fail.
                let _ok = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn quotes_and_control_characters_are_escaped() {
        assert_eq!(super::string("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}

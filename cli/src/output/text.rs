//! Text of somebody else, such as a name in a file, on its way to a terminal.

/// `text` with nothing in it that would control a terminal: control characters are written out, except for ends of
/// lines and tabulators.
pub(crate) fn plain(text: &str) -> String {
    let is_command = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    let sign = |letter: char| if is_command(letter) { letter.escape_default().collect() } else { letter.to_string() };
    text.chars().map(sign).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_to_the_terminal_is_written_out_and_the_rest_stays() {
        assert_eq!(
            plain("no policy a\u{1b}[31m;\n\tsee \u{e9}\u{9b}2J"),
            "no policy a\\u{1b}[31m;\n\tsee \u{e9}\\u{9b}2J"
        );
    }
}

//! How a verb speaks to its user: text or JSON, its lines, its progress, and its exit status.

use std::env;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process;
use std::time::Duration;

pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressState, ProgressStyle};

/// What is written to standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For a person.
    Text,
    /// For a program: one object a line.
    Json,
}

/// How a verb ended, when it was used rightly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything came out as it should.
    AsExpected,
    /// A verdict changed, or a check found something wrong.
    NotAsExpected,
    /// The command that was watched ended with this exit status, which becomes ours.
    AsCommand(u8),
}

/// Does what `println!` does. If standard output takes no more, as on a full disk, the command ends with one line.
#[macro_export]
macro_rules! say {
    () => { $crate::terminal::print_line(format_args!("")) };
    ($($argument:tt)*) => { $crate::terminal::print_line(format_args!($($argument)*)) };
}

/// As `eprintln!`, but where standard error takes no more, the line is lost and the work goes on.
#[macro_export]
macro_rules! note {
    ($($argument:tt)*) => { $crate::terminal::print_note(format_args!($($argument)*)) };
}

/// The message for an answer that could not be written whole.
const UNWRITTEN: &str = "cannot write to standard output";

/// What [`say!`] does. What was cut short must not look whole, nor like an answer: the exit status is 2.
pub fn print_line(line: fmt::Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout().lock(), "{line}") {
        let name = env::args_os().next().map(PathBuf::from).unwrap_or_default();
        note!("{}: {UNWRITTEN}: {error}", name.file_name().unwrap_or_default().display());
        process::exit(2);
    }
}

/// What [`note!`] does: nobody can be told that nobody can be told.
pub fn print_note(line: fmt::Arguments<'_>) {
    _ = writeln!(io::stderr().lock(), "{line}");
}

/// A bar over `steps` steps, on standard error, and only if that is a terminal.
pub fn progress_bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// A bar for steps that take minutes. It shows the time that has passed and what `said` returns, each second anew.
pub fn progress_bar_saying(steps: usize, said: impl Fn() -> String + Clone + Send + Sync + 'static) -> ProgressBar {
    let bar = progress_bar(steps);
    let say = move |_: &ProgressState, place: &mut dyn fmt::Write| place.write_str(&said()).unwrap_or_default();
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} in {elapsed} {said}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("said", say));
    bar.enable_steady_tick(Duration::from_secs(1));
    bar
}

/// `text` with nothing in it that would control a terminal: control characters are written out, except for ends of
/// lines and tabulators.
pub fn plain(text: &str) -> String {
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

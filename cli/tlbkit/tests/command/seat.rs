//! A terminal with somebody before it, who sees what a command shows there.

#[path = "terminal.rs"]
mod terminal;

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use pty_process::Size;
use pty_process::blocking::{Command, Pts};
use vt100::Parser;

pub(crate) use terminal::Terminal;

/// How each picture begins: in its first row.
const BEGIN: &[u8] = b"\x1b[1;1H";

/// A terminal with somebody before it.
pub(crate) struct Seat {
    pub(crate) terminal: Terminal,
    pub(crate) seen: Mutex<Parser>,
}

impl Seat {
    /// A seat before so many rows and columns that remembers so many rows more, and the program's side of it.
    pub(crate) fn new([rows, columns]: [NonZero<u16>; 2], scrollback: usize) -> (Self, Pts) {
        let (terminal, pts) = Terminal::open(Size::new(rows.get(), columns.get()));
        (Self { terminal, seen: Mutex::new(Parser::new(rows, columns, scrollback)) }, pts)
    }

    #[allow(dead_code, reason = "not every command has a picture that changes")]
    /// Nothing that is printed for the new size is seen at the old one.
    pub(crate) fn resize(&self, [rows, columns]: [NonZero<u16>; 2]) {
        let mut seen = self.seen.lock().unwrap();
        self.terminal.resize(Size::new(rows.get(), columns.get()));
        seen.screen_mut().set_size(rows, columns);
    }

    /// Looks on until the program has ended. A picture comes in pieces, and is seen when it is whole: when the next one
    /// begins.
    pub(crate) fn look(&self) {
        let mut held = Vec::new();
        self.terminal.look(|bytes| {
            held.extend_from_slice(bytes);
            let whole = held.windows(BEGIN.len()).rposition(|bytes| bytes == BEGIN).unwrap_or(0);
            self.seen.lock().unwrap().process(&held[..whole]);
            held.drain(..whole);
        });
        self.seen.lock().unwrap().process(&held);
    }

    pub(crate) fn text(&self) -> String {
        self.seen.lock().unwrap().screen().contents()
    }
}

/// The lines that somebody sees of a command before a terminal of so many columns. One that is longer goes on in the
/// next row.
pub(crate) fn seen(program: &str, columns: u16, arguments: &[&str]) -> Vec<String> {
    let (seat, pts) = Seat::new([1000, columns].map(|length| NonZero::new(length).unwrap()), 0);
    let mut running = Command::new(program).args(arguments).spawn(pts).unwrap();
    let status = thread::scope(|scope| {
        scope.spawn(|| seat.look());
        let status = running.wait().unwrap();
        seat.terminal.mark_end();
        status
    });
    assert!(status.success(), "{arguments:?}: {}", seat.text());
    seat.text().lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Whether the help of a verb fits a terminal of 80 columns, and keeps its examples whole: a command that is cut could
/// not be copied.
pub(crate) fn assert_help_fits(program: &str, name: &str, verb: &str) {
    let arguments: Vec<_> = verb.split(' ').chain(["--help"]).collect();
    let examples = |columns| {
        let rows = seen(program, columns, &arguments);
        assert!(rows.iter().all(|row| row.len() <= columns.into()), "{rows:?}");
        let is_example = |row: &String| row.starts_with(&format!("  {name} ")) || row.starts_with("Example: ");
        rows.into_iter().filter(is_example).collect::<Vec<_>>()
    };
    let narrow = examples(80);
    assert!(!narrow.is_empty(), "{verb} has an example");
    assert_eq!(narrow, examples(200), "{verb}");
}

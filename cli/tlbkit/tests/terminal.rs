//! On a real terminal: a picture of `observe` that fits, follows the window, and leaves nothing behind; lists, tables
//! and help that fit.

#[path = "command/not_here.rs"]
mod not_here;
#[path = "command/terminal.rs"]
mod terminal;

use std::num::NonZero;
use std::process::Child;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use not_here::is_not_here;
use pty_process::Size;
use pty_process::blocking::{Command, Pts};
use terminal::Terminal;
use vt100::Parser;

/// How long a picture may take to come, however busy the machine: it only ends a hang.
const PATIENCE: Duration = Duration::from_secs(300);
/// How each picture begins: in its first row.
const BEGIN: &[u8] = b"\x1b[1;1H";

/// A terminal with somebody before it.
struct Seat {
    terminal: Terminal,
    seen: Mutex<Parser>,
}

impl Seat {
    /// A seat before so many rows and columns that remembers so many rows more, and the program's side of it.
    fn new([rows, columns]: [NonZero<u16>; 2], scrollback: usize) -> (Self, Pts) {
        let (terminal, pts) = Terminal::open(Size::new(rows.get(), columns.get()));
        (Self { terminal, seen: Mutex::new(Parser::new(rows, columns, scrollback)) }, pts)
    }

    /// Nothing that is printed for the new size is seen at the old one.
    fn resize(&self, [rows, columns]: [NonZero<u16>; 2]) {
        let mut seen = self.seen.lock().unwrap();
        self.terminal.resize(Size::new(rows.get(), columns.get()));
        seen.screen_mut().set_size(rows, columns);
    }

    /// Looks on until the program has ended. A picture comes in pieces, and is seen when it is whole: when the next one
    /// begins.
    fn look(&self) {
        let mut held = Vec::new();
        self.terminal.look(|bytes| {
            held.extend_from_slice(bytes);
            let whole = held.windows(BEGIN.len()).rposition(|bytes| bytes == BEGIN).unwrap_or(0);
            self.seen.lock().unwrap().process(&held[..whole]);
            held.drain(..whole);
        });
        self.seen.lock().unwrap().process(&held);
    }

    fn text(&self) -> String {
        self.seen.lock().unwrap().screen().contents()
    }

    /// Waits for a picture with these words; false if `program` ends, or none comes.
    fn waits_for(&self, words: &str, program: &mut Child) -> bool {
        let started = Instant::now();
        while started.elapsed() < PATIENCE && program.try_wait().unwrap().is_none() {
            if self.text().contains(words) {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// The picture is on the second screen, has no cursor, and no line of it goes on in the next row.
    fn assert_in_place(&self) {
        let seen = self.seen.lock().unwrap();
        let screen = seen.screen();
        assert!(screen.alternate_screen() && screen.hide_cursor(), "{}", screen.contents());
        let (rows, _) = screen.size();
        assert!((0..rows.get()).all(|row| !screen.row_wrapped(row)), "{}", screen.contents());
        assert_eq!(screen.contents().matches("| reason ").count(), 1, "{}", screen.contents());
    }
}

#[test]
fn a_picture_follows_the_window_and_ctrl_c_leaves_the_summary_alone() {
    let [small, large] = [[24, 80], [50, 200]].map(|size| size.map(|length| NonZero::new(length).unwrap()));
    let (seat, pts) = Seat::new(small, 1000);
    let command = Command::new(env!("CARGO_BIN_EXE_tlbkit"));
    let mut observing = command.args(["observe", "--all-cpus", "--interval", "0.2"]).spawn(pts).unwrap();
    thread::scope(|scope| {
        let looking = scope.spawn(|| seat.look());
        if !seat.waits_for("| task switch ", &mut observing) {
            let _ = observing.kill();
            observing.wait().unwrap();
            seat.terminal.mark_end();
            looking.join().unwrap();
            assert!(is_not_here(&seat.text()), "{}", seat.text());
            return println!("skipped: {}", seat.text());
        }
        seat.assert_in_place();
        seat.resize(large);
        assert!(
            seat.waits_for("| CPU ", &mut observing),
            "with more rows there is room for every table: {}",
            seat.text()
        );
        seat.assert_in_place();
        seat.terminal.press_ctrl_c();
        let status = observing.wait().unwrap();
        seat.terminal.mark_end();
        looking.join().unwrap();
        assert!(status.success(), "{status}");
        let seen = seat.seen.lock().unwrap();
        assert!(!seen.screen().alternate_screen() && !seen.screen().hide_cursor(), "the screen is given back");
        let text = seen.screen().contents();
        assert!(text.contains(" events, ") && !text.contains("Ctrl-C ends"), "{text}");
    });
}

/// The lines that somebody sees of a command before a terminal of so many columns. One that is longer goes on in the
/// next row.
fn seen(columns: u16, arguments: &[&str]) -> Vec<String> {
    let (seat, pts) = Seat::new([1000, columns].map(|length| NonZero::new(length).unwrap()), 0);
    let mut running = Command::new(env!("CARGO_BIN_EXE_tlbkit")).args(arguments).spawn(pts).unwrap();
    let status = thread::scope(|scope| {
        scope.spawn(|| seat.look());
        let status = running.wait().unwrap();
        seat.terminal.mark_end();
        status
    });
    assert!(status.success(), "{arguments:?}: {}", seat.text());
    seat.text().lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn lists_fit_a_terminal_of_80_columns_and_keep_names_whole() {
    for kind in ["machines", "policies", "workloads", "parameters", "experiments", "settings", "programs", "sizes"] {
        let rows = seen(80, &["list", kind]);
        assert!(rows.iter().all(|row| row.len() <= 80 && (row.ends_with('|') || row.is_empty())), "{rows:?}");
    }
    let rows = seen(80, &["list", "policies"]);
    assert!(rows.iter().any(|row| row.starts_with("| linux-3.13-altershift | ")), "{rows:?}");
}

#[test]
fn a_table_of_many_policies_falls_into_parts_that_fit() {
    let run = "run madvise1 --cpus 2 --milliseconds 1 --seeds 2 --policy linux-3.4,linux-4.14,linux-6.18,tlbkit";
    let arguments: Vec<_> = run.split(' ').collect();
    let rows = seen(80, &arguments);
    let heads: Vec<_> = rows.iter().filter(|row| row.starts_with("| quantity ")).collect();
    assert_eq!(heads.len(), 2, "{rows:?}");
    assert!(rows.iter().filter(|row| row.starts_with('|')).all(|row| row.len() <= 80), "{rows:?}");
    let policies = |head: &str| head.split('|').map(str::trim).filter(|cell| cell.contains(['x', 'k'])).count();
    assert_eq!(heads.iter().map(|head| policies(head)).sum::<usize>(), 4, "{heads:?}");
    let wide = seen(200, &arguments);
    assert_eq!(wide.iter().filter(|row| row.starts_with("| quantity ")).count(), 1, "{wide:?}");
}

/// A command that is cut could not be copied.
#[test]
fn help_fits_a_terminal_of_80_columns_and_keeps_its_examples_whole() {
    let verbs = "reproduce,run,sweep,sweep plan,sweep run,sweep merge,sweep table,check,observe,record,blame,boot,\
                 replay,tune,try,calibrate,doctor,pages,list";
    for verb in verbs.split(',') {
        let arguments: Vec<_> = verb.split(' ').chain(["--help"]).collect();
        let examples = |columns| {
            let rows = seen(columns, &arguments);
            assert!(rows.iter().all(|row| row.len() <= columns.into()), "{rows:?}");
            let is_example = |row: &String| row.starts_with("  tlbkit ") || row.starts_with("Example: ");
            rows.into_iter().filter(is_example).collect::<Vec<_>>()
        };
        let narrow = examples(80);
        assert!(!narrow.is_empty(), "{verb} has an example");
        assert_eq!(narrow, examples(200), "{verb}");
    }
}

//! One screen: the programs of the last interval, in an order and with a filter that keys choose.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _, stdin};
use std::sync::mpsc::Sender;
use std::thread;

use console::Term;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::Message;
use super::ledger::{Ledger, Order, Program};

/// As xterm and its kin have it: to the second screen, without a cursor; and back.
const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";
const ESCAPE: char = '\x1b';
/// Columns of a program's name: Linux has no longer ones.
const NAME: usize = 15;

/// What keys have chosen.
pub(super) struct View {
    pub(super) order: Order,
    pub(super) filter: String,
    is_typing: bool,
}

/// What a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    Draw,
    Quit,
}

impl View {
    pub(super) const fn new() -> Self {
        Self { order: Order::Cost, filter: String::new(), is_typing: false }
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: char) -> Wish {
        match key {
            '\r' | '\n' if self.is_typing => self.is_typing = false,
            ESCAPE => *self = Self { order: self.order, ..Self::new() },
            '\x7f' | '\x08' if self.is_typing => _ = self.filter.pop(),
            _ if self.is_typing && !key.is_control() => self.filter.push(key),
            '/' => *self = Self { order: self.order, filter: String::new(), is_typing: true },
            'q' if !self.is_typing => return Wish::Quit,
            _ => {
                if let Some((_, order, _)) = Order::ALL.into_iter().find(|(letter, ..)| *letter == key) {
                    self.order = order;
                }
            }
        }
        Wish::Draw
    }

    /// What the keys do, and what they have chosen.
    fn keys(&self) -> String {
        let orders = Order::ALL.map(|(letter, _, label)| format!("{letter} {label}")).join(", ");
        let cursor = if self.is_typing { "_" } else { "" };
        let filter = if self.filter.is_empty() && !self.is_typing {
            "/ filter".to_owned()
        } else {
            format!("only: {}{cursor} (Esc: all)", self.filter)
        };
        format!("by {} ({orders})  {filter}  q quits", self.order.label())
    }
}

/// The answer in a sentence, and a row a program, as many as fit into `rows`.
pub(super) fn text(ledger: &Ledger, view: &View, rows: usize) -> String {
    let sum = ledger.sum();
    let a_second = |count: u64| count as f64 / ledger.seconds.max(1e-3);
    let ms = |ns: u64| a_second(ns) / 1e6;
    let mut text = format!(
        "Shootdowns took {:.1} ms of CPU time a second: {:.1} waiting for answers, {:.1} of those interrupted.\n",
        ms(sum.own_ns + sum.others_ns),
        ms(sum.own_ns),
        ms(sum.others_ns)
    );
    if ledger.lost > 0 {
        text += &format!("INCOMPLETE: {} events were lost\n", ledger.lost);
    }
    text += &format!(
        "\n{:NAME$} {:>5} {:>9} {:>7} {:>6} {:>8} {:>10} {:>9} {:>9}  {}\n",
        "program", "procs", "flushes/s", "pages", "all, %", "asked/s", "interrupts", "own ms/s", "others", "whom most"
    );
    let all = ledger.sorted(view.order, &view.filter);
    for (name, program) in all.iter().take(rows.saturating_sub(4)) {
        let Program { flushes, everything, pages, .. } = *program;
        let (flushes, everything) = (*flushes, *everything);
        let by_pages = flushes.saturating_sub(everything);
        let each = if by_pages == 0 { "-".to_owned() } else { format!("{:.1}", *pages as f64 / by_pages as f64) };
        let part = if flushes == 0 { 0.0 } else { 100.0 * everything as f64 / flushes as f64 };
        text += format!(
            "{:NAME$} {:>5} {:>9.0} {each:>7} {part:>6.0} {:>8.0} {:>10.0} {:>9.2} {:>9.2}  {}\n",
            name.chars().take(NAME).collect::<String>(),
            program.pids.len(),
            a_second(flushes),
            a_second(program.asked),
            a_second(program.interrupts),
            ms(program.own_ns),
            ms(program.others_ns),
            program.whom_most().unwrap_or_default()
        )
        .trim_end();
        text += "\n";
    }
    if all.is_empty() {
        text += if view.filter.is_empty() { "no flush yet\n" } else { "no such program has flushed\n" };
    }
    text
}

/// The terminal's second screen, and its keys; as it was before when this is dropped.
pub(super) struct Screen {
    term: Term,
    before: Option<Termios>,
}

impl Screen {
    /// Opens it, and sends each key that is pressed.
    pub(super) fn open(term: Term, keys: Sender<Message>) -> Self {
        let before = tcgetattr(stdin()).ok();
        if let Some(mut modes) = before.clone() {
            // Letters come at once and are not shown. Ctrl-C stays a signal.
            modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            let _ = tcsetattr(stdin(), OptionalActions::Now, &modes);
            thread::spawn(move || {
                let mut bytes = stdin().lock().bytes();
                while let Some(Ok(byte)) = bytes.next()
                    && keys.send(Message::Key(char::from(byte))).is_ok()
                {}
            });
        }
        let screen = Self { term, before };
        screen.write(OPEN);
        screen
    }

    pub(super) fn draw(&self, ledger: &Ledger, view: &View) {
        let (rows, columns) = self.term.size();
        let text = text(ledger, view, usize::from(rows).saturating_sub(1));
        self.write(&frame(&text, &view.keys(), rows.into(), columns.into()));
    }

    fn write(&self, bytes: &str) {
        // A terminal that went away shows nothing, and the watching ends by itself.
        let _ = (&self.term).write_all(bytes.as_bytes());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.write(CLOSE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

/// All rows, the last one for the keys, each put in its place and emptied first: in one piece, so that nothing
/// flickers, scrolls or is left over.
fn frame(text: &str, keys: &str, rows: usize, columns: usize) -> String {
    let lines = text.lines().chain(std::iter::repeat("")).take(rows.saturating_sub(1)).chain([keys]).enumerate();
    lines.fold(String::new(), |mut frame, (row, line)| {
        let end = line.char_indices().nth(columns).map_or(line.len(), |(end, _)| end);
        // A string takes all that is written to it.
        let _ = write!(frame, "\x1b[{};1H\x1b[2K{}", row + 1, &line[..end]);
        frame
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fills_the_screen_and_no_more() {
        let frame = frame("one\ntwö and more\nthree\nfour", "keys", 3, 3);
        assert_eq!(frame, "\x1b[1;1H\x1b[2Kone\x1b[2;1H\x1b[2Ktwö\x1b[3;1H\x1b[2Kkey");
    }

    #[test]
    fn keys_choose_the_order_and_the_filter() {
        let mut view = View::new();
        assert_eq!((view.press('f'), view.order), (Wish::Draw, Order::Flushes));
        "/redq\x7f\r".chars().for_each(|key| assert_eq!(view.press(key), Wish::Draw, "q is a letter here"));
        assert_eq!(view.filter, "red");
        assert!(view.keys().starts_with("by flushes (c cost, ") && view.keys().contains("only: red (Esc: all)"));
        view.press(ESCAPE);
        assert_eq!((view.filter.as_str(), view.order), ("", Order::Flushes));
        assert_eq!(view.press('q'), Wish::Quit);
    }

    #[test]
    fn rows_fit_a_terminal_and_rates_are_those_of_a_second() {
        let program = Program { flushes: 40, own_ns: 6_000_000, others_ns: 2_000_000, ..Program::default() };
        let mut ledger = Ledger { seconds: 2.0, ..Ledger::default() };
        (0..30).for_each(|n| _ = ledger.programs.insert(format!("a-long-program-{n}"), program.clone()));
        let text = text(&ledger, &View::new(), 20);
        assert!(text.starts_with("Shootdowns took 120.0 ms of CPU time a second: 90.0 waiting"), "{text}");
        assert!(text.lines().count() <= 20 && text.lines().all(|line| line.chars().count() <= 120), "{text}");
        let row = text.lines().nth(3).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        assert_eq!(row[1..], ["0", "20", "0.0", "0", "0", "0", "3.00", "1.00"], "{text}");
    }
}

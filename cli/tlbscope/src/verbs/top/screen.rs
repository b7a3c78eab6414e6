//! Where what happened goes: into a picture in place on a terminal, lines elsewhere, JSON where that is asked for.

use std::fmt::Write as _;
use std::io::Write as _;

use console::Term;
use serde_json::{Value, json};
use tlbkit_output::say;
use tlbkit_output::terminal::Format;
use tlbkit_trace::summary::{CpuRow, ProcessRow, SizeRow};
use tlbkit_trace::{FlushReason, FlushSize, Health, Names, Summary};

use super::tables::{Observed, call_sites, rate};
use crate::watching::{WatchArguments, WatchedRun};

/// Rows that each table of a picture may have.
const LEAST: usize = 4;
const FEW: usize = 8;
/// Rows that the last one has.
const MANY: usize = 20;

/// One of three ways to show.
enum Way {
    InPlace(Picture),
    Lines,
    Json,
}

/// What shows intervals, and the sum at the end.
pub(super) struct Screen {
    way: Way,
}

impl Screen {
    /// A command writes to the terminal itself, and a picture would hide that.
    pub(super) fn open(format: Format, subject: &WatchArguments) -> Self {
        let term = Term::stdout();
        let way = match format {
            Format::Json => Way::Json,
            Format::Text if term.is_term() && subject.command.is_empty() => Way::InPlace(Picture::open(term)),
            Format::Text => Way::Lines,
        };
        let screen = Self { way };
        if let Way::InPlace(picture) = &screen.way {
            picture.draw(|_| "flushes: none yet; Ctrl-C ends with a summary".to_owned());
        }
        screen
    }

    /// Shows what happened in the interval that just ended.
    pub(super) fn interval(&self, window: &Summary, observed: &Observed, names: &Names, health: &Health) {
        match &self.way {
            Way::Json => say!("{}", row("interval", window, observed, names, health)),
            Way::Lines => say!("{}", line(window, health)),
            Way::InPlace(picture) => picture.draw(|rows| {
                let head = format!("flushes; Ctrl-C ends with a summary  {}\n\n", doubts(health));
                let body = |most| observed.text(window, names, most);
                // As much of each table as there is room for; where there is little, some of the first ones.
                let fitting = (LEAST..=FEW).rev().map(body).find(|body| body.lines().count() + 2 <= rows);
                head + &fitting.unwrap_or_else(|| body(LEAST))
            }),
        }
    }

    /// Shows the sum.
    pub(super) fn end(self, observed: &Observed, names: &Names, health: &Health, run: &WatchedRun) {
        if let Way::Json = self.way {
            say!("{}", row("summary", &observed.total, observed, names, health));
            return;
        }
        // The picture goes, the sum stays.
        drop(self);
        say!("{}", observed.text(&observed.total, names, MANY));
        say!("{}", observed.notes());
        say!("{}: {health}", run.window(&observed.total));
        if let Some(status) = run.status.filter(|status| *status != 0) {
            say!("the command ended with status {status}");
        }
    }
}

/// What belongs beside every figure.
fn doubts(health: &Health) -> String {
    if health.is_whole() { String::new() } else { format!("INCOMPLETE: {health}") }
}

/// An interval in a line.
fn line(window: &Summary, health: &Health) -> String {
    let reasons = FlushReason::ALL.into_iter().filter(|reason| window.flushes(*reason) > 0);
    let reasons: Vec<_> =
        reasons.map(|reason| format!("{} {:.0}", reason.label(), rate(window.flushes(reason), window))).collect();
    let interrupts = window.cpus().iter().map(|cpu| cpu.interrupts).sum();
    let most = window
        .processes()
        .first()
        .map_or(String::new(), |row| format!("; most: {} [{}] {:.0}", row.comm, row.pid, rate(row.total(), window)));
    let reasons = if reasons.is_empty() { "none".to_owned() } else { reasons.join(", ") };
    let interrupts = rate(interrupts, window);
    let line = format!("a second: {reasons}; call interrupts {interrupts:.0}{most} {}", doubts(health));
    line.trim_end().to_owned()
}

/// An interval, or the sum, as JSON.
fn row(kind: &str, summary: &Summary, observed: &Observed, names: &Names, health: &Health) -> Value {
    let sites = call_sites(summary, names).into_iter().take(MANY);
    let sites: Vec<_> = sites.map(|(site, count)| json!({ "site": site, "flushes": count })).collect();
    let causes = summary.causes();
    let causes: Vec<_> =
        causes.iter().map(|(cause, count)| json!({ "cause": cause.label(), "flushes": count })).collect();
    json!({
        "kind": kind, "seconds": summary.length_ns() as f64 / 1e9, "flushes": flushes(summary),
        "processes": processes(summary), "causes": causes, "cpus": cpus(summary),
        "sent_to_several": summary.ipis_to_many(), "call_sites": sites,
        "floor_ns": observed.total.floor_ns(), "lost": health.lost, "damaged": health.damaged,
    })
}

fn flushes(summary: &Summary) -> Vec<Value> {
    let one = |reason: FlushReason| {
        let count = summary.flushes(reason);
        let per_second = rate(count, summary);
        let sizes = sizes(summary, reason);
        json!({ "reason": reason.label(), "count": count, "per_second": per_second, "sizes": sizes })
    };
    FlushReason::ALL.map(one).to_vec()
}

fn processes(summary: &Summary) -> Vec<Value> {
    let one = |row: &ProcessRow| {
        let per_second = rate(row.total(), summary);
        json!({ "pid": row.pid, "comm": row.comm, "flushes": row.total(), "per_second": per_second })
    };
    summary.processes().iter().take(MANY).map(one).collect()
}

fn cpus(summary: &Summary) -> Vec<Value> {
    let one = |(cpu, row): (usize, &CpuRow)| {
        let CpuRow { ipis_sent_to, interrupts, remote_flushes } = row;
        json!({ "cpu": cpu, "interrupts": interrupts, "sent_to": ipis_sent_to, "remote_flushes": remote_flushes })
    };
    summary.cpus().iter().enumerate().map(one).collect()
}

fn sizes(summary: &Summary, reason: FlushReason) -> Vec<Value> {
    let one = |row: &SizeRow| {
        let pages = match row.size {
            FlushSize::Pages(pages) => json!(pages),
            FlushSize::All => json!("all"),
        };
        json!({
            "pages": pages, "samples": row.samples, "percent": row.percent, "timed": row.timed,
            "mean_ns": row.mean_ns, "min_ns": row.min_ns,
        })
    };
    summary.sizes(reason).rows().iter().map(one).collect()
}

/// As xterm and its kin have it: to the second screen, without a cursor; and back.
const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";

/// A picture that is drawn in place: on the terminal's second screen, so that what stood there before comes back.
///
/// Open as long as it lives.
struct Picture {
    term: Term,
}

impl Picture {
    fn open(term: Term) -> Self {
        let picture = Self { term };
        picture.write(OPEN);
        picture
    }

    /// Draws what `text` makes of the terminal's height, cut at the edges as they are now.
    fn draw(&self, text: impl FnOnce(usize) -> String) {
        let (rows, columns) = self.term.size();
        self.write(&frame(&text(rows.into()), rows.into(), columns.into()));
    }

    fn write(&self, bytes: &str) {
        // A terminal that went away shows nothing, and the recording ends by itself.
        let _ = (&self.term).write_all(bytes.as_bytes());
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        self.write(CLOSE);
    }
}

/// All rows, each put in its place and emptied first: in one piece, so that nothing flickers, scrolls or is left over.
fn frame(text: &str, rows: usize, columns: usize) -> String {
    let lines = text.lines().chain(std::iter::repeat("")).take(rows).enumerate();
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
        let frame = frame("one\ntwö and more\nthree\nfour", 3, 3);
        assert_eq!(frame, "\x1b[1;1H\x1b[2Kone\x1b[2;1H\x1b[2Ktwö\x1b[3;1H\x1b[2Kthr");
        assert_eq!(super::frame("a", 2, 9), "\x1b[1;1H\x1b[2Ka\x1b[2;1H\x1b[2K", "what was in the second row is gone");
    }
}

//! `top` before somebody who presses keys, and before a server that reads; help that fits.

#[path = "command/not_here.rs"]
mod not_here;
#[path = "../../tlbkit/tests/command/seat.rs"]
mod seat;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::num::NonZero;
use std::path::Path;
use std::process::{self, Child, Stdio};
use std::thread;

use not_here::is_not_here;
use pty_process::blocking::Command;
use seat::Seat;

/// The program that flushes: a shell under this name, each of whose forks copies pages.
const LOAD: &str = "flushing-load";

/// While it lives.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn load() -> Load {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join(LOAD);
    fs::copy(fs::canonicalize("/bin/sh").unwrap(), &program).unwrap();
    Load(process::Command::new(program).args(["-c", "while :; do /bin/true; done"]).spawn().unwrap())
}

/// What somebody waits to see, and which keys he presses then.
const STEPS: [(&str, &str); 5] = [
    ("flushing-load ", "f"),
    ("by flushes (c cost, o others, f flushes, i interrupts, n name)  / filter", "/flushing-l\r"),
    ("only: flushing-l (Esc: all)", "\x1b/nosuch\r"),
    ("no such program has flushed", "\x1b"),
    ("flushing-load ", "q"),
];

#[test]
fn keys_choose_the_programs_and_q_leaves_the_sum_alone() {
    let (seat, pts) = Seat::new([24, 100].map(|length| NonZero::new(length).unwrap()), 1000);
    let _load = load();
    let command = Command::new(env!("CARGO_BIN_EXE_tlbscope"));
    let mut watching = command.args(["top", "--interval", "0.2"]).spawn(pts).unwrap();
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut steps = STEPS.iter();
            let mut step = steps.next();
            seat.terminal.look(|bytes| {
                let mut seen = seat.seen.lock().unwrap();
                seen.process(bytes);
                let screen = seen.screen();
                if let Some((_, keys)) = step.filter(|(words, _)| screen.contents().contains(words)) {
                    assert!(screen.alternate_screen() && screen.hide_cursor(), "{}", screen.contents());
                    assert!((0..24).all(|row| !screen.row_wrapped(row)), "{}", screen.contents());
                    seat.terminal.press(keys);
                    step = steps.next();
                }
            });
            step.is_none()
        });
        let status = watching.wait().unwrap();
        seat.terminal.mark_end();
        let are_all_done = looking.join().unwrap();
        let text = seat.text();
        if is_not_here(&text) {
            return println!("skipped: {text}");
        }
        assert!(status.success() && are_all_done, "{status}: {text}");
        let seen = seat.seen.lock().unwrap();
        assert!(!seen.screen().alternate_screen() && !seen.screen().hide_cursor(), "the screen is given back");
        assert!(text.contains(" s. Shootdowns took ") && !text.contains("q quits"), "{text}");
    });
}

/// Loopback alone, and nothing but names of programs and sums.
#[test]
fn sums_are_served_to_prometheus_and_written_for_node_exporter() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sums.prom");
    let _load = load();
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_tlbscope"));
    command.args(["top", "--interval", "0.1", "--prometheus", "0", "--textfile"]).arg(&file);
    let mut serving = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(serving.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let place = said.trim_end().strip_prefix("tlbscope: http://").and_then(|url| url.strip_suffix("/metrics"));
    if let Some(place) = place {
        assert!(place.starts_with("127.0.0.1:"), "{said}");
        let asked = || {
            let mut client = TcpStream::connect(place).unwrap();
            write!(client, "GET /metrics HTTP/1.1\r\nHost: {place}\r\n\r\n").unwrap();
            let mut page = String::new();
            client.read_to_string(&mut page).unwrap();
            page
        };
        let wanted = format!("tlbscope_flushes_total{{program=\"{LOAD}\"}} ");
        // Each answer is from after some interval; one of the first has the load in it.
        let page = std::iter::repeat_with(asked).find(|page| page.contains(&wanted)).unwrap();
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && !page.contains("/bin/true"), "{page}");
        process::Command::new("kill").args(["-TERM", &serving.id().to_string()]).status().unwrap();
    } else {
        assert!(is_not_here(&said), "{said}");
    }
    let status = serving.wait().unwrap();
    if place.is_none() {
        return println!("skipped: {said}");
    }
    assert!(status.success(), "{status}");
    assert!(fs::read_to_string(&file).unwrap().contains("# TYPE tlbscope_flushes_total counter\n"));
}

#[test]
fn help_fits_a_terminal_and_keeps_its_examples_whole() {
    for verb in ["doctor", "top", "record", "explain", "replay", "try", "calibrate"] {
        seat::assert_help_fits(env!("CARGO_BIN_EXE_tlbscope"), "tlbscope", verb);
    }
}

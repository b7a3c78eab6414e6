//! `observe` on a real terminal: a picture in place that fits, follows the window, and leaves nothing behind.

#[path = "command/not_here.rs"]
mod not_here;

use std::io::{ErrorKind, Read, Write};
use std::num::NonZero;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use not_here::is_not_here;
use pty_process::Size;
use pty_process::blocking::{Command, Pty, open};
use vt100::Parser;

/// How long a picture may take to come, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal with somebody before it.
struct Seat {
    pty: Pty,
    seen: Mutex<Parser>,
}

impl Seat {
    fn resize(&self, [rows, columns]: [NonZero<u16>; 2]) {
        self.pty.resize(Size::new(rows.get(), columns.get())).unwrap();
        self.seen.lock().unwrap().screen_mut().set_size(rows, columns);
    }

    /// Looks on until the program has gone.
    fn look(&self) {
        let mut bytes = [0; 4096];
        loop {
            match (&self.pty).read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => self.seen.lock().unwrap().process(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // How the other end's close shows.
                Err(_) => return,
            }
        }
    }

    fn text(&self) -> String {
        self.seen.lock().unwrap().screen().contents()
    }

    /// Waits for a picture with these words; false if none comes.
    fn waits_for(&self, words: &str) -> bool {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
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
    let (pty, pts) = open().unwrap();
    let [small, large] = [[24, 80], [50, 200]].map(|size| size.map(|length| NonZero::new(length).unwrap()));
    let seat = Seat { pty, seen: Mutex::new(Parser::new(small[0], small[1], 1000)) };
    seat.resize(small);
    let command = Command::new(env!("CARGO_BIN_EXE_tlbkit"));
    let mut observing = command.args(["observe", "--all-cpus", "--interval", "0.2"]).spawn(pts).unwrap();
    thread::scope(|scope| {
        let looking = scope.spawn(|| seat.look());
        if !seat.waits_for("| task switch ") {
            let _ = observing.kill();
            looking.join().unwrap();
            assert!(is_not_here(&seat.text()), "{}", seat.text());
            return println!("skipped: {}", seat.text());
        }
        seat.assert_in_place();
        seat.resize(large);
        assert!(seat.waits_for("| CPU "), "with more rows there is room for every table: {}", seat.text());
        seat.assert_in_place();
        (&seat.pty).write_all(b"\x03").unwrap();
        let status = observing.wait().unwrap();
        looking.join().unwrap();
        assert!(status.success(), "{status}");
        let seen = seat.seen.lock().unwrap();
        assert!(!seen.screen().alternate_screen() && !seen.screen().hide_cursor(), "the screen is given back");
        let text = seen.screen().contents();
        assert!(text.contains(" events, ") && !text.contains("Ctrl-C ends"), "{text}");
    });
}

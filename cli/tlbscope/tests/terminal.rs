//! On a real terminal: a picture of `top` that fits, follows the window, and leaves nothing behind; help that fits.

#[path = "command/not_here.rs"]
mod not_here;
#[path = "../../tlbkit/tests/command/seat.rs"]
mod seat;

use std::num::NonZero;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use not_here::is_not_here;
use pty_process::blocking::Command;
use seat::Seat;

/// How long a picture may take to come, however busy the machine: it only ends a hang.
const PATIENCE: Duration = Duration::from_secs(300);
/// Waits for a picture with these words; false if `program` ends, or none comes.
fn waits_for(seat: &Seat, words: &str, program: &mut Child) -> bool {
    let started = Instant::now();
    while started.elapsed() < PATIENCE && program.try_wait().unwrap().is_none() {
        if seat.text().contains(words) {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

/// The picture is on the second screen, has no cursor, and no line of it goes on in the next row.
fn assert_in_place(seat: &Seat) {
    let seen = seat.seen.lock().unwrap();
    let screen = seen.screen();
    assert!(screen.alternate_screen() && screen.hide_cursor(), "{}", screen.contents());
    let (rows, _) = screen.size();
    assert!((0..rows.get()).all(|row| !screen.row_wrapped(row)), "{}", screen.contents());
    assert_eq!(screen.contents().matches("| reason ").count(), 1, "{}", screen.contents());
}

#[test]
fn a_picture_follows_the_window_and_ctrl_c_leaves_the_summary_alone() {
    let [small, large] = [[24, 80], [50, 200]].map(|size| size.map(|length| NonZero::new(length).unwrap()));
    let (seat, pts) = Seat::new(small, 1000);
    let command = Command::new(env!("CARGO_BIN_EXE_tlbscope"));
    let mut watching = command.args(["top", "--all-cpus", "--interval", "0.2"]).spawn(pts).unwrap();
    thread::scope(|scope| {
        let looking = scope.spawn(|| seat.look());
        if !waits_for(&seat, "| task switch ", &mut watching) {
            let _ = watching.kill();
            watching.wait().unwrap();
            seat.terminal.mark_end();
            looking.join().unwrap();
            assert!(is_not_here(&seat.text()), "{}", seat.text());
            return println!("skipped: {}", seat.text());
        }
        assert_in_place(&seat);
        seat.resize(large);
        assert!(
            waits_for(&seat, "| CPU ", &mut watching),
            "with more rows there is room for every table: {}",
            seat.text()
        );
        assert_in_place(&seat);
        seat.terminal.press_ctrl_c();
        let status = watching.wait().unwrap();
        seat.terminal.mark_end();
        looking.join().unwrap();
        assert!(status.success(), "{status}");
        let seen = seat.seen.lock().unwrap();
        assert!(!seen.screen().alternate_screen() && !seen.screen().hide_cursor(), "the screen is given back");
        let text = seen.screen().contents();
        assert!(text.contains(" events, ") && !text.contains("Ctrl-C ends"), "{text}");
    });
}

#[test]
fn help_fits_a_terminal_and_keeps_its_examples_whole() {
    for verb in ["doctor", "top", "record", "explain", "replay", "try", "calibrate"] {
        seat::assert_help_fits(env!("CARGO_BIN_EXE_tlbscope"), "tlbscope", verb);
    }
}

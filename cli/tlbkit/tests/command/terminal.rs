//! A terminal for a program under test, that loses nothing of what the program printed.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;

use pty_process::Size;
use pty_process::blocking::{Pts, Pty, open};

/// What is written to a terminal after its program has ended: no program prints it.
const END: u8 = 0;

/// The side of a terminal where somebody sits.
///
/// The program's side of it is held open as well, and the end of what the program printed is a mark. For Linux may tell
/// a reader that the program's side is closed while its last lines are still on their way:
///
/// ```text
/// reader                            program
/// finds nothing
///                                   writes its last lines
///                                   closes its side
/// finds the other side closed
/// ```
pub(crate) struct Terminal {
    pty: Pty,
    held: File,
}

impl Terminal {
    /// A terminal of a size, and the side of it that a program gets.
    pub(crate) fn open(size: Size) -> (Self, Pts) {
        let (pty, pts) = open().unwrap();
        pty.resize(size).unwrap();
        let held = pts.as_fd().try_clone_to_owned().unwrap().into();
        (Self { pty, held }, pts)
    }

    /// Gives the bytes that are printed to `see`, until [`mark_end`](Self::mark_end).
    pub(crate) fn look(&self, mut see: impl FnMut(&[u8])) {
        let mut bytes = [0; 4096];
        loop {
            let read = match (&self.pty).read(&mut bytes) {
                Ok(count) => &bytes[..count],
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => panic!("the terminal is held open: {error}"),
            };
            let end = read.iter().position(|&byte| byte == END);
            see(&read[..end.unwrap_or(read.len())]);
            if end.is_some() {
                return;
            }
        }
    }

    /// Says that the program has ended: `look` returns after the last of what it printed.
    pub(crate) fn mark_end(&self) {
        (&self.held).write_all(&[END]).unwrap();
    }

    #[allow(dead_code, reason = "not every program of tests is stopped")]
    pub(crate) fn press_ctrl_c(&self) {
        self.press("\x03");
    }

    #[allow(dead_code, reason = "not every program of tests has keys")]
    pub(crate) fn press(&self, keys: &str) {
        (&self.pty).write_all(keys.as_bytes()).unwrap();
    }

    #[allow(dead_code, reason = "not every program of tests has a window that changes")]
    pub(crate) fn resize(&self, size: Size) {
        self.pty.resize(size).unwrap();
    }
}

//! A picture that is drawn in place: on the terminal's second screen, so that what stood there before comes back.

use std::fmt::Write as _;
use std::io::Write as _;

use console::Term;

/// As xterm and its kin have it: to the second screen, without a cursor; and back.
const OPEN: &str = "\x1b[?1049h\x1b[?25l";
const CLOSE: &str = "\x1b[?25h\x1b[?1049l";

/// Open as long as it lives.
pub(super) struct Picture {
    term: Term,
}

impl Picture {
    pub(super) fn open(term: Term) -> Self {
        let picture = Self { term };
        picture.write(OPEN);
        picture
    }

    /// Draws what `text` makes of the terminal's height, cut at the edges as they are now.
    pub(super) fn draw(&self, text: impl FnOnce(usize) -> String) {
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

//! What can be wrong with a file: what ends the reading, and what only leaves holes.

use std::fmt;

/// Why a file cannot be read, or not any further: one line each.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system's answer.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The system's answer, or that of zstd where a packed file is cut short, in the middle of a file.
    #[error("{place}: {answer}")]
    Read {
        /// How far reading came.
        place: FilePosition,
        /// The answer.
        answer: std::io::Error,
    },
    /// None of the known forms.
    #[error("byte 0: \"{found}\" begins no trace: want perf.data, perf script text or this program's own form")]
    NotATrace {
        /// How it begins, in signs that every terminal shows.
        found: String,
    },
    /// Something lies beyond the end of the file.
    #[error("byte {offset}: {what} should end at byte {end}, but the file ends at byte {file_bytes}: it was cut short")]
    Cut {
        /// Where that something is named.
        offset: u64,
        /// What lies beyond.
        what: &'static str,
        /// Where it should end.
        end: u64,
        /// Where the file ends.
        file_bytes: u64,
    },
    /// A value that no good file has.
    #[error("byte {offset}: {what} is {value}, limit {limit}")]
    Value {
        /// Where it stands.
        offset: u64,
        /// What it means.
        what: &'static str,
        /// What it is.
        value: u64,
        /// What it may be at most, or at least where it is too small.
        limit: u64,
    },
    /// The file lacks what is needed to understand it.
    #[error("byte {offset}: {what}")]
    Missing {
        /// Where it should stand.
        offset: u64,
        /// What is lacking.
        what: &'static str,
    },
    /// A version that this program does not know.
    #[error("byte {offset}: version {found}, but only version {known} is known")]
    Version {
        /// Where it stands.
        offset: u64,
        /// The version of the file.
        found: u16,
        /// The version that this program reads.
        known: u16,
    },
}

/// Bytes of something unreadable that are shown, and letters of text.
const BYTES_SHOWN: usize = 8;
const LETTERS_SHOWN: usize = 40;

impl Error {
    /// What begins with `bytes` is no trace.
    pub(crate) fn not_a_trace(bytes: &[u8]) -> Self {
        let is_text = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        let most = if is_text(&bytes[..bytes.len().min(LETTERS_SHOWN)]) { LETTERS_SHOWN } else { BYTES_SHOWN };
        let more = if bytes.len() > most { "..." } else { "" };
        Self::NotATrace { found: format!("{}{more}", bytes[..bytes.len().min(most)].escape_ascii()) }
    }
}

/// A position in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilePosition {
    /// So many bytes from the start.
    Byte(u64),
    /// This line, from 1.
    Line(u64),
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte(n) => write!(f, "byte {n}"),
            Self::Line(n) => write!(f, "line {n}"),
        }
    }
}

/// A part of a file that could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where the file is damaged.
    pub place: FilePosition,
    /// What is wrong, value and limit included.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// Damages that are kept word for word; the rest is counted.
const MAX_KEPT: usize = 16;

/// How far a trace is from complete. What is not zero here belongs beside every result.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Health {
    /// Events handed out.
    pub events: u64,
    /// Events that the recorder lost, by its own count.
    pub lost: u64,
    /// Events handed out after a younger one.
    pub late: u64,
    /// Events of kinds that this library does not use.
    pub unused: u64,
    /// Parts that could not be used.
    pub damaged: u64,
    /// The first of them.
    pub damages: Vec<Damage>,
    pub(crate) newest_ns: u64,
}

impl Health {
    /// Whether everything that was recorded was read, in order.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.lost == 0 && self.late == 0 && self.damaged == 0
    }

    pub(crate) fn damage(&mut self, place: FilePosition, what: impl Into<String>) {
        self.damaged += 1;
        if self.damages.len() < MAX_KEPT {
            self.damages.push(Damage { place, what: what.into() });
        }
    }

    pub(crate) fn saw(&mut self, event: &crate::Event) {
        self.events += 1;
        self.late += u64::from(event.time_ns < self.newest_ns);
        self.newest_ns = self.newest_ns.max(event.time_ns);
        if let crate::EventKind::Lost { count } = event.kind {
            self.lost = self.lost.saturating_add(count);
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (events, parts) = (counted(self.events, "event"), counted(self.damaged, "part"));
        write!(f, "{events}, {} lost, {} out of order, {parts} unusable", self.lost, self.late)?;
        self.damages.first().map_or(Ok(()), |first| write!(f, " (first: {first})"))
    }
}

//! What can be wrong with a trace: errors, which end the reading, and damage, after which it goes on.

use std::fmt;

/// Why a trace cannot be read, or cannot be read any further. Each message is one line.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum Error {
    /// An error of the operating system that belongs to no place in the file, as when it is opened.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// An error in the middle of the file: of the operating system, or of zstd if a packed file is cut short.
    #[error("{place}: {answer}")]
    Read {
        /// Up to where the file was read.
        place: FilePosition,
        /// The error that was met there.
        answer: std::io::Error,
    },
    /// The file has none of the known forms.
    #[error("byte 0: \"{found}\" begins no trace: want perf.data, perf script text or this program's own form")]
    NotATrace {
        /// The first bytes of the file, with escapes for those that a terminal would not show.
        found: String,
    },
    /// The file names a part of itself that lies beyond its end.
    #[error("byte {offset}: {what} should end at byte {end}, but the file ends at byte {file_bytes}: it was cut short")]
    Cut {
        /// Where in the file the part is named, in bytes from the start.
        offset: u64,
        /// Which part it is.
        what: &'static str,
        /// Where the part should end, in bytes from the start of the file.
        end: u64,
        /// Length of the file in bytes.
        file_bytes: u64,
    },
    /// The file has a value that no good file has.
    #[error("byte {offset}: {what} is {value}, limit {limit}")]
    Value {
        /// Where the value stands, in bytes from the start of the file.
        offset: u64,
        /// What the value means.
        what: &'static str,
        /// The value.
        value: u64,
        /// The largest value that is allowed, or the smallest if the value is too small.
        limit: u64,
    },
    /// The file lacks what is needed to understand it.
    #[error("byte {offset}: {what}")]
    Missing {
        /// Where it should stand, in bytes from the start of the file.
        offset: u64,
        /// What the file lacks, as a sentence for the user.
        what: &'static str,
    },
    /// The file has a version of the compact form that this library does not know.
    #[error("byte {offset}: version {found}, but only version {known} is known")]
    Version {
        /// Where the version stands, in bytes from the start of the file.
        offset: u64,
        /// The version of the file.
        found: u16,
        /// The version that this library reads.
        known: u16,
    },
}

/// How many bytes of an unreadable file, or letters of a text, an error shows.
const BYTES_SHOWN: usize = 8;
const LETTERS_SHOWN: usize = 40;

impl Error {
    /// The error for a file that begins with `bytes`.
    pub(crate) fn not_a_trace(bytes: &[u8]) -> Self {
        let is_text = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        let most = if is_text(&bytes[..bytes.len().min(LETTERS_SHOWN)]) { LETTERS_SHOWN } else { BYTES_SHOWN };
        let more = if bytes.len() > most { "..." } else { "" };
        Self::NotATrace { found: format!("{}{more}", bytes[..bytes.len().min(most)].escape_ascii()) }
    }
}

/// A position in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilePosition {
    /// An offset from the start, in bytes.
    Byte(u64),
    /// The number of a line of text; the first line is 1.
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

/// A part of a trace that could not be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where the trace is damaged.
    pub place: FilePosition,
    /// What is wrong there, with the value that was found and the one that was expected.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// The most damages that are kept with their words. Those beyond are only counted.
const MAX_KEPT: usize = 16;

/// How complete a trace is. Every result should be shown with the counts that are not zero here.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Health {
    /// Events that were handed out.
    pub events: u64,
    /// Events that the recorder lost, by its own count.
    pub lost: u64,
    /// Events that were handed out after one with a later time.
    pub late: u64,
    /// Events of kinds that this library does not use.
    pub unused: u64,
    /// Damaged parts of the trace, which could not be used.
    pub damaged: u64,
    /// The first of these damages.
    pub damages: Vec<Damage>,
    /// The latest time of an event so far, in nanoseconds.
    pub(crate) newest_ns: u64,
}

impl Health {
    /// Whether no event was lost, none came out of order, and no part was damaged.
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

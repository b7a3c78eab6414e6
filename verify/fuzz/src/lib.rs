//! What the targets share: programs out of bytes, what a message must look like, and how a trace is read to its end.

pub mod program;

use tlbkit_trace::{Error, Source, Summary};

/// Bad input is answered by one line. An input that has line breaks may show them where it is quoted.
///
/// # Panics
/// If the answer to a text of one line has more.
pub fn must_be_one_line(input: &str, message: &str) {
    let is_one_line = !message.is_empty() && !message.contains('\n');
    assert!(is_one_line || input.contains(char::is_control), "an answer of more than one line: {message:?}");
}

/// Reads a trace to its end, or to where it cannot be understood, and counts what is in it.
pub fn read_trace(source: Result<impl Source, Error>) {
    let Ok(mut source) = source else { return };
    let mut summary = Summary::default();
    while let Ok(Some(event)) = source.next_event() {
        summary.add(&event, source.names());
    }
    let _shown = (summary.to_string(), source.health().to_string());
}

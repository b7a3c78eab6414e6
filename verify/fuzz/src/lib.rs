//! What the targets share: what a message must look like, and how a trace is read to its end.

use tlbkit_replay::Recording;
use tlbkit_trace::{Blame, Error, Source, Summary};

/// Bad input is answered by one line. An input that has line breaks may show them where it is quoted.
///
/// # Panics
/// If the answer to a text of one line has more.
pub fn must_be_one_line(input: &str, message: &str) {
    let is_one_line = !message.is_empty() && !message.contains('\n');
    assert!(is_one_line || input.contains(char::is_control), "an answer of more than one line: {message:?}");
}

/// Reads the trace that `open` opens to its end, or to where it cannot be understood: counts what is in it, says who
/// flushes why, and deduces what a kernel had to do.
pub fn read_trace<S: Source + 'static>(open: impl Fn() -> Result<S, Error>) {
    let Ok(mut source) = open() else { return };
    let (mut summary, mut blame) = (Summary::default(), Blame::default());
    while let Ok(Some(event)) = source.next_event() {
        summary.add(&event);
        blame.add(&event, source.names());
    }
    let _shown = (summary.to_string(), source.health().to_string(), blame.rows(), blame.cpu_ns());
    let boxed = || open().map(|source| Box::new(source) as Box<dyn Source>);
    let _deduced = Recording::read(boxed, &|_, _, _| true);
}

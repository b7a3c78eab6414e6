//! What the protocol tells a kernel's tracepoints.

#[cfg(feature = "events")]
use tlbkit::Event;

/// What happened; the comment says what `value` is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A switch kept what its tag held.
    SwitchKept = 0,
    /// A switch flushed what its tag held.
    SwitchFlushed = 1,
    /// A flush begins: pages, or 4,294,967,295 for everything.
    FlushBegin = 2,
    /// Its half on this CPU is done.
    FlushLocalDone = 3,
    /// It was issued, and is not over.
    FlushIssued = 4,
    /// It is over on every CPU.
    FlushEnd = 5,
    /// A request is carried out: the CPU that asked.
    AnswerBegin = 6,
    /// It has been carried out: the CPU that asked.
    AnswerEnd = 7,
    /// A request found nothing left to do.
    AlreadyCurrent = 8,
    /// A request was for a space that is not loaded here.
    WrongSpace = 9,
    /// A request made this CPU leave a space that it held lazily: the space's address.
    LazyLeft = 10,
}

/// The number and the value for C; nothing for what has a function of its own, for each turn of a wait, and for the
/// CPUs that a flush has looked at, which only a simulator asks for.
#[cfg(feature = "events")]
pub(crate) fn told(event: Event) -> Option<(EventKind, u64)> {
    Some(match event {
        Event::SwitchKept => (EventKind::SwitchKept, 0),
        Event::SwitchFlushed => (EventKind::SwitchFlushed, 0),
        Event::FlushBegin(pages) => (EventKind::FlushBegin, u64::from(pages)),
        Event::FlushLocalDone => (EventKind::FlushLocalDone, 0),
        Event::FlushIssued => (EventKind::FlushIssued, 0),
        Event::FlushEnd => (EventKind::FlushEnd, 0),
        Event::AnswerBegin(cpu) => (EventKind::AnswerBegin, u64::from(cpu.0)),
        Event::AnswerEnd(cpu) => (EventKind::AnswerEnd, u64::from(cpu.0)),
        Event::AlreadyCurrent => (EventKind::AlreadyCurrent, 0),
        Event::WrongSpace => (EventKind::WrongSpace, 0),
        Event::LazyLeft(space) => (EventKind::LazyLeft, space.0),
        _ => return None,
    })
}

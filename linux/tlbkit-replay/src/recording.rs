//! A trace that has been read: what it asks of a kernel, what the kernel itself counted, and how complete it is.

use crate::deduce::{Deduced, Deducer, Paging, People};
use std::rc::Rc;
use tlbkit_trace::summary::MOST_CPUS;
use tlbkit_trace::{Error, Event, Health, Names, Source, Summary};

/// Everything that a replay needs of a trace.
pub struct Recording {
    /// What it asks of a kernel.
    pub deduced: Deduced,
    /// What the recording kernel counted.
    pub summary: Summary,
    /// Why reading ended before the end of the file, if it did: all that came before is here.
    pub cut: Option<Error>,
    /// At its end; it knows the names.
    source: Box<dyn Source>,
}

impl Recording {
    /// The texts that the operations name.
    #[must_use]
    pub fn names(&self) -> &Names {
        self.source.names()
    }

    /// How complete the trace is.
    #[must_use]
    pub fn health(&self) -> &Health {
        self.source.health()
    }
}

/// Reads the trace that `open` opens, twice: the first time only to learn who is who.
///
/// # Errors
/// If it cannot be read at all.
pub fn read(open: impl Fn() -> Result<Box<dyn Source>, Error>, paging: Paging) -> Result<Recording, Error> {
    read_about(open, paging, &|_, _, _| true)
}

/// The same, where the reader asks about some threads alone: `is_asked` gets the process, the name of its main thread
/// and the thread. All of the trace is replayed, and what is theirs is told apart.
///
/// # Errors
/// As [`read`].
pub fn read_about(
    open: impl Fn() -> Result<Box<dyn Source>, Error>,
    paging: Paging,
    is_asked: &dyn Fn(i32, &str, i32) -> bool,
) -> Result<Recording, Error> {
    let people = Rc::new(meet(&open, is_asked)?);
    read_again(open()?, Deducer::new(people, paging), None).map(|(recording, _)| recording)
}

/// The same with the pages of the trace, and in the same two readings what the trace asks of a kernel with huge pages.
///
/// # Errors
/// As [`read`].
pub fn read_both(
    open: impl Fn() -> Result<Box<dyn Source>, Error>,
    is_asked: &dyn Fn(i32, &str, i32) -> bool,
) -> Result<(Recording, Deduced), Error> {
    let people = Rc::new(meet(&open, is_asked)?);
    let huge = Deducer::new(Rc::clone(&people), Paging::Huge);
    let (recording, huge) = read_again(open()?, Deducer::new(people, Paging::AsRecorded), Some(huge))?;
    Ok((recording, huge.unwrap_or_default()))
}

/// The first reading.
fn meet(
    open: impl Fn() -> Result<Box<dyn Source>, Error>,
    is_asked: &dyn Fn(i32, &str, i32) -> bool,
) -> Result<People, Error> {
    let mut people = People::default();
    let mut source = open()?;
    // What ends this reading ends the next one at the same place.
    let _ = each(&mut *source, |event, _| people.meet(event));
    people.ask(|pid, comm, tid| is_asked(pid, source.names().text(comm), tid));
    Ok(people)
}

/// The second one.
fn read_again(
    mut source: Box<dyn Source>,
    mut deducer: Deducer,
    mut other: Option<Deducer>,
) -> Result<(Recording, Option<Deduced>), Error> {
    let mut summary = Summary::default();
    let cut = each(&mut *source, |event, names| {
        deducer.event(event);
        other.iter_mut().for_each(|other| other.event(event));
        summary.add(event, names);
    });
    match cut {
        Some(error) if source.health().events == 0 => Err(error),
        cut => {
            let recording = Recording { deduced: deducer.finish()?, summary, cut, source };
            Ok((recording, other.map(Deducer::finish).transpose()?))
        }
    }
}

/// Hands out every event; what ended them before the end of the file, if anything did.
fn each(source: &mut dyn Source, mut take: impl FnMut(&Event, &Names)) -> Option<Error> {
    loop {
        match source.next_event() {
            Ok(Some(event)) if event.cpu < MOST_CPUS => take(&event, source.names()),
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
}

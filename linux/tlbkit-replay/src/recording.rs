//! Reads a trace: what it asks of a kernel, what the recording kernel counted itself, and how complete the trace is.
//!
//! A trace may be longer than memory, so nothing of it is kept: it is read once to learn who its threads are, once to
//! deduce how many spaces there are and which of them CPUs held when it began, and once more for each call of
//! [`Recording::ops`].

use crate::deduce::{Deduced, Deducer, People};
use crate::op::{Op, OpKind};
use std::rc::Rc;
use tlbkit_trace::summary::MOST_CPUS;
use tlbkit_trace::{Error, Event, Health, Names, Source, Summary};

/// A function that opens the same trace each time.
type Open<'o> = dyn Fn() -> Result<Box<dyn Source>, Error> + 'o;

/// Everything that a replay needs of a trace.
pub struct Recording<'o> {
    /// What the trace asks of a kernel, without the operations.
    pub deduced: Deduced,
    /// What the recording kernel itself recorded, summed up.
    pub summary: Summary,
    /// The error that ended the reading before the end of the file, if there was one. Everything before it was read.
    pub cut: Option<Error>,
    /// The source, which was read to its end. It has the names and the health.
    source: Box<dyn Source>,
    people: Rc<People>,
    open: Box<Open<'o>>,
}

impl<'o> Recording<'o> {
    /// Reads the trace that `open` opens, for a caller that asks about some threads only. `is_asked` gets the number of
    /// a process, the name of its main thread and the number of a thread. The whole trace is replayed, and the counts
    /// of the threads asked about are kept apart.
    ///
    /// # Errors
    /// If the trace cannot be opened. An error later in the trace is no error here: see [`Recording::cut`].
    pub fn read(
        open: impl Fn() -> Result<Box<dyn Source>, Error> + 'o,
        is_asked: &dyn Fn(i32, &str, i32) -> bool,
    ) -> Result<Self, Error> {
        let mut source = open()?;
        let (mut people, mut summary) = (People::default(), Summary::default());
        let cut = for_each_event(&mut *source, |event, _| {
            people.meet(event);
            summary.add(event);
        });
        let cut = match cut {
            Some(error) if source.health().events == 0 => return Err(error),
            cut => cut,
        };
        people.ask(|pid, comm, tid| is_asked(pid, source.names().text(comm), tid));
        let (people, deduced) = (Rc::new(people), Deduced::default());
        let mut recording = Self { deduced, summary, cut, source, people, open: Box::new(open) };
        recording.deduced = recording.deduce(|_| ())?;
        Ok(recording)
    }

    /// Hands every operation of the trace to `take`, in order. Reads the trace again.
    ///
    /// # Errors
    /// If the trace cannot be opened.
    pub fn ops(&self, mut take: impl FnMut(&Op)) -> Result<(), Error> {
        let mut trimmed = self.deduced.trimmed.iter().copied().peekable();
        let mut number = 0;
        self.deduce(|op| {
            if trimmed.next_if_eq(&number).is_some()
                && let OpKind::Revoke { taken, .. } = &mut op.kind
            {
                taken.trims = true;
            }
            number += 1;
            take(op);
        })
        .map(drop)
    }

    fn deduce(&self, mut take: impl FnMut(&mut Op)) -> Result<Deduced, Error> {
        let mut deducer = Deducer::new(Rc::clone(&self.people));
        for_each_event(&mut *(self.open)()?, |event, _| {
            deducer.event(event);
            deducer.take_ops().for_each(|mut op| take(&mut op));
        });
        Ok(deducer.finish())
    }

    /// The texts to which operations refer by number.
    #[must_use]
    pub fn names(&self) -> &Names {
        self.source.names()
    }

    /// What was lost or unusable of the trace.
    #[must_use]
    pub fn health(&self) -> &Health {
        self.source.health()
    }
}

/// Hands every event to `take`. Returns the error that ended the events before the end of the file, if there was one.
fn for_each_event(source: &mut dyn Source, mut take: impl FnMut(&Event, &Names)) -> Option<Error> {
    loop {
        match source.next_event() {
            Ok(Some(event)) if event.cpu < MOST_CPUS => take(&event, source.names()),
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
}

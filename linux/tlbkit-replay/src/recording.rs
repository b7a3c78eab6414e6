//! A trace that has been read: what it asks of a kernel, what the kernel itself counted, and how complete it is.

use crate::deduce::{Deduced, Deducer, Paging, People};
use crate::stored::{KeepingEvents, KeptEvents};
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

/// Reads the trace that `open` opens, once, and keeps its events: what they ask of a kernel is deduced when it is known
/// who is who.
///
/// # Errors
/// If it cannot be read at all, or not put aside.
pub fn read(open: impl FnOnce() -> Result<Box<dyn Source>, Error>, paging: Paging) -> Result<Recording, Error> {
    read_about(open, paging, &|_, _, _| true)
}

/// The same, where the reader asks about some threads alone: `is_asked` gets the process, the name of its main thread
/// and the thread. All of the trace is replayed, and what is theirs is told apart.
///
/// # Errors
/// As [`read`].
pub fn read_about(
    open: impl FnOnce() -> Result<Box<dyn Source>, Error>,
    paging: Paging,
    is_asked: &dyn Fn(i32, &str, i32) -> bool,
) -> Result<Recording, Error> {
    let (read, events) = Read::all(open()?, is_asked)?;
    let [deduced] = read.deduce(&events, [paging])?;
    Ok(read.recording(deduced))
}

/// The same with the pages of the trace, and in the same reading what the trace asks of a kernel with huge pages.
///
/// # Errors
/// As [`read`].
pub fn read_both(
    open: impl FnOnce() -> Result<Box<dyn Source>, Error>,
    is_asked: &dyn Fn(i32, &str, i32) -> bool,
) -> Result<(Recording, Deduced), Error> {
    let (read, events) = Read::all(open()?, is_asked)?;
    let [deduced, huge] = read.deduce(&events, [Paging::AsRecorded, Paging::Huge])?;
    Ok((read.recording(deduced), huge))
}

/// What was learnt of the trace while it was read.
struct Read {
    people: Rc<People>,
    summary: Summary,
    cut: Option<Error>,
    source: Box<dyn Source>,
}

impl Read {
    /// Reads all of it, and keeps the events.
    fn all(
        mut source: Box<dyn Source>,
        is_asked: &dyn Fn(i32, &str, i32) -> bool,
    ) -> Result<(Self, KeptEvents), Error> {
        let (mut people, mut summary) = (People::default(), Summary::default());
        let mut keeping = KeepingEvents::default();
        let cut = each(&mut *source, |event, names| {
            people.meet(event);
            summary.add(event, names);
            keeping.push(event);
        });
        match cut {
            Some(error) if source.health().events == 0 => Err(error),
            cut => {
                people.ask(|pid, comm, tid| is_asked(pid, source.names().text(comm), tid));
                Ok((Self { people: Rc::new(people), summary, cut, source }, keeping.finish()?))
            }
        }
    }

    /// What the events ask of a kernel, with each of these pages.
    fn deduce<const N: usize>(&self, events: &KeptEvents, pagings: [Paging; N]) -> Result<[Deduced; N], Error> {
        let mut deducers = pagings.map(|paging| Deducer::new(Rc::clone(&self.people), paging));
        events.each(|event| deducers.iter_mut().for_each(|deducer| deducer.event(event)))?;
        let mut deduced = Vec::with_capacity(N);
        for deducer in deducers {
            deduced.push(deducer.finish()?);
        }
        Ok(deduced.try_into().expect("one of each"))
    }

    fn recording(self, deduced: Deduced) -> Recording {
        let Self { summary, cut, source, .. } = self;
        Recording { deduced, summary, cut, source }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use std::path::Path;

    fn ops(deduced: &Deduced) -> Vec<Op> {
        let mut ops = Vec::new();
        deduced.ops.each(|op| ops.push(*op)).expect("they were put aside a moment ago");
        ops
    }

    #[test]
    fn what_was_kept_is_as_good_as_the_trace() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tlbkit-trace/tests/data/build-zlib.script.txt.zst");
        let open = || tlbkit_trace::open(&path);
        let mut people = People::default();
        each(&mut *open().expect("the shared trace"), |event, _| people.meet(event));
        people.ask(|pid, _, _| pid % 2 == 0);
        let people = Rc::new(people);
        let mut deducers = [Paging::AsRecorded, Paging::Huge].map(|paging| Deducer::new(Rc::clone(&people), paging));
        each(&mut *open().expect("the same"), |event, _| deducers.iter_mut().for_each(|deducer| deducer.event(event)));
        let of_trace = deducers.map(|deducer| deducer.finish().expect("room for a temporary file"));
        let (recording, huge) = read_both(open, &|pid, _, _| pid % 2 == 0).expect("the same again");
        for (kept, of_trace) in [recording.deduced, huge].iter().zip(&of_trace) {
            assert!(ops(kept) == ops(of_trace) && kept.ops.count() > 100_000);
            assert_eq!((&kept.residents, &kept.processes), (&of_trace.residents, &of_trace.processes));
            assert_eq!((&kept.most_pages, &kept.told_sizes), (&of_trace.most_pages, &of_trace.told_sizes));
            assert_eq!((&kept.memory, kept.spaces), (&of_trace.memory, of_trace.spaces));
        }
    }
}

//! Reads a trace: what it asks of a kernel, what the recording kernel counted itself, and how complete the trace is.

use crate::deduce::{Deduced, Deducer, Paging, People};
use crate::stored::{KeepingEvents, KeptEvents};
use std::rc::Rc;
use tlbkit_trace::summary::MOST_CPUS;
use tlbkit_trace::{Error, Event, Health, Names, Source, Summary};

/// Everything that a replay needs of a trace.
pub struct Recording {
    /// What the trace asks of a kernel.
    pub deduced: Deduced,
    /// What the recording kernel itself recorded, summed up.
    pub summary: Summary,
    /// The error that ended the reading before the end of the file, if there was one. Everything before it was read.
    pub cut: Option<Error>,
    /// The source, which was read to its end. It has the names and the health.
    source: Box<dyn Source>,
}

impl Recording {
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

/// Reads the trace that `open` opens, and deduces what it asks of a kernel that maps memory as `paging` says.
///
/// The trace is read once. Its events are kept in memory and in an unnamed temporary file, because the deduction needs
/// to know all processes and threads before it begins.
///
/// # Errors
/// If the trace cannot be opened, or the temporary file cannot be written or read. An error later in the trace is no
/// error here: see [`Recording::cut`].
pub fn read(open: impl FnOnce() -> Result<Box<dyn Source>, Error>, paging: Paging) -> Result<Recording, Error> {
    read_about(open, paging, &|_, _, _| true)
}

/// Reads a trace as [`read`] does, for a caller that asks about some threads only. `is_asked` gets the number of a
/// process, the name of its main thread and the number of a thread. The whole trace is replayed, and the counts of the
/// threads asked about are kept apart.
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

/// Reads a trace as [`read_about`] does, with memory mapped as in the trace. Also returns what the trace asks of a
/// kernel that uses huge pages wherever it can.
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

/// What is known of a trace when all of it was read.
struct Read {
    people: Rc<People>,
    summary: Summary,
    cut: Option<Error>,
    source: Box<dyn Source>,
}

impl Read {
    /// Reads the whole trace, and keeps its events.
    fn all(
        mut source: Box<dyn Source>,
        is_asked: &dyn Fn(i32, &str, i32) -> bool,
    ) -> Result<(Self, KeptEvents), Error> {
        let (mut people, mut summary) = (People::default(), Summary::default());
        let mut keeping = KeepingEvents::default();
        let cut = for_each_event(&mut *source, |event, names| {
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

    /// What the events ask of a kernel, once for each of `pagings`.
    fn deduce<const N: usize>(&self, events: &KeptEvents, pagings: [Paging; N]) -> Result<[Deduced; N], Error> {
        let mut deducers = pagings.map(|paging| Deducer::new(Rc::clone(&self.people), paging));
        events.for_each(|event| deducers.iter_mut().for_each(|deducer| deducer.event(event)))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Op;
    use std::path::Path;

    fn ops(deduced: &Deduced) -> Vec<Op> {
        let mut ops = Vec::new();
        deduced.ops.for_each(|op| ops.push(*op)).expect("they were put aside a moment ago");
        ops
    }

    #[test]
    fn what_was_kept_is_as_good_as_the_trace() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tlbkit-trace/tests/data/build-zlib.script.txt.zst");
        let open = || tlbkit_trace::open(&path);
        let mut people = People::default();
        for_each_event(&mut *open().expect("the shared trace"), |event, _| people.meet(event));
        people.ask(|pid, _, _| pid % 2 == 0);
        let people = Rc::new(people);
        let mut deducers = [Paging::AsRecorded, Paging::Huge].map(|paging| Deducer::new(Rc::clone(&people), paging));
        for_each_event(&mut *open().expect("the same"), |event, _| {
            deducers.iter_mut().for_each(|deducer| deducer.event(event))
        });
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

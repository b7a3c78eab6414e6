//! Reads the form `perf.data`, from a file or through a pipe.
//!
//! No crate reads the container, because none of the existing ones does both things that are needed. It must read
//! tracepoints from a pipe, where their formats follow a record without being part of it. And on hostile files it must
//! stay within bounded memory and never read out of bounds. The meaning of the records' flags comes from the crate
//! `linux-perf-event-reader`. Samples are decoded before they are put in order, so that events are held back and not
//! bytes.

mod attr;
mod bytes;
mod decode;
mod format;
mod header;
mod lost;
mod maps;
mod records;
mod threads;

use crate::error::{Error, FilePosition, Health};
use crate::event::{Event, EventKind};
use crate::names::{Name, Names};
use crate::order::Rounds;
use crate::source::Source;
use attr::{Attr, Sample};
use bytes::{Bytes, Endianness};
use decode::{Decoded, Decoder, SymbolSource};
use header::FileHead;
use linux_perf_event_reader::RecordType;
use lost::Losses;
use maps::Earlier;
use records::{ATTR, Advance, FINISHED_ROUND, Record, Records, TRACING_DATA};
use rustc_hash::FxHashMap;
use std::io::{Read, Seek};
use threads::Threads;

/// Reads a trace of the form `perf.data`.
pub struct PerfReader<R> {
    records: Records<R>,
    order: Endianness,
    attrs: Vec<Attr>,
    by_id: FxHashMap<u64, usize>,
    decoder: Decoder,
    rounds: Rounds<Held>,
    threads: Threads,
    names: Names,
    health: Health,
    is_at_end: bool,
    failure: Option<Error>,
    symbols: SymbolSource,
    earlier: Earlier,
    losses: Losses,
}

/// What waits until it is handed out in order of time.
#[derive(Clone, Copy)]
enum Held {
    Event(Event),
    /// The thread with this number has this name from now on.
    Comm(i32, Name),
    /// The thread `child` has the name of the thread `parent` from now on.
    Fork {
        child: i32,
        parent: i32,
    },
}

/// Whether a record ended a round of the recorder.
enum Round {
    Open,
    Ended,
}

impl<R: Read + Seek> PerfReader<R> {
    /// Begins to read a file, which must stand at its start.
    ///
    /// # Errors
    ///
    /// If the head, the attributes of the events or the formats of the tracepoints cannot be read, if none of the
    /// tracepoints is one that is used here, or if records do not say to which event they belong.
    pub fn from_file(mut file: R) -> Result<Self, Error> {
        let head = FileHead::read(&mut file)?;
        let records = Records::new(file, head.order, head.data_offset, Some(head.data_bytes))?;
        let mut new = Self::new(records, head.order);
        for (attr, ids) in head.attrs {
            new.add_attr(attr, ids);
        }
        new.add_formats(&head.tracing_data)
            .map_err(|what| Error::Missing { offset: head.tracing_data_offset, what })?;
        new.check_attrs(0)?;
        Ok(new)
    }
}

impl<R: Read> PerfReader<R> {
    /// Begins to read what `perf record -o -` writes into a pipe.
    ///
    /// # Errors
    ///
    /// If the first bytes cannot be read, or are not those that `perf` writes into a pipe.
    pub fn from_pipe(mut reader: R) -> Result<Self, Error> {
        let mut head = [0; header::PIPE_BYTES as usize];
        reader.read_exact(&mut head)?;
        let Some(order) = header::order_of(&head).filter(|_| header::is_pipe(&head)) else {
            return Err(Error::Missing {
                offset: 8,
                what: "a perf.data file cannot be read from a pipe: name the file",
            });
        };
        Ok(Self::new(Records::new(reader, order, header::PIPE_BYTES, None)?, order))
    }

    fn new(records: Records<R>, order: Endianness) -> Self {
        let mut names = Names::default();
        Self {
            records,
            order,
            attrs: Vec::new(),
            by_id: FxHashMap::default(),
            decoder: Decoder::new(order),
            rounds: Rounds::new(),
            threads: Threads::new(&mut names),
            names,
            health: Health::default(),
            is_at_end: false,
            failure: None,
            symbols: SymbolSource::Undecided,
            earlier: Earlier::default(),
            losses: Losses::default(),
        }
    }

    /// Whether a trace that begins with the bytes `head` has this form.
    pub(crate) fn knows(head: &[u8]) -> bool {
        header::order_of(head).is_some()
    }

    /// Whether a trace that begins with the bytes `head` has this form and must be read by seeking in a file.
    pub(crate) fn needs_file(head: &[u8]) -> bool {
        Self::knows(head) && !header::is_pipe(head)
    }

    fn add_attr(&mut self, attr: Attr, ids: Vec<u64>) {
        let index = self.attrs.len();
        self.attrs.push(attr);
        self.by_id.extend(ids.into_iter().map(|id| (id, index)));
    }

    fn add_formats(&mut self, section: &[u8]) -> Result<(), &'static str> {
        for format in format::parse_tracing_data(section)? {
            self.decoder.add(&format);
        }
        if self.decoder.is_empty() { Err("none of the tracepoints is one that is used here") } else { Ok(()) }
    }

    /// Checks that it is clear for every record to which event it belongs. `offset` is where an error is reported, in
    /// bytes.
    fn check_attrs(&self, offset: u64) -> Result<(), Error> {
        let what = match &self.attrs[..] {
            [] => Some("the file has no events"),
            [first, rest @ ..] => {
                let is_one_layout = rest.iter().all(|attr| attr == first);
                let is_named = self.attrs.iter().all(Attr::has_identifier);
                (!is_one_layout && !is_named).then_some("records do not say of which event they are")
            }
        };
        what.map_or(Ok(()), |what| Err(Error::Missing { offset, what }))
    }

    /// Reads records until a round ends. An error that ends the reading is kept until all events before it are handed
    /// out.
    fn read_round(&mut self) {
        while !self.is_at_end {
            match self.read_record() {
                Ok(Some(Round::Open)) if !self.rounds.is_full() => {}
                Ok(Some(_)) => return self.rounds.end_round(),
                Ok(None) => self.is_at_end = true,
                Err(error) => {
                    self.failure = Some(error);
                    self.is_at_end = true;
                }
            }
        }
        self.rounds.finish();
    }

    fn read_record(&mut self) -> Result<Option<Round>, Error> {
        match self.records.advance()? {
            Advance::Record(record) => self.take(record).map(Some),
            Advance::End => Ok(None),
            Advance::Cut(cut) => {
                self.cut(cut.offset, cut.missing_bytes);
                Ok(None)
            }
        }
    }

    fn cut(&mut self, offset: u64, missing_bytes: u64) {
        let what = format!("the file ends within a record: {missing_bytes} more bytes are missing, and what follows");
        self.health.damage(FilePosition::Byte(offset), what);
        self.is_at_end = true;
    }

    fn take(&mut self, record: Record) -> Result<Round, Error> {
        match RecordType(record.kind) {
            RecordType::SAMPLE => self.take_sample(record)?,
            RecordType::COMM | RecordType::FORK => self.take_thread(record),
            RecordType::MMAP | RecordType::MMAP2 => self.take_map(record),
            RecordType::LOST | RecordType::LOST_SAMPLES => self.take_lost(record),
            RecordType(FINISHED_ROUND) => return Ok(Round::Ended),
            RecordType(ATTR) => self.take_attr(record)?,
            RecordType(_) => match self.records.trailer(record)? {
                None => self.cut(self.records.offset(), 1),
                Some(bytes) if record.kind == TRACING_DATA => {
                    self.check_attrs(record.offset)?;
                    self.add_formats(&bytes).map_err(|what| Error::Missing { offset: record.offset, what })?;
                }
                Some(_) => {}
            },
        }
        Ok(Round::Open)
    }

    fn take_attr(&mut self, record: Record) -> Result<(), Error> {
        let body = self.records.body();
        let parsed = Attr::parse(body, self.order);
        let parsed = parsed.and_then(|(attr, size)| Some((attr, body.get(usize::try_from(size).ok()?..)?)));
        let missing = Error::Missing { offset: record.offset, what: "an event's attributes make no sense" };
        let (attr, ids) = parsed.ok_or(missing)?;
        let ids = header::numbers(ids, self.order);
        self.add_attr(attr, ids);
        Ok(())
    }

    fn take_sample(&mut self, record: Record) -> Result<(), Error> {
        let offset = record.offset;
        if self.decoder.is_empty() {
            return Err(Error::Missing { offset, what: "samples come before the formats of their tracepoints" });
        }
        let body = Bytes::new(self.records.body(), self.order);
        let Some(attr) = attr_of(&self.attrs, &self.by_id, first_number(body)) else {
            self.health.damage(FilePosition::Byte(offset), "a sample of an event that the file does not name");
            return Ok(());
        };
        if let Some(what) = attr.missing() {
            return Err(Error::Missing { offset, what });
        }
        let Some(sample) = attr.sample(body) else {
            let what = format!("a sample of {} bytes is shorter than its event's layout", body.rest().len());
            self.health.damage(FilePosition::Byte(offset), what);
            return Ok(());
        };
        let Sample { time_ns, cpu, pid, tid, ip, .. } = sample;
        if attr.is_clock {
            let (ip, stack) = self.decoder.sample(ip, sample.stack, &mut self.names);
            let kind = EventKind::Sample { ip };
            let event = Event { time_ns, cpu, pid, tid, comm: Names::UNKNOWN, stack, kind };
            self.rounds.push(time_ns, Held::Event(event));
            return Ok(());
        }
        match self.decoder.decode(sample.raw, &mut self.names) {
            Decoded::Event(kind) => {
                let stack = self.decoder.stack(sample.stack, &mut self.names);
                let event = Event { time_ns, cpu, pid, tid, comm: Names::UNKNOWN, stack, kind };
                self.rounds.push(time_ns, Held::Event(event));
            }
            Decoded::Unused => self.health.unused += 1,
            Decoded::Bad => {
                let what = format!("the fields of a tracepoint ({} bytes) have no meaning", sample.raw.len());
                self.health.damage(FilePosition::Byte(offset), what);
            }
        }
        Ok(())
    }

    /// Takes a record of mapped memory: of a process, or of the kernel's own code.
    fn take_map(&mut self, record: Record) {
        let body = self.records.body();
        let Some(attr) = attr_of_other(&self.attrs, &self.by_id, last_number(body, self.order)) else { return };
        let attr::Stamp { time_ns, cpu, .. } = attr.stamp(body, self.order);
        let b = Bytes::new(body, self.order);
        if RecordType(record.kind) == RecordType::MMAP {
            self.symbols.meet(b, &mut self.decoder);
        }
        if let Some(event) = maps::map(b, RecordType(record.kind), &mut self.names) {
            self.rounds.push(time_ns, Held::Event(Event { time_ns, cpu, ..event }));
        }
    }

    /// Takes a record that tells the name of a thread.
    fn take_thread(&mut self, record: Record) {
        let body = self.records.body();
        let Some(attr) = attr_of_other(&self.attrs, &self.by_id, last_number(body, self.order)) else { return };
        let time_ns = attr.stamp(body, self.order).time_ns;
        let mut b = Bytes::new(body, self.order);
        let held = match RecordType(record.kind) {
            RecordType::COMM => b.u32().and(b.i32()).map(|tid| Held::Comm(tid, self.names.add_bytes(b.rest()))),
            _ => fork(b),
        };
        if let Some(held) = held {
            self.rounds.push(time_ns, held);
        }
    }

    fn take_lost(&mut self, record: Record) {
        let body = self.records.body();
        let attr = attr_of_other(&self.attrs, &self.by_id, last_number(body, self.order));
        let stamp = attr.map(|attr| attr.stamp(body, self.order)).unwrap_or_default();
        if let Some(event) = self.losses.take(RecordType(record.kind), Bytes::new(body, self.order), stamp) {
            self.rounds.push(event.time_ns, Held::Event(event));
        }
    }

    fn finish_event(&mut self, mut event: Event) -> Event {
        self.threads.learn(&event.kind);
        event.comm = self.threads.name(event.tid);
        self.health.saw(&event);
        event
    }
}

impl<R: Read> Source for PerfReader<R> {
    fn next_event(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.earlier.pop() {
                return Ok(Some(self.finish_event(event)));
            }
            match self.rounds.pop() {
                Some(Held::Event(event)) => {
                    if let Some(event) = self.earlier.pass(event) {
                        return Ok(Some(self.finish_event(event)));
                    }
                }
                Some(Held::Comm(tid, name)) => self.threads.set(tid, name),
                Some(Held::Fork { child, parent }) => self.threads.set(child, self.threads.name(parent)),
                None if self.is_at_end && self.rounds.is_empty() => {
                    if let Some(event) = self.losses.untold(self.health.lost, self.health.newest_ns) {
                        return Ok(Some(self.finish_event(event)));
                    }
                    return self.failure.take().map_or(Ok(None), Err);
                }
                None => self.read_round(),
            }
        }
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn health(&self) -> &Health {
        &self.health
    }
}

/// The number by which a sample says to which event it belongs: the first of its body.
fn first_number(mut body: Bytes<'_>) -> Option<u64> {
    body.u64()
}

/// The number by which any other record says so: the last of its body.
fn last_number(body: &[u8], order: Endianness) -> Option<u64> {
    Bytes::new(&body[body.len().checked_sub(8)?..], order).u64()
}

/// The attributes of the event with the number `id`, or of the first event if records carry no numbers: then all events
/// have one layout.
fn attr_of<'a>(attrs: &'a [Attr], by_id: &FxHashMap<u64, usize>, id: Option<u64>) -> Option<&'a Attr> {
    let first = attrs.first()?;
    if !first.has_identifier() {
        return Some(first);
    }
    by_id.get(&id?).map(|&index| &attrs[index])
}

/// The attributes that a record has which is no sample. The recorder itself writes some of these records, and they
/// belong to no event. They are laid out as records of the first event.
fn attr_of_other<'a>(attrs: &'a [Attr], by_id: &FxHashMap<u64, usize>, id: Option<u64>) -> Option<&'a Attr> {
    attr_of(attrs, by_id, id).or(attrs.first())
}

fn fork(mut b: Bytes<'_>) -> Option<Held> {
    b.take(8)?;
    let (child, parent) = (b.i32()?, b.i32()?);
    Some(Held::Fork { child, parent })
}

//! `perf.data`, as a file or through a pipe.
//!
//! The container is read here and not by a crate: none of those that exist reads tracepoints from a pipe (their
//! formats follow a record there without being part of it) and keeps within memory and bounds on hostile files. What
//! the records' flags mean comes from `linux-perf-event-reader`. Samples are decoded before they are put in order,
//! so that events are held back and not bytes.

mod attr;
mod boot;
mod bytes;
mod decode;
mod format;
mod header;
mod lost;
mod maps;
mod records;
mod threads;

use crate::error::{Error, FilePosition, Health};
use crate::event::Event;
use crate::names::{Name, Names};
use crate::order::Rounds;
use crate::source::Source;
use attr::{Attr, Sample};
use boot::SymbolSource;
use bytes::{Bytes, Endianness};
use decode::{Decoded, Decoder};
use header::FileHead;
use linux_perf_event_reader::RecordType;
use lost::Losses;
use maps::Earlier;
use records::{ATTR, Advance, FINISHED_ROUND, Record, Records, TRACING_DATA};
use rustc_hash::FxHashMap;
use std::io::{Read, Seek};
use threads::Threads;

/// Reads `perf.data`.
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

/// What waits for its turn.
#[derive(Clone, Copy)]
enum Held {
    Event(Event),
    /// A thread has this name from now on.
    Comm(i32, Name),
    /// A thread has another's name from now on.
    Fork {
        child: i32,
        parent: i32,
    },
}

/// Whether the recorder's round goes on after a record.
enum Round {
    Open,
    Ended,
}

impl<R: Read + Seek> PerfReader<R> {
    /// Begins to read a file.
    ///
    /// # Errors
    ///
    /// If its head, its events' attributes or its tracepoints' formats cannot be read.
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
    /// Begins to read a pipe.
    ///
    /// # Errors
    ///
    /// If it does not begin as one.
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
            symbols: SymbolSource::SameBoot,
            earlier: Earlier::default(),
            losses: Losses::default(),
        }
    }

    /// Whether a file that begins so is for this reader.
    pub(crate) fn knows(head: &[u8]) -> bool {
        header::order_of(head).is_some()
    }

    /// Whether a file that begins so can only be read by seeking in it.
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

    /// Whether it is clear of which event a record is.
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

    /// Reads records until a round ends. What ends the file early is kept until its events are out.
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
        match self.decoder.decode(sample.raw, &mut self.names) {
            Decoded::Event(kind) => {
                let stack = self.decoder.stack(sample.stack, &mut self.names);
                let Sample { time_ns, cpu, pid, tid, .. } = sample;
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

    /// What was mapped, and where the kernel lay.
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

    /// Records that tell threads' names.
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

/// Where a sample says of which event it is.
fn first_number(mut body: Bytes<'_>) -> Option<u64> {
    body.u64()
}

/// Where any other record says so.
fn last_number(body: &[u8], order: Endianness) -> Option<u64> {
    Bytes::new(&body[body.len().checked_sub(8)?..], order).u64()
}

/// The event that a sample names, or the only one.
fn attr_of<'a>(attrs: &'a [Attr], by_id: &FxHashMap<u64, usize>, id: Option<u64>) -> Option<&'a Attr> {
    let first = attrs.first()?;
    if !first.has_identifier() {
        return Some(first);
    }
    by_id.get(&id?).map(|&index| &attrs[index])
}

/// As [`attr_of`] for what is no sample: the recorder makes some of these records up, and they name no event.
fn attr_of_other<'a>(attrs: &'a [Attr], by_id: &FxHashMap<u64, usize>, id: Option<u64>) -> Option<&'a Attr> {
    attr_of(attrs, by_id, id).or(attrs.first())
}

fn fork(mut b: Bytes<'_>) -> Option<Held> {
    b.take(8)?;
    let (child, parent) = (b.i32()?, b.i32()?);
    Some(Held::Fork { child, parent })
}

//! Reads the compact form. Damaged blocks are skipped, and [`Health`] tells of them.

use super::column::{Sums, get};
use super::{BLOCK_HEAD_BYTES, BlockHead, END_BYTES, HEAD_BYTES, MAGIC, MAX_BLOCK_EVENTS, MAX_TEXTS, VERSION};
use crate::error::{Error, FilePosition, Health};
use crate::event::{Event, EventKind};
use crate::names::{Code, Name, Names, StackId};
use crate::source::Source;
use crate::tracepoint::{FieldKind, Fields, LOST_TAG, MAX_FIELDS, Tracepoint};
use std::io::Read;

/// Reads a trace in the compact form.
pub struct CompactReader<R> {
    reader: R,
    offset: u64,
    /// The events of the current block that were not handed out yet, the last one first.
    events: Vec<Event>,
    names: Names,
    health: Health,
    is_at_end: bool,
}

impl<R: Read> CompactReader<R> {
    /// Begins to read a file.
    ///
    /// # Errors
    ///
    /// If the head cannot be read, is cut short, has another form, or names a version other than [`VERSION`].
    pub fn new(mut reader: R) -> Result<Self, Error> {
        let mut head = Vec::new();
        reader.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        if !Self::knows(&head) {
            return Err(Error::not_a_trace(&head));
        }
        let Some(&[low, high]) = head[8..].first_chunk() else {
            let file_bytes = head.len() as u64;
            return Err(Error::Cut { offset: 0, what: "the head", end: HEAD_BYTES as u64, file_bytes });
        };
        let found = u16::from_le_bytes([low, high]);
        if found != VERSION {
            return Err(Error::Version { offset: 8, found, known: VERSION });
        }
        let offset = HEAD_BYTES as u64;
        let (names, health) = (Names::default(), Health::default());
        Ok(Self { reader, offset, events: Vec::new(), names, health, is_at_end: false })
    }

    /// Whether a trace that begins with the bytes `head` has this form.
    pub(crate) fn knows(head: &[u8]) -> bool {
        head.starts_with(MAGIC)
    }

    /// Reads the next block, or notes what is wrong with it.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn read_block(&mut self) -> Result<(), Error> {
        let Some(head) = self.find_head()? else {
            self.is_at_end = true;
            return Ok(());
        };
        let begin = self.offset;
        let mut content = Vec::new();
        let wanted = u64::from(head.packed_bytes);
        let read = self.reader.by_ref().take(wanted).read_to_end(&mut content);
        self.offset += read.map_err(|answer| Error::Read { place: FilePosition::Byte(begin), answer })? as u64;
        if content.len() as u64 != wanted {
            let what =
                format!("a block of {} events is cut short: {} bytes, want {wanted}", head.events, content.len());
            self.health.damage(FilePosition::Byte(begin), what);
        } else if crc32fast::hash(&content) != head.crc {
            let what = format!("a block of {} events is damaged: its checksum is wrong", head.events);
            self.health.damage(FilePosition::Byte(begin), what);
        } else if head.is_end() {
            self.take_end(&content);
        } else if self.take_events(head, &content).is_none() {
            self.events.clear();
            let what = format!("a block of {} events is not what its head says", head.events);
            self.health.damage(FilePosition::Byte(begin), what);
        }
        self.events.reverse();
        Ok(())
    }

    /// Finds the head of the next block, and skips bytes that are none. None at the end of the file.
    fn find_head(&mut self) -> Result<Option<BlockHead>, Error> {
        let mut bytes = [0; BLOCK_HEAD_BYTES];
        let begin = self.offset;
        let read = read_up_to(&mut self.reader, &mut bytes)?;
        self.offset += read as u64;
        let mut is_whole = read == bytes.len();
        let mut skipped = 0;
        while is_whole {
            if let Some(head) = BlockHead::parse(&bytes) {
                self.tell_skipped(begin, skipped);
                return Ok(Some(head));
            }
            bytes.rotate_left(1);
            is_whole = read_up_to(&mut self.reader, &mut bytes[BLOCK_HEAD_BYTES - 1..])? == 1;
            self.offset += u64::from(is_whole);
            skipped += 1;
        }
        self.tell_skipped(begin, skipped);
        self.health.damage(FilePosition::Byte(self.offset), "the file ends without its end mark: it was cut short");
        Ok(None)
    }

    fn tell_skipped(&mut self, begin: u64, skipped: u64) {
        if skipped > 0 {
            self.health.damage(FilePosition::Byte(begin), format!("{skipped} bytes are no block"));
        }
    }

    /// Takes the content of the end mark, and notes if it counts other events than were read.
    fn take_end(&mut self, content: &[u8]) {
        self.is_at_end = true;
        let Some(bytes) = content.first_chunk::<END_BYTES>() else { return };
        let number = |i: usize| bytes[i * 8..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (written, unused, late, damaged) = (number(0), number(1), number(2), number(3));
        self.health.unused += unused;
        self.health.late = self.health.late.max(late);
        if damaged > 0 {
            let what = format!("{damaged} parts were unusable already when this file was written");
            self.health.damage(FilePosition::Byte(self.offset), what);
        }
        if written != self.health.events {
            let what = format!("{} events were read of {written}", self.health.events);
            self.health.damage(FilePosition::Byte(self.offset), what);
        }
    }

    /// Unpacks the events of a block. None if they are not what the head says.
    fn take_events(&mut self, head: BlockHead, packed: &[u8]) -> Option<()> {
        let content = zstd::bulk::decompress(packed, head.unpacked_bytes as usize).ok()?;
        let mut columns = Columns::parse(&content, &mut self.names)?;
        if columns.tags.len() != head.events as usize {
            return None;
        }
        for _ in 0..head.events {
            self.events.push(columns.next()?);
        }
        Some(())
    }
}

impl<R: Read> Source for CompactReader<R> {
    fn next_event(&mut self) -> Result<Option<Event>, Error> {
        while self.events.is_empty() && !self.is_at_end {
            self.read_block()?;
        }
        let event = self.events.pop();
        event.iter().for_each(|event| self.health.saw(event));
        Ok(event)
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn health(&self) -> &Health {
        &self.health
    }
}

/// Reads until `bytes` is full or the file ends. Returns how many bytes were read.
fn read_up_to(reader: &mut impl Read, bytes: &mut [u8]) -> Result<usize, Error> {
    let mut filled = 0;
    while filled < bytes.len() {
        match reader.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

/// The columns of a block: an event takes the next number of several of them.
struct Columns<'a> {
    texts: Vec<Name>,
    threads: Vec<(i32, i32, Name)>,
    stacks: Vec<Option<StackId>>,
    tags: &'a [u8],
    times: Sums<'a>,
    cpus: Sums<'a>,
    thread: Sums<'a>,
    stack: Sums<'a>,
    fields: Vec<Sums<'a>>,
    lost: Sums<'a>,
}

impl<'a> Columns<'a> {
    fn parse(mut content: &'a [u8], names: &mut Names) -> Option<Self> {
        let content = &mut content;
        let texts = texts(column(content)?, names)?;
        let threads = threads(column(content)?, &texts)?;
        let stacks = stacks(column(content)?, &texts, names)?;
        let tags = column(content)?;
        let mut sums = || column(content).map(Sums::new);
        let (times, cpus, thread, stack, lost) = (sums()?, sums()?, sums()?, sums()?, sums()?);
        // The number of a tracepoint is one byte, so no file has more columns of fields than this.
        let count = get(content).filter(|&count| count <= (1 << u8::BITS) * MAX_FIELDS as u64)?;
        let fields = (0..count).map(|_| column(content).map(Sums::new)).collect::<Option<_>>()?;
        Some(Self { texts, threads, stacks, tags, times, cpus, thread, stack, fields, lost })
    }

    fn next(&mut self) -> Option<Event> {
        let (&tag, tags) = self.tags.split_first()?;
        self.tags = tags;
        let time_ns = self.times.get()?;
        let cpu = self.cpus.get()? as u32;
        let &(pid, tid, comm) = self.threads.get(usize::try_from(self.thread.get()?).ok()?)?;
        let stack = match self.stack.get()?.checked_sub(1) {
            None => None,
            Some(index) => *self.stacks.get(usize::try_from(index).ok()?)?,
        };
        let kind = if tag == LOST_TAG { EventKind::Lost { count: self.lost.get()? } } else { self.kind(tag)? };
        Some(Event { time_ns, cpu, pid, tid, comm, stack, kind })
    }

    fn kind(&mut self, tag: u8) -> Option<EventKind> {
        let tracepoint = Tracepoint::from_tag(tag)?;
        let mut fields: Fields = [0; MAX_FIELDS];
        let sums = self.fields.get_mut(tag as usize * MAX_FIELDS..)?;
        for ((field, sum), &(_, kind)) in fields.iter_mut().zip(sums).zip(tracepoint.spec().fields) {
            let value = sum.get()?;
            *field = match kind {
                FieldKind::Text => text(&self.texts, value)?.0.into(),
                FieldKind::Code => code(&self.texts, value)?.0,
                FieldKind::Number | FieldKind::CpuMask | FieldKind::Runnable => value,
            };
        }
        tracepoint.kind(&fields)
    }
}

/// Takes the bytes of a column off the front of `content`.
fn column<'a>(content: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(get(content)?).ok()?;
    let (column, rest) = content.split_at_checked(length)?;
    *content = rest;
    Some(column)
}

fn text(texts: &[Name], position: u64) -> Option<Name> {
    texts.get(usize::try_from(position).ok()?).copied()
}

fn code(texts: &[Name], value: u64) -> Option<Code> {
    match Code(value).name() {
        Some(position) => text(texts, position.0.into()).map(Code::symbol),
        None => Some(Code(value)),
    }
}

fn texts(mut column: &[u8], names: &mut Names) -> Option<Vec<Name>> {
    let count = get(&mut column).filter(|&count| count <= MAX_TEXTS)?;
    let mut texts = Vec::new();
    for _ in 0..count {
        let length = usize::try_from(get(&mut column)?).ok()?;
        let (text, rest) = column.split_at_checked(length)?;
        column = rest;
        texts.push(names.add(std::str::from_utf8(text).ok()?));
    }
    Some(texts)
}

fn threads(mut column: &[u8], known: &[Name]) -> Option<Vec<(i32, i32, Name)>> {
    let mut threads = Vec::new();
    while !column.is_empty() {
        let mut id = || {
            let mut sums = Sums::new(column);
            let id = sums.get()?;
            column = sums.rest();
            Some(id as i32)
        };
        let (pid, tid) = (id()?, id()?);
        threads.push((pid, tid, text(known, get(&mut column)?)?));
        if threads.len() > MAX_BLOCK_EVENTS as usize {
            return None;
        }
    }
    Some(threads)
}

fn stacks(mut column: &[u8], known: &[Name], names: &mut Names) -> Option<Vec<Option<StackId>>> {
    let mut stacks = Vec::new();
    let mut frames = Vec::new();
    while !column.is_empty() {
        frames.clear();
        for _ in 0..get(&mut column)? {
            frames.push(code(known, get(&mut column)?)?);
        }
        stacks.push(names.add_stack(&frames));
        if stacks.len() > MAX_BLOCK_EVENTS as usize {
            return None;
        }
    }
    Some(stacks)
}

//! The stream of records in `perf.data`. Each has a header of eight bytes, and some hold further records, packed by
//! zstd.

use super::bytes::{Bytes, Endianness};
use crate::error::{Error, FilePosition};
use std::io::{ErrorKind, Read};
use std::ops::Range;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

const HEADER_BYTES: usize = 8;
/// Size of the buffer in bytes. The length of a record has 16 bits, so several of the longest ones fit.
const BUFFER_BYTES: usize = 1 << 19;
/// How many bytes are unpacked at a time.
const UNPACK_BYTES: usize = 1 << 18;
/// The longest trailer of a record that is read, in bytes. Formats of tracepoints and tables of symbols are far
/// shorter.
const MAX_TRAILER_BYTES: u64 = 1 << 26;

pub(super) const ATTR: u32 = 64;
pub(super) const TRACING_DATA: u32 = 66;
pub(super) const FINISHED_ROUND: u32 = 68;
const AUXTRACE: u32 = 71;
pub(super) const COMPRESSED: u32 = 81;
pub(super) const COMPRESSED2: u32 = 83;

/// Reads one record after the other.
pub(super) struct Records<R> {
    reader: R,
    order: Endianness,
    buffer: Vec<u8>,
    /// Which part of the buffer was not read yet.
    unread: Range<usize>,
    /// Where in the file the unread part begins.
    offset: u64,
    /// How many bytes are to come, as the file says; none for a pipe.
    left: Option<u64>,
    packed: Packed,
    current: Current,
}

/// The head of the record that was read last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) kind: u32,
    /// Where the record begins in the file, in bytes. For an unpacked record it is where the pack ends that held it.
    pub(super) offset: u64,
}

#[derive(Clone)]
enum Current {
    InFile(Range<usize>),
    Unpacked(Range<usize>),
}

/// Where a stream ends too early, in bytes from the start, and how many bytes are missing at least.
pub(super) struct CutShort {
    pub(super) offset: u64,
    pub(super) missing_bytes: u64,
}

/// What came of an attempt to read the next record.
pub(super) enum Advance {
    Record(Record),
    End,
    Cut(CutShort),
}

impl<R: Read> Records<R> {
    /// Reads from where `reader` stands, `offset` bytes into the file.
    pub(super) fn new(reader: R, order: Endianness, offset: u64, left: Option<u64>) -> Result<Self, Error> {
        let packed = Packed::new()?;
        let buffer = vec![0; BUFFER_BYTES];
        Ok(Self { reader, order, buffer, unread: 0..0, offset, left, packed, current: Current::InFile(0..0) })
    }

    /// The body of the record that was read last.
    pub(super) fn body(&self) -> &[u8] {
        match &self.current {
            Current::InFile(range) => &self.buffer[range.clone()],
            Current::Unpacked(range) => &self.packed.unpacked[range.clone()],
        }
    }

    /// Reads the next record, whose bytes are then those of [`Records::body`].
    pub(super) fn advance(&mut self) -> Result<Advance, Error> {
        loop {
            if let Some(step) = self.advance_packed()? {
                return Ok(step);
            }
            let record = match self.advance_in_file()? {
                Advance::Record(record) => record,
                end => return Ok(end),
            };
            let Current::InFile(body) = self.current.clone() else {
                unreachable!("advance_in_file reads from the file")
            };
            let pack = match record.kind {
                COMPRESSED => Some(&self.buffer[body]),
                COMPRESSED2 => Some(sized_pack(Bytes::new(&self.buffer[body], self.order), record.offset)?),
                _ => None,
            };
            match pack {
                Some(pack) => self.packed.input(pack),
                None => return Ok(Advance::Record(record)),
            }
        }
    }

    fn advance_packed(&mut self) -> Result<Option<Advance>, Error> {
        let offset = self.offset;
        while !self.packed.is_empty() {
            let bytes = &self.packed.unpacked[self.packed.unread.clone()];
            if let Some((kind, size)) = header(bytes, self.order, offset)?
                && bytes.len() >= size
            {
                let begin = self.packed.unread.start;
                self.packed.unread.start += size;
                self.current = Current::Unpacked(begin + HEADER_BYTES..begin + size);
                return Ok(Some(Advance::Record(Record { kind, offset })));
            }
            if !self.packed.unpack(offset)? {
                break;
            }
        }
        Ok(None)
    }

    fn advance_in_file(&mut self) -> Result<Advance, Error> {
        if self.left == Some(0) {
            return Ok(Advance::End);
        }
        // Mostly the header is in the buffer. To look is faster than to call `fill` and to check what it returns.
        if self.unread.len() < HEADER_BYTES && !self.fill(HEADER_BYTES)? {
            return Ok(self.end(HEADER_BYTES));
        }
        let (offset, order) = (self.offset, self.order);
        let Some((kind, size)) = header(&self.buffer[self.unread.clone()], order, offset)? else {
            unreachable!("filled")
        };
        if self.unread.len() < size && !self.fill(size)? {
            return Ok(self.end(size));
        }
        let begin = self.unread.start;
        self.consume(size);
        self.current = Current::InFile(begin + HEADER_BYTES..begin + size);
        Ok(Advance::Record(Record { kind, offset }))
    }

    /// The bytes that follow `record`, the current one, without being part of it. They are empty if records of its kind
    /// have none. None if the file ends within them.
    pub(super) fn trailer(&mut self, record: Record) -> Result<Option<Vec<u8>>, Error> {
        let mut body = Bytes::new(self.body(), self.order);
        let size = match record.kind {
            TRACING_DATA => body.u32().map(|size| u64::from(size).next_multiple_of(8)),
            AUXTRACE => body.u64(),
            _ => return Ok(Some(Vec::new())),
        };
        let value = size.unwrap_or(u64::MAX);
        if value > MAX_TRAILER_BYTES {
            let what = "the size of what follows a record";
            return Err(Error::Value { offset: record.offset, what, value, limit: MAX_TRAILER_BYTES });
        }
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < value && self.fill(1)? {
            let n = self.unread.len().min(value as usize - bytes.len());
            bytes.extend_from_slice(&self.buffer[self.unread.start..self.unread.start + n]);
            self.consume(n);
        }
        Ok((bytes.len() as u64 == value).then_some(bytes))
    }

    /// Where the next record begins in the file, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    fn consume(&mut self, n: usize) {
        self.unread.start += n;
        self.offset += n as u64;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(n as u64);
        }
    }

    fn end(&self, wanted: usize) -> Advance {
        if self.unread.is_empty() && self.left.is_none() {
            return Advance::End;
        }
        Advance::Cut(CutShort { offset: self.offset, missing_bytes: (wanted - self.unread.len()) as u64 })
    }

    /// Reads until the buffer has `n` unread bytes. False if the file ends before.
    fn fill(&mut self, n: usize) -> Result<bool, Error> {
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        while self.unread.len() < n {
            match self.reader.read(&mut self.buffer[self.unread.end..]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.unread.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(answer) => return Err(Error::Read { place: FilePosition::Byte(self.offset), answer }),
            }
        }
        Ok(true)
    }
}

/// The packed bytes in the newer form of a pack. It says how long they are, because padding follows them.
fn sized_pack(mut body: Bytes<'_>, offset: u64) -> Result<&[u8], Error> {
    let value = body.u64().unwrap_or(u64::MAX);
    let limit = body.rest().len() as u64;
    body.take(value).ok_or(Error::Value { offset, what: "the size of a pack", value, limit })
}

/// The kind and the size in bytes of the record that begins with `bytes`. None if its header is incomplete.
fn header(bytes: &[u8], order: Endianness, offset: u64) -> Result<Option<(u32, usize)>, Error> {
    let Some(header) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
    let mut b = Bytes::new(header, order);
    let (Some(kind), Some(misc_and_size)) = (b.u32(), b.u32()) else { unreachable!("eight bytes") };
    // A word of 32 bits holds two numbers, the size being the later one in the file. The byte order decides which half
    // of the word that is.
    let size = match order {
        Endianness::LittleEndian => misc_and_size >> 16,
        Endianness::BigEndian => misc_and_size & 0xffff,
    };
    if (size as usize) < HEADER_BYTES {
        return Err(Error::Value { offset, what: "a record's size", value: size.into(), limit: HEADER_BYTES as u64 });
    }
    Ok(Some((kind, size as usize)))
}

/// Unpacks records that were packed by zstd. All packs of a file are one stream.
struct Packed {
    decoder: Decoder<'static>,
    input: Vec<u8>,
    consumed: usize,
    unpacked: Vec<u8>,
    unread: Range<usize>,
    /// Whether the decoder may give more bytes without further input.
    has_more: bool,
}

impl Packed {
    fn new() -> Result<Self, Error> {
        let decoder = Decoder::new()?;
        Ok(Self { decoder, input: Vec::new(), consumed: 0, unpacked: Vec::new(), unread: 0..0, has_more: false })
    }

    fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.consumed == self.input.len() && !self.has_more
    }

    fn input(&mut self, pack: &[u8]) {
        self.input.clear();
        self.input.extend_from_slice(pack);
        self.consumed = 0;
        self.has_more = true;
    }

    /// Unpacks more bytes behind the unread ones. False if that needs further input. `offset` is where an error is
    /// reported, in bytes.
    fn unpack(&mut self, offset: u64) -> Result<bool, Error> {
        if !self.has_more {
            return Ok(false);
        }
        self.unpacked.drain(..self.unread.start);
        let begin = self.unread.len();
        self.unpacked.resize(begin + UNPACK_BYTES, 0);
        let mut input = InBuffer::around(&self.input[self.consumed..]);
        let mut output = OutBuffer::around(&mut self.unpacked[begin..]);
        if self.decoder.run(&mut input, &mut output).is_err() {
            return Err(Error::Missing { offset, what: "a packed record cannot be unpacked" });
        }
        let written = output.pos();
        self.consumed += input.pos();
        self.has_more = written == UNPACK_BYTES || self.consumed < self.input.len();
        self.unread = 0..begin + written;
        Ok(written > 0 || self.has_more)
    }
}

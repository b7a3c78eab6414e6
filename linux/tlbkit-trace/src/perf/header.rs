//! The head of `perf.data`. In a file it says where the other parts lie, and in a pipe only that it is a pipe.

use super::attr::Attr;
use super::bytes::{Bytes, Endianness};
use crate::error::Error;
use std::io::{Read, Seek, SeekFrom};

pub(super) const MAGIC_LITTLE: &[u8; 8] = b"PERFILE2";
pub(super) const MAGIC_BIG: &[u8; 8] = b"2ELIFREP";
/// Length in bytes of the head in a pipe: the magic number and a size.
pub(super) const PIPE_BYTES: u64 = 16;
const FILE_BYTES: u64 = 104;
/// The most events that a file may have. An honest recording has some tens of them.
const MAX_ATTRS: u64 = 4096;
/// The most numbers that one event may have. There is one number for each CPU on which it is recorded.
const MAX_IDS: u64 = 1 << 24;
const MAX_FORMATS_BYTES: u64 = 1 << 26;
/// Size in bytes of the section's description that follows the attributes of each event and says where its numbers lie.
const SECTION_BYTES: u64 = 16;
/// The bit of the feature whose section describes the tracepoints.
const TRACING_DATA_FEATURE: u64 = 1 << 1;

/// A part of a file: its offset and its length, in bytes.
#[derive(Clone, Copy, Debug)]
struct Section {
    offset: u64,
    size: u64,
}

/// What the head of a file says. Offsets and lengths are in bytes.
pub(super) struct FileHead {
    pub(super) order: Endianness,
    /// The attributes of each event, with the numbers by which records may name it.
    pub(super) attrs: Vec<(Attr, Vec<u64>)>,
    pub(super) tracing_data: Vec<u8>,
    pub(super) tracing_data_offset: u64,
    pub(super) data_offset: u64,
    pub(super) data_bytes: u64,
}

/// The byte order of a file that begins with `head`, or none if it has another form.
pub(super) fn order_of(head: &[u8]) -> Option<Endianness> {
    match head.get(..8)? {
        magic if magic == MAGIC_LITTLE => Some(Endianness::LittleEndian),
        magic if magic == MAGIC_BIG => Some(Endianness::BigEndian),
        _ => None,
    }
}

/// Whether `head` is that of a pipe.
pub(super) fn is_pipe(head: &[u8]) -> bool {
    let size = order_of(head).and_then(|order| Bytes::new(head.get(8..)?, order).u64());
    size == Some(PIPE_BYTES)
}

impl FileHead {
    /// Reads the head, the attributes and the formats, and leaves `file` where the records begin.
    pub(super) fn read(file: &mut (impl Read + Seek)) -> Result<Self, Error> {
        let file_bytes = file.seek(SeekFrom::End(0))?;
        let mut file = Reader { file, file_bytes };
        let whole = Section { offset: 0, size: FILE_BYTES };
        let head = file.section(whole, 0, "the head of the file", FILE_BYTES)?;
        let Some(order) = order_of(&head) else {
            return Err(Error::not_a_trace(&head[..8]));
        };
        let mut b = Bytes::new(&head[16..], order);
        let mut next = || b.u64().unwrap_or(0);
        let attr_bytes = next();
        let attrs = Section { offset: next(), size: next() };
        let data = Section { offset: next(), size: next() };
        let _event_types = (next(), next());
        let features = next();
        if data.size == 0 {
            return Err(Error::Missing { offset: 48, what: "no data: the recorder was killed before it could finish" });
        }
        let attrs = file.attrs(attrs, attr_bytes, order)?;
        let (tracing_data, tracing_data_offset) = file.tracing_data(data, features, order)?;
        file.file.seek(SeekFrom::Start(data.offset))?;
        let Section { offset: data_offset, size: data_bytes } = data;
        Ok(Self { order, attrs, tracing_data, tracing_data_offset, data_offset, data_bytes })
    }
}

struct Reader<'a, F> {
    file: &'a mut F,
    file_bytes: u64,
}

impl<F: Read + Seek> Reader<'_, F> {
    /// The bytes of a section. `at` is where the file names the section, for errors, and `limit` the largest length
    /// that is allowed; both are in bytes.
    fn section(&mut self, section: Section, at: u64, what: &'static str, limit: u64) -> Result<Vec<u8>, Error> {
        let Section { offset, size } = section;
        if size > limit {
            return Err(Error::Value { offset: at, what, value: size, limit });
        }
        let end = offset.saturating_add(size);
        if end > self.file_bytes {
            return Err(Error::Cut { offset: at, what, end, file_bytes: self.file_bytes });
        }
        let mut bytes = vec![0; size as usize];
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn attrs(&mut self, section: Section, each: u64, order: Endianness) -> Result<Vec<(Attr, Vec<u64>)>, Error> {
        const AT: u64 = 24;
        let what = "the size of one event's attributes";
        if !(SECTION_BYTES..=4096).contains(&each) {
            return Err(Error::Value { offset: 16, what, value: each, limit: 4096 });
        }
        let all = self.section(section, AT, "the size of the events' attributes", MAX_ATTRS * each)?;
        // The numbers of all events are different parts of the file, so together they are not longer than it is.
        let limit = self.file_bytes.min(MAX_IDS * 8);
        let mut ids_bytes = 0_u64;
        let mut attrs = Vec::new();
        for (i, entry) in all.chunks_exact(each as usize).enumerate() {
            let at = section.offset + i as u64 * each;
            let (attr, ids) = entry.split_at(entry.len() - SECTION_BYTES as usize);
            let missing = Error::Missing { offset: at, what: "an event's attributes make no sense" };
            let (attr, _) = Attr::parse(attr, order).ok_or(missing)?;
            let mut b = Bytes::new(ids, order);
            let ids = Section { offset: b.u64().unwrap_or(0), size: b.u64().unwrap_or(0) };
            let place = at + each - SECTION_BYTES;
            let in_all = ids_bytes.saturating_add(ids.size);
            let ids = self.section(ids, place, "the size of an event's numbers", MAX_IDS * 8)?;
            if in_all > limit {
                let what = "the size of all events' numbers";
                return Err(Error::Value { offset: place, what, value: in_all, limit });
            }
            ids_bytes = in_all;
            attrs.push((attr, numbers(&ids, order)));
        }
        Ok(attrs)
    }

    fn tracing_data(&mut self, data: Section, features: u64, order: Endianness) -> Result<(Vec<u8>, u64), Error> {
        const AT: u64 = 72;
        if features & TRACING_DATA_FEATURE == 0 {
            return Err(Error::Missing { offset: AT, what: "the file has no tracepoints" });
        }
        // The table of features stands behind the records, in order of the features' bits.
        let before = u64::from((features & (TRACING_DATA_FEATURE - 1)).count_ones());
        let at = data.offset.saturating_add(data.size).saturating_add(before * SECTION_BYTES);
        let entry = Section { offset: at, size: SECTION_BYTES };
        let entry = self.section(entry, 48, "the data and the index behind it", SECTION_BYTES)?;
        let mut b = Bytes::new(&entry, order);
        let section = Section { offset: b.u64().unwrap_or(0), size: b.u64().unwrap_or(0) };
        let bytes = self.section(section, at, "the formats of the tracepoints", MAX_FORMATS_BYTES)?;
        Ok((bytes, section.offset))
    }
}

/// The 64-bit numbers of which `bytes` consist. An incomplete one at the end is left out.
pub(super) fn numbers(bytes: &[u8], order: Endianness) -> Vec<u64> {
    let mut b = Bytes::new(bytes, order);
    std::iter::from_fn(|| b.u64()).collect()
}

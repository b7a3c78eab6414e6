//! Opens a file or a pipe. The first bytes tell which form a trace has, and so which reader it needs.

use crate::compact::CompactReader;
use crate::error::Error;
use crate::perf::PerfReader;
use crate::script::ScriptReader;
use crate::source::Source;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 1 << 18;

/// Opens a trace of any known form, packed by zstd or not.
///
/// A packed `perf.data` file is unpacked into an unnamed temporary file first, because its index stands at its end. If
/// `path` names a pipe, it is read as [`open_pipe`] reads one, so it can be read only once.
///
/// # Errors
///
/// If the file cannot be opened or read, is empty, or has none of the known forms.
pub fn open(path: &Path) -> Result<Box<dyn Source>, Error> {
    let mut file = File::open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return open_pipe(file);
    }
    let head = head(&mut file)?;
    if head.starts_with(&ZSTD_MAGIC) { open_packed(file) } else { open_plain(file, &head) }
}

/// Reads a trace from a pipe, such as `perf record -o -` or `perf script` makes, packed by zstd or not.
///
/// # Errors
///
/// If the pipe cannot be read, ends at once, has none of the known forms, or holds a `perf.data` file: such a file must
/// be given by name.
pub fn open_pipe(reader: impl Read + 'static) -> Result<Box<dyn Source>, Error> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
    if reader.fill_buf()?.starts_with(&ZSTD_MAGIC) {
        let inner = zstd::stream::read::Decoder::with_buffer(reader)?;
        return open_stream(Box::new(BufReader::with_capacity(BUFFER_BYTES, inner)));
    }
    open_stream(Box::new(reader))
}

/// The first 16 bytes of the file, or all if it is shorter. Leaves the file at its start.
fn head(file: &mut File) -> Result<Vec<u8>, Error> {
    let mut head = Vec::new();
    file.take(16).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(head)
}

fn open_packed(file: File) -> Result<Box<dyn Source>, Error> {
    let mut inner = BufReader::with_capacity(BUFFER_BYTES, zstd::stream::read::Decoder::new(BufReader::new(file))?);
    let begin = inner.fill_buf()?;
    if !PerfReader::<File>::needs_file(begin) {
        return open_stream(Box::new(inner));
    }
    let mut unpacked = tempfile::tempfile()?;
    std::io::copy(&mut inner, &mut unpacked)?;
    unpacked.seek(SeekFrom::Start(0))?;
    Ok(Box::new(PerfReader::from_file(unpacked)?))
}

fn open_plain(file: File, head: &[u8]) -> Result<Box<dyn Source>, Error> {
    if PerfReader::<File>::needs_file(head) {
        return Ok(Box::new(PerfReader::from_file(file)?));
    }
    open_stream(Box::new(BufReader::with_capacity(BUFFER_BYTES, file)))
}

fn open_stream(mut reader: Box<dyn BufRead>) -> Result<Box<dyn Source>, Error> {
    let begin = reader.fill_buf()?;
    if begin.is_empty() {
        return Err(Error::Missing { offset: 0, what: "the file is empty" });
    }
    if PerfReader::<File>::knows(begin) {
        return Ok(Box::new(PerfReader::from_pipe(reader)?));
    }
    if CompactReader::<File>::knows(begin) {
        return Ok(Box::new(CompactReader::new(reader)?));
    }
    Ok(Box::new(ScriptReader::new(reader)?))
}

//! Reads the section that says how the recording kernel laid out the fields of each tracepoint.
//!
//! The section has a header with byte order and sizes. Then come the texts of `header_page` and `header_event`, of
//! ftrace's own events, and of each recorded tracepoint. Only the last ones are used. The texts are those of
//! `events/*/*/format` in tracefs. In them a field has a line such as
//!
//! ```text
//! field:unsigned long pages;    offset:16;    size:8;    signed:0;
//! ```

use super::bytes::{Bytes, Endianness, Width};
use rustc_hash::FxHashMap;

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// The layout of one tracepoint of the recording kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Format {
    /// Its name in the form `system:name`.
    pub(super) event: String,
    /// The number with which its records begin.
    pub(super) id: u16,
    pub(super) fields: FxHashMap<String, FormatField>,
}

/// Where a field lies in a record. Offset and size are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FormatField {
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) is_signed: bool,
    /// The field is a pointer to its bytes: it holds their length in the upper 16 bits and their offset in the lower
    /// 16.
    pub(super) is_located: bool,
    pub(super) is_array: bool,
}

impl FormatField {
    /// How the field is stored if it is a number, or none if it cannot be one.
    pub(super) fn width(self) -> Option<Width> {
        match (self.size, self.is_signed) {
            (1, _) => Some(Width::U8),
            (2, _) => Some(Width::U16),
            (4, false) => Some(Width::U32),
            (4, true) => Some(Width::I32),
            (8, _) => Some(Width::U64),
            _ => None,
        }
    }
}

/// The layouts of all tracepoints that `section` describes. An error says in words what is wrong with the section.
pub(super) fn parse_tracing_data(section: &[u8]) -> Result<Vec<Format>, &'static str> {
    let mut b = Bytes::new(section, Endianness::LittleEndian);
    if b.take(MAGIC.len() as u64) != Some(MAGIC) {
        return Err("the formats of the tracepoints do not begin as such");
    }
    parse_systems(b).ok_or("the formats of the tracepoints are cut short")
}

fn parse_systems(mut b: Bytes<'_>) -> Option<Vec<Format>> {
    b.text()?;
    let order = if b.u8()? == 0 { Endianness::LittleEndian } else { Endianness::BigEndian };
    b.take(1 + 4)?;
    let mut b = Bytes::new(b.rest(), order);
    for _ in ["header_page", "header_event"] {
        b.text()?;
        sized(&mut b)?;
    }
    for _ in 0..b.u32()? {
        sized(&mut b)?;
    }
    let mut formats = Vec::new();
    for _ in 0..b.u32()? {
        let system = String::from_utf8_lossy(b.text()?);
        for _ in 0..b.u32()? {
            let text = String::from_utf8_lossy(sized(&mut b)?);
            formats.extend(parse_format(&system, &text));
        }
    }
    Some(formats)
}

fn sized<'a>(b: &mut Bytes<'a>) -> Option<&'a [u8]> {
    let size = b.u64()?;
    b.take(size)
}

fn parse_format(system: &str, text: &str) -> Option<Format> {
    let mut name = None;
    let mut id = None;
    let mut fields = FxHashMap::default();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("name: ") {
            name = Some(rest.trim());
        } else if let Some(rest) = line.strip_prefix("ID: ") {
            id = rest.trim().parse().ok();
        } else if let Some(rest) = line.trim_start().strip_prefix("field:") {
            fields.extend(parse_field(rest));
        }
    }
    Some(Format { event: format!("{system}:{}", name?), id: id?, fields })
}

fn parse_field(line: &str) -> Option<(String, FormatField)> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?;
    let (mut offset, mut size, mut is_signed) = (None, None, false);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", n)) => offset = n.parse().ok(),
            Some(("size", n)) => size = n.parse().ok(),
            Some(("signed", n)) => is_signed = n == "1",
            _ => {}
        }
    }
    let last = declaration.rsplit([' ', '*']).next()?;
    let name = last.split('[').next()?;
    let is_located = declaration.starts_with("__data_loc");
    let is_array = last.contains('[');
    Some((name.to_owned(), FormatField { offset: offset?, size: size?, is_signed, is_located, is_array }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(line: &str) -> (String, FormatField) {
        parse_field(line).expect("a field")
    }

    #[test]
    fn fields_of_each_shape_are_understood() {
        let (name, pages) = field("unsigned long pages;\toffset:16;\tsize:8;\tsigned:0;");
        assert_eq!((name.as_str(), pages.offset, pages.width()), ("pages", 16, Some(Width::U64)));
        let (name, pid) = field("pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;");
        assert_eq!((name.as_str(), pid.width()), ("prev_pid", Some(Width::I32)));
        let (name, comm) = field("char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;");
        assert_eq!((name.as_str(), comm.is_array, comm.width()), ("prev_comm", true, None));
        let (name, path) = field("__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;");
        assert_eq!((name.as_str(), path.is_located), ("filename", true));
        let (name, _) = field("int * parent_tidptr;\toffset:32;\tsize:8;\tsigned:0;");
        assert_eq!(name, "parent_tidptr");
    }

    #[test]
    fn a_section_that_ends_early_says_so() {
        assert_eq!(
            parse_tracing_data(b"\x17\x08\x44tracing0.6\0\0\x08\0"),
            Err("the formats of the tracepoints are cut short")
        );
        assert!(parse_tracing_data(b"something else").is_err());
    }
}

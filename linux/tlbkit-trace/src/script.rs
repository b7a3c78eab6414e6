//! Reads the text that `perf script` prints: one event a line, with or without call stacks.
//!
//! It understands the default fields and those of `-F comm,pid,tid,cpu,time,event,trace`, with and without `--ns`:
//!
//! ```text
//! gcc  1787/1787  [001]  2701.866480532:  tlb:tlb_flush: pages:1 reason:local MM shootdown (3)
//! ```

use crate::error::{Error, FilePosition, Health};
use crate::event::{Event, EventKind};
use crate::names::{Code, MAX_FRAMES, Name, Names};
use crate::source::Source;
use crate::tracepoint::{FieldKind, Fields, MAX_FIELDS, Tracepoint};
use rustc_hash::FxHashMap;
use std::io::{self, BufRead, ErrorKind};

/// The longest line that is read, in bytes. No event has a longer one.
const MAX_LINE_BYTES: usize = 1 << 16;
/// How many bytes before the CPU's bracket the thread's number may begin at most.
const MAX_THREAD_BYTES: usize = 32;
/// How many bytes behind the bracket the CPU's number may end at most.
const MAX_CPU_BYTES: usize = 16;
/// Within this many lines from the start the first event must come.
const MAX_HEAD_LINES: u64 = 256;

/// Reads a trace of the form that `perf script` prints.
pub struct ScriptReader<R> {
    reader: R,
    line: Vec<u8>,
    line_number: u64,
    tracepoints: FxHashMap<&'static [u8], Tracepoint>,
    names: Names,
    health: Health,
    /// The event whose stack may still follow.
    pending: Option<Event>,
    frames: Vec<Code>,
}

impl<R: BufRead> ScriptReader<R> {
    /// Begins to read the text.
    ///
    /// # Errors
    ///
    /// If the text cannot be read, or if none of its first 256 lines is an event.
    pub fn new(reader: R) -> Result<Self, Error> {
        let tracepoints = Tracepoint::all().filter(|tracepoint| tracepoint.is_traced());
        let tracepoints = tracepoints.map(|tracepoint| (tracepoint.spec().event.as_bytes(), tracepoint));
        let mut new = Self {
            reader,
            line: Vec::new(),
            line_number: 0,
            tracepoints: tracepoints.collect(),
            names: Names::default(),
            health: Health::default(),
            pending: None,
            frames: Vec::new(),
        };
        new.find_first()?;
        Ok(new)
    }

    fn find_first(&mut self) -> Result<(), Error> {
        let mut found = Vec::new();
        while self.line_number < MAX_HEAD_LINES && self.read_line()? {
            if found.is_empty() {
                found.extend_from_slice(&self.line[..self.line.len().min(64)]);
            }
            match self.parse_line() {
                ParsedLine::Event(event) => {
                    self.pending = Some(event);
                    return Ok(());
                }
                ParsedLine::Unused => {
                    self.health.unused += 1;
                    return Ok(());
                }
                ParsedLine::Frame | ParsedLine::Blank => {}
                ParsedLine::BadFrame(why) | ParsedLine::Bad(why) => self.tell_bad(why),
            }
        }
        Err(Error::not_a_trace(&found))
    }

    /// Notes that the current line could not be used.
    fn tell_bad(&mut self, why: &str) {
        let begin = String::from_utf8_lossy(&self.line[..self.line.len().min(60)]).into_owned();
        self.health.damage(FilePosition::Line(self.line_number), format!("{why}: {begin:?}"));
    }

    /// Reads one line, without the characters that end it. False at the end of the file.
    fn read_line(&mut self) -> Result<bool, Error> {
        self.line.clear();
        self.line_number += 1;
        let read = append_line(&mut self.reader, &mut self.line);
        let n = read.map_err(|answer| Error::Read { place: FilePosition::Line(self.line_number), answer })?;
        while let Some(b'\n' | b'\r') = self.line.last() {
            self.line.pop();
        }
        Ok(n > 0)
    }

    fn parse_line(&mut self) -> ParsedLine {
        match self.line.first() {
            None | Some(b'#') => return ParsedLine::Blank,
            Some(b'\t') => return self.parse_frame(),
            Some(_) => {}
        }
        let Some(head) = Head::parse(&self.line) else { return ParsedLine::Bad("no event of perf script") };
        let kind = match self.tracepoints.get(head.event) {
            Some(&tracepoint) => parse_fields(tracepoint, head.rest, &mut self.names),
            None if head.event == b"PERF_RECORD_LOST" => lost(head.rest),
            None => return ParsedLine::Unused,
        };
        let Some(kind) = kind else { return ParsedLine::Bad("a field is missing or has no meaning") };
        // For a thread whose name perf does not know it prints a colon and the thread's number.
        let is_nameless = head.comm.strip_prefix(b":").is_some_and(|rest| signed(rest).is_some());
        let comm = if is_nameless { Names::UNKNOWN } else { self.names.add_bytes(head.comm) };
        ParsedLine::Event(Event {
            time_ns: head.time_ns,
            cpu: head.cpu,
            pid: head.pid,
            tid: head.tid,
            comm,
            stack: None,
            kind,
        })
    }

    fn parse_frame(&mut self) -> ParsedLine {
        let mut words = self.line.split(|b| b.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let Some(address) = words.next().and_then(hexadecimal) else {
            return ParsedLine::BadFrame("no frame of a stack");
        };
        let code = match words.next() {
            None | Some(b"[unknown]") => Code::address(address),
            Some(symbol) => Code::symbol(symbol_name(symbol, &mut self.names)),
        };
        // The stack of an event that is not used or makes no sense is left out, and no stack grows beyond the limit.
        if self.pending.is_some() && self.frames.len() < MAX_FRAMES {
            self.frames.push(code);
        }
        ParsedLine::Frame
    }

    /// Hands out the pending event with the stack that was read for it. `next` is the pending event from now on.
    fn emit(&mut self, next: Option<Event>) -> Option<Event> {
        let mut event = std::mem::replace(&mut self.pending, next)?;
        event.stack = self.names.add_stack(&self.frames);
        self.frames.clear();
        self.health.saw(&event);
        Some(event)
    }
}

impl<R: BufRead> Source for ScriptReader<R> {
    fn next_event(&mut self) -> Result<Option<Event>, Error> {
        while self.read_line()? {
            let next = match self.parse_line() {
                ParsedLine::Event(event) => Some(event),
                ParsedLine::Unused => {
                    self.health.unused += 1;
                    None
                }
                // The frames that follow belong to this line and not to the event before it.
                ParsedLine::Bad(why) => {
                    self.tell_bad(why);
                    None
                }
                ParsedLine::BadFrame(why) => {
                    self.tell_bad(why);
                    continue;
                }
                ParsedLine::Frame | ParsedLine::Blank => continue,
            };
            if let Some(event) = self.emit(next) {
                return Ok(Some(event));
            }
        }
        Ok(self.emit(None))
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn health(&self) -> &Health {
        &self.health
    }
}

/// Appends a line with its end to `line`, but at most [`MAX_LINE_BYTES`]. Returns how many bytes were appended.
fn append_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let mut read = 0;
    while read < MAX_LINE_BYTES {
        let bytes = match reader.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        let bytes = &bytes[..bytes.len().min(MAX_LINE_BYTES - read)];
        let end = memchr::memchr(b'\n', bytes);
        let count = end.map_or(bytes.len(), |at| at + 1);
        line.extend_from_slice(&bytes[..count]);
        reader.consume(count);
        read += count;
        if end.is_some() || count == 0 {
            break;
        }
    }
    Ok(read)
}

enum ParsedLine {
    Event(Event),
    Unused,
    Frame,
    Blank,
    BadFrame(&'static str),
    Bad(&'static str),
}

/// What stands in a line before the fields of the tracepoint.
struct Head<'a> {
    comm: &'a [u8],
    pid: i32,
    tid: i32,
    cpu: u32,
    time_ns: u64,
    event: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Head<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        // A thread's name may hold spaces and brackets, so the CPU is the first "[digits]" behind a thread's number.
        memchr::memchr_iter(b'[', line).find_map(|at| Self::parse_at(line, at))
    }

    fn parse_at(line: &'a [u8], bracket: usize) -> Option<Self> {
        let before = line[..bracket].trim_ascii_end();
        // On a line of nothing but brackets the search must not go back to the begin for each of them.
        let from = before.len().saturating_sub(MAX_THREAD_BYTES);
        let space = from + before[from..].iter().rposition(|&b| b == b' ')?;
        let (pid, tid) = thread(&before[space + 1..])?;
        let rest = &line[bracket + 1..];
        let cpu_bytes = memchr::memchr(b']', &rest[..rest.len().min(MAX_CPU_BYTES)])?;
        let (cpu, rest) = (&rest[..cpu_bytes], &rest[cpu_bytes + 1..]);
        let (time, rest) = split_once(rest.trim_ascii_start(), b' ')?;
        let (mut event, mut rest) = word(rest);
        if number(event).is_some() {
            (event, rest) = word(rest);
        }
        Some(Self {
            comm: before[..space].trim_ascii(),
            pid,
            tid,
            cpu: number(cpu)?.try_into().ok()?,
            time_ns: time_ns(time.strip_suffix(b":")?)?,
            event: event.strip_suffix(b":").unwrap_or(event),
            rest,
        })
    }
}

fn split_once(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(at, bytes)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// The first word, and what follows it.
fn word(bytes: &[u8]) -> (&[u8], &[u8]) {
    let bytes = bytes.trim_ascii_start();
    bytes.split_at(memchr::memchr(b' ', bytes).unwrap_or(bytes.len()))
}

/// The numbers of process and thread in `pid/tid`, or in one number that is both.
fn thread(bytes: &[u8]) -> Option<(i32, i32)> {
    let one = |bytes| signed(bytes)?.try_into().ok();
    match split_once(bytes, b'/') {
        Some((pid, tid)) => Some((one(pid)?, one(tid)?)),
        None => one(bytes).map(|tid| (tid, tid)),
    }
}

/// Nanoseconds of a time in seconds with 1 to 9 digits behind the point. None if it has another form or is too large.
fn time_ns(bytes: &[u8]) -> Option<u64> {
    let (seconds, fraction) = split_once(bytes, b'.')?;
    let scale = 10u64.pow(9u32.checked_sub(fraction.len().try_into().ok()?)?);
    number(seconds)?.checked_mul(1_000_000_000)?.checked_add(number(fraction)? * scale)
}

/// The largest number of decimal digits that always fits into 64 bits.
const SAFE_DIGITS: usize = 19;

fn number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    let digit = |b: u8| Some(u64::from(b.wrapping_sub(b'0'))).filter(|&digit| digit < 10);
    if bytes.len() <= SAFE_DIGITS {
        return bytes.iter().try_fold(0, |sum, &b| Some(sum * 10 + digit(b)?));
    }
    bytes.iter().try_fold(0u64, |sum, &b| sum.checked_mul(10)?.checked_add(digit(b)?))
}

fn signed(bytes: &[u8]) -> Option<i64> {
    match bytes.strip_prefix(b"-") {
        Some(rest) => number(rest)?.try_into().ok().map(i64::wrapping_neg),
        None => number(bytes)?.try_into().ok(),
    }
}

fn hexadecimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 16 {
        return None;
    }
    bytes.iter().try_fold(0u64, |sum, &b| Some(sum << 4 | u64::from((b as char).to_digit(16)?)))
}

fn lost(rest: &[u8]) -> Option<EventKind> {
    let (_, rest) = word(rest);
    number(word(rest).0).map(|count| EventKind::Lost { count })
}

fn parse_fields(tracepoint: Tracepoint, text: &[u8], names: &mut Names) -> Option<EventKind> {
    let specs = tracepoint.spec().fields;
    let mut fields: Fields = [0; MAX_FIELDS];
    let mut rest = text;
    for (i, &(key, kind)) in specs.iter().enumerate() {
        // The result of a system call is printed without a key.
        rest = if key == "ret" { rest.trim_ascii_start() } else { after_key(rest, key)? };
        let end = match (kind, specs.get(i + 1)) {
            (FieldKind::Text, Some(next)) => key_position(rest, next.0)?,
            _ if key == "reason" => rest.len(),
            _ => word(rest).0.len(),
        };
        fields[i] = value(kind, key, &rest[..end], names)?;
        rest = &rest[end..];
    }
    tracepoint.kind(&fields)
}

/// Where in `text` a word begins that is `key` followed by `=` or `:`.
fn key_position(text: &[u8], key: &str) -> Option<usize> {
    // Nearly always it is the next word, which is looked at before a search is set up.
    let is_here =
        |&at: &usize| text[at..].starts_with(key.as_bytes()) && matches!(text.get(at + key.len()), Some(b'=' | b':'));
    [0].into_iter().chain(memchr::memchr_iter(b' ', text).map(|space| space + 1)).find(is_here)
}

fn after_key<'a>(text: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let at = key_position(text, key)?;
    Some(text[at + key.len() + 1..].trim_ascii_start())
}

fn value(kind: FieldKind, key: &str, text: &[u8], names: &mut Names) -> Option<u64> {
    let text = text.trim_ascii().strip_suffix(b",").unwrap_or(text.trim_ascii());
    match kind {
        FieldKind::Text => Some(names.add_bytes(text).0.into()),
        FieldKind::Code => Some(code(text, names).0),
        FieldKind::CpuMask => cpus(text),
        FieldKind::Runnable => Some(u64::from(text.starts_with(b"R"))),
        FieldKind::Number if key == "reason" => {
            let (_, number_and_bracket) = text.split_at(memchr::memrchr(b'(', text)? + 1);
            number(number_and_bracket.strip_suffix(b")")?)
        }
        FieldKind::Number => plain_number(text),
    }
}

fn plain_number(text: &[u8]) -> Option<u64> {
    match text {
        b"true" => Some(1),
        b"false" | b"(nil)" => Some(0),
        [b'0', b'x', digits @ ..] => hexadecimal(digits),
        _ => signed(text).map(|n| n as u64),
    }
}

fn code(text: &[u8], names: &mut Names) -> Code {
    match text.strip_prefix(b"0x").and_then(hexadecimal) {
        Some(address) => Code::address(address),
        None => Code::symbol(symbol_name(text, names)),
    }
}

/// The function in `function+0x11d`, without the offset: events are counted by function.
fn symbol_name(text: &[u8], names: &mut Names) -> Name {
    names.add_bytes(text.split(|&b| b == b'+').next().unwrap_or(text))
}

/// How many CPUs a list such as `0-3,8` names.
fn cpus(text: &[u8]) -> Option<u64> {
    text.split(|&b| b == b',').try_fold(0u64, |sum, part| {
        let (first, last) = match split_once(part, b'-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

//! The layout of samples: what a recorded event stores with each sample, and where.

use super::bytes::{Bytes, Endianness, Width};
use linux_perf_event_reader::{AttrFlags, SampleFormat};

/// Size in bytes of the first version of `perf_event_attr`, which has all fields that are used here.
const MIN_ATTR_BYTES: u64 = 64;
/// The type and the number of the event that samples the CPU's time: the kernel's software event `cpu-clock`.
const CLOCK: (u64, u64) = (1, 0);

/// The attributes of one recorded event, as far as they say how its records are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Attr {
    format: SampleFormat,
    is_stamped: bool,
    /// Whether it samples the CPU's time. Any other event is a tracepoint, or is not used.
    pub(super) is_clock: bool,
    place: Place,
    missing: Option<&'static str>,
}

/// Offsets in bytes, from the begin of a sample, of the fields that are used. An offset means nothing if the sample
/// lacks the field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    ip: usize,
    thread: usize,
    time: usize,
    cpu: usize,
    /// Where the fields of fixed size end.
    end: usize,
}

impl Place {
    fn of(format: SampleFormat) -> Self {
        // The fields stand in this order, and each takes eight bytes.
        let before = |bits: &[SampleFormat]| 8 * bits.iter().filter(|&&bit| format.contains(bit)).count();
        let ip = before(&[SampleFormat::IDENTIFIER]);
        let to_thread = before(&[SampleFormat::IDENTIFIER, SampleFormat::IP]);
        let to_time = to_thread + before(&[SampleFormat::TID]);
        let between = [SampleFormat::TIME, SampleFormat::ADDR, SampleFormat::ID, SampleFormat::STREAM_ID];
        let to_cpu = to_time + before(&between);
        let end = to_cpu + before(&[SampleFormat::CPU, SampleFormat::PERIOD]);
        Self { ip, thread: to_thread, time: to_time, cpu: to_cpu, end }
    }
}

/// The fields of a sample that are used.
pub(super) struct Sample<'a> {
    pub(super) time_ns: u64,
    pub(super) cpu: u32,
    pub(super) pid: i32,
    pub(super) tid: i32,
    /// The address of the instruction; 0 if the sample has none.
    pub(super) ip: u64,
    /// The addresses of the call stack, innermost first, in the byte order of the file.
    pub(super) stack: Bytes<'a>,
    /// The record that the tracepoint itself wrote; empty of a clock.
    pub(super) raw: &'a [u8],
}

/// The time, the CPU and the thread that stand at the end of every record that is no sample.
#[derive(Clone, Copy, Default)]
pub(super) struct Stamp {
    pub(super) time_ns: u64,
    pub(super) cpu: u32,
    pub(super) pid: i32,
    pub(super) tid: i32,
}

impl Attr {
    /// Reads the kernel's `perf_event_attr` from the begin of `bytes`, and also returns its size in bytes. None if it
    /// is too short.
    pub(super) fn parse(bytes: &[u8], order: Endianness) -> Option<(Self, u64)> {
        let b = Bytes::new(bytes, order);
        let size = b.number_at(4, Width::U32).filter(|&size| size >= MIN_ATTR_BYTES)?;
        let format = SampleFormat::from_bits_truncate(b.number_at(24, Width::U64)?);
        let flags = b.number_at(40, Width::U64)?;
        // The flags are single bits of a C structure, which a big-endian machine fills from the other end.
        let flags = if matches!(order, Endianness::BigEndian) { flags.reverse_bits() } else { flags };
        let is_stamped = flags & AttrFlags::SAMPLE_ID_ALL.bits() != 0;
        let is_clock = (b.number_at(0, Width::U32)?, b.number_at(8, Width::U64)?) == CLOCK;
        let missing = missing(if is_clock { format | SampleFormat::RAW } else { format });
        Some((Self { format, is_stamped, is_clock, place: Place::of(format), missing }, size))
    }

    /// Whether every record says at a fixed place to which event it belongs.
    pub(super) fn has_identifier(&self) -> bool {
        self.format.contains(SampleFormat::IDENTIFIER)
    }

    /// What samples lack that an [`Event`](crate::Event) needs, in words for the user. None if they lack nothing.
    pub(super) fn missing(&self) -> Option<&'static str> {
        self.missing
    }

    /// Reads a sample. None if it is too short. Nothing that is used may be [missing](Attr::missing).
    pub(super) fn sample<'a>(&self, mut b: Bytes<'a>) -> Option<Sample<'a>> {
        let fixed = b.part(self.place.end as u64)?;
        let number = |at: usize| fixed.number_at(at, Width::U32).map(|number| number as u32);
        let (pid, tid) = (number(self.place.thread)?, number(self.place.thread + 4)?);
        let time_ns = fixed.number_at(self.place.time, Width::U64)?;
        let cpu = number(self.place.cpu)?;
        let has_ip = self.format.contains(SampleFormat::IP);
        let ip = if has_ip { fixed.number_at(self.place.ip, Width::U64)? } else { 0 };
        let none = Bytes::new(&[], Endianness::LittleEndian);
        let stack = if self.format.contains(SampleFormat::CALLCHAIN) {
            let frames = b.u64()?;
            b.part(frames.checked_mul(8)?)?
        } else {
            none
        };
        let has_raw = self.format.contains(SampleFormat::RAW);
        let size = if has_raw { b.u32()? } else { 0 };
        let raw = b.take(size.into())?;
        Some(Sample { time_ns, cpu, pid: pid.cast_signed(), tid: tid.cast_signed(), ip, stack, raw })
    }

    /// The stamp at the end of a record that is no sample. All its fields are 0 if the recording has no stamps.
    pub(super) fn stamp(&self, body: &[u8], order: Endianness) -> Stamp {
        self.try_stamp(body, order).unwrap_or_default()
    }

    fn try_stamp(&self, body: &[u8], order: Endianness) -> Option<Stamp> {
        let has = |bit| self.format.contains(bit);
        let all = SampleFormat::TID
            | SampleFormat::TIME
            | SampleFormat::ID
            | SampleFormat::STREAM_ID
            | SampleFormat::CPU
            | SampleFormat::IDENTIFIER;
        let size = 8 * (self.format & all).bits().count_ones() as usize;
        if !self.is_stamped {
            return None;
        }
        let mut b = Bytes::new(&body[body.len().checked_sub(size)?..], order);
        let (pid, tid) = if has(SampleFormat::TID) { (b.i32()?, b.i32()?) } else { (-1, -1) };
        let time_ns = if has(SampleFormat::TIME) { b.u64()? } else { 0 };
        for bit in [SampleFormat::ID, SampleFormat::STREAM_ID] {
            if has(bit) {
                b.take(8)?;
            }
        }
        let cpu = if has(SampleFormat::CPU) { b.u64_low()? } else { 0 };
        Some(Stamp { time_ns, cpu, pid, tid })
    }
}

fn missing(format: SampleFormat) -> Option<&'static str> {
    if format.contains(SampleFormat::READ) {
        return Some("samples hold counter values (recorded with :S), which are not understood");
    }
    [
        (SampleFormat::TIME, "samples have no time (record tracepoints, or with -T)"),
        (SampleFormat::TID, "samples have no thread"),
        (SampleFormat::CPU, "samples have no CPU (record with -a or --sample-cpu)"),
        (SampleFormat::RAW, "samples have no tracepoint fields (record tracepoints, or with -R)"),
    ]
    .into_iter()
    .find_map(|(bit, what)| (!format.contains(bit)).then_some(what))
}

impl Bytes<'_> {
    /// Takes a 32-bit number and the 32 unused bits after it.
    fn u64_low(&mut self) -> Option<u32> {
        let number = self.u32()?;
        self.take(4)?;
        Some(number)
    }
}

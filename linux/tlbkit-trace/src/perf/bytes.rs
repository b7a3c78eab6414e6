//! Reads numbers of either byte order out of bytes, and never reads beyond their end.

pub(super) use linux_perf_event_reader::Endianness;

/// The bytes of a record or section that were not taken yet. Every method returns none if there are too few bytes.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
    order: Endianness,
}

impl<'a> Bytes<'a> {
    /// All of `rest`, whose numbers have the byte order `order`.
    pub(super) fn new(rest: &'a [u8], order: Endianness) -> Self {
        Self { rest, order }
    }

    /// The bytes that were not taken yet.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Takes the next `n` bytes.
    pub(super) fn take(&mut self, n: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(n).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    /// Takes the next `n` bytes, to be read in the same byte order.
    pub(super) fn part(&mut self, n: u64) -> Option<Self> {
        let order = self.order;
        self.take(n).map(|rest| Self { rest, order })
    }

    /// Takes the bytes up to the next zero, and drops the zero.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let end = memchr::memchr(0, self.rest)?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Some(text)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(match self.order {
            Endianness::LittleEndian => u32::from_le_bytes(*bytes),
            Endianness::BigEndian => u32::from_be_bytes(*bytes),
        })
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.u32().map(u32::cast_signed)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(match self.order {
            Endianness::LittleEndian => u64::from_le_bytes(*bytes),
            Endianness::BigEndian => u64::from_be_bytes(*bytes),
        })
    }

    /// The number of this width that begins at `offset`, in bytes from the first byte that was not taken. Takes
    /// nothing.
    pub(super) fn number_at(self, offset: usize, width: Width) -> Option<u64> {
        let bytes = self.rest.get(offset..)?;
        let little = matches!(self.order, Endianness::LittleEndian);
        macro_rules! read {
            ($type:ty) => {{
                let bytes = *bytes.first_chunk()?;
                if little { <$type>::from_le_bytes(bytes) } else { <$type>::from_be_bytes(bytes) }
            }};
        }
        Some(match width {
            Width::U8 => bytes.first().copied()?.into(),
            Width::U16 => read!(u16).into(),
            Width::U32 => read!(u32).into(),
            Width::I32 => i64::from(read!(i32)) as u64,
            Width::U64 => read!(u64),
        })
    }
}

/// How a number is stored: its size in bits, and whether it has a sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    U8,
    U16,
    U32,
    I32,
    U64,
}

//! The compact form, in which traces are kept. A file has a twentieth of the size of `perf.data`, or less.
//!
//! # Layout, version 1
//!
//! All fixed-size numbers are little-endian. A file is a head, blocks, and an end mark:
//!
//! ```text
//! head    8 bytes "tlbtrace", u16 version, 6 bytes 0
//! block   4 bytes "BLOK"; u32 events (1 to 131,072), u32 packed bytes, u32 unpacked bytes (up to 2^26),
//!         u32 CRC-32 of the packed bytes, u32 CRC-32 of the 20 bytes before it; then the packed bytes
//! end     as a block, with 0 events; its content, not packed, is four u64: events in the file, and how many
//!         were unused, out of order and damaged when it was written (see `Health`)
//! ```
//!
//! A block can be read without the others. So a damaged block costs only its own events, and the next one is found by
//! its first four bytes. The packed bytes of a block are one zstd frame that holds columns. A column is its length and
//! then as many bytes. A *number* is LEB128: seven bits a byte, low ones first, the top bit set on all but the last. A
//! *difference* is the wrapping difference to the previous value of its column (0 at first) as a number, after the sign
//! was moved to bit 0. In order, the columns are:
//!
//! ```text
//! texts     their count; for each its length and its bytes (UTF-8)
//! threads   for each, as long as the column lasts: pid, tid (differences to 0), and the text of its name
//! stacks    for each, as long as the column lasts: its length, and as many places in code
//! tags      a byte for each event: the tracepoint's number; 255 for lost events
//! times     for each event: difference, nanoseconds
//! cpus      for each event: difference
//! thread    for each event: difference of positions in `threads`
//! stack     for each event: difference of positions in `stacks` + 1; 0 for none
//! lost      for each event with tag 255: difference of the count
//! fields    first, as no column, how many columns follow: five for each tracepoint by number, one a field; in each,
//!           for each event of that tracepoint a difference
//! ```
//!
//! A text is named by its position in `texts`. A place in code is an address, or 0x7c0de00000000000 + the position
//! of the function's name. Tracepoints' numbers and the meaning of their fields are the order of the list in
//! `tracepoint.rs`, where new ones are only ever added at the end.

mod column;
mod read;
mod write;

pub use read::CompactReader;
pub use write::CompactWriter;

/// The version of the form that is written, and the only one that is read.
pub const VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"tlbtrace";
const HEAD_BYTES: usize = 16;
const BLOCK_MAGIC: &[u8; 4] = b"BLOK";
const BLOCK_HEAD_BYTES: usize = 24;
const END_BYTES: usize = 32;
/// How many events a writer puts into one block.
const BLOCK_EVENTS: u32 = 1 << 15;
const MAX_BLOCK_EVENTS: u32 = 1 << 17;
const MAX_UNPACKED_BYTES: u32 = 1 << 26;
/// The most texts that a block may have. A writer ends a block when its texts and stacks have a quarter of the largest
/// size, and each text has at least two bytes.
const MAX_TEXTS: u64 = MAX_UNPACKED_BYTES as u64 / 8 + 1;

/// The head of a block in the compact form: sizes and checksums.
///
/// What the head of a block says about its content: how many events, how many bytes packed and unpacked, and the CRC-32
/// of the packed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BlockHead {
    events: u32,
    packed_bytes: u32,
    unpacked_bytes: u32,
    crc: u32,
}

impl BlockHead {
    /// The head of a block whose packed bytes are `content`.
    fn new(events: u32, unpacked_bytes: usize, content: &[u8]) -> Self {
        let crc = crc32fast::hash(content);
        Self { events, packed_bytes: content.len() as u32, unpacked_bytes: unpacked_bytes as u32, crc }
    }

    /// The head as it stands in the file.
    fn to_bytes(self) -> [u8; BLOCK_HEAD_BYTES] {
        let mut bytes = [0; BLOCK_HEAD_BYTES];
        bytes[..4].copy_from_slice(BLOCK_MAGIC);
        let numbers = [self.events, self.packed_bytes, self.unpacked_bytes, self.crc];
        for (place, number) in bytes[4..20].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[..20]);
        bytes[20..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a head. None if the bytes are no head of a block, if their checksum is wrong, or if a size is beyond its
    /// limit.
    fn parse(bytes: &[u8; BLOCK_HEAD_BYTES]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let head = Self { events: number(4), packed_bytes: number(8), unpacked_bytes: number(12), crc: number(16) };
        let is_good = bytes[..4] == *BLOCK_MAGIC && number(20) == crc32fast::hash(&bytes[..20]);
        (is_good && head.is_within_limits()).then_some(head)
    }

    /// Whether this is the end mark of the file.
    fn is_end(self) -> bool {
        self.events == 0
    }

    fn is_within_limits(self) -> bool {
        if self.is_end() {
            return self.packed_bytes as usize == END_BYTES;
        }
        let limit = zstd::zstd_safe::compress_bound(MAX_UNPACKED_BYTES as usize);
        self.events <= MAX_BLOCK_EVENTS
            && self.unpacked_bytes <= MAX_UNPACKED_BYTES
            && self.packed_bytes as usize <= limit
    }
}

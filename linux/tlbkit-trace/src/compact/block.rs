//! The head of a block in the compact form: sizes and checksums.

use super::{BLOCK_HEAD_BYTES, BLOCK_MAGIC, END_BYTES, MAX_BLOCK_EVENTS, MAX_UNPACKED_BYTES};

/// What the head of a block says about its content: how many events, how many bytes packed and unpacked, and the CRC-32
/// of the packed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockHead {
    pub(super) events: u32,
    pub(super) packed_bytes: u32,
    pub(super) unpacked_bytes: u32,
    pub(super) crc: u32,
}

impl BlockHead {
    /// The head of a block whose packed bytes are `content`.
    pub(super) fn new(events: u32, unpacked_bytes: usize, content: &[u8]) -> Self {
        let crc = crc32fast::hash(content);
        Self { events, packed_bytes: content.len() as u32, unpacked_bytes: unpacked_bytes as u32, crc }
    }

    /// The head as it stands in the file.
    pub(super) fn to_bytes(self) -> [u8; BLOCK_HEAD_BYTES] {
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
    pub(super) fn parse(bytes: &[u8; BLOCK_HEAD_BYTES]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let head = Self { events: number(4), packed_bytes: number(8), unpacked_bytes: number(12), crc: number(16) };
        let is_good = bytes[..4] == *BLOCK_MAGIC && number(20) == crc32fast::hash(&bytes[..20]);
        (is_good && head.is_within_limits()).then_some(head)
    }

    /// Whether this is the end mark of the file.
    pub(super) fn is_end(self) -> bool {
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

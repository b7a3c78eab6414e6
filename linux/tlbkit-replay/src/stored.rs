//! The operations of a trace, packed to some eight bytes each: a trace may have any number of them, and every replay
//! goes through all. The first few megabytes stay in memory, the rest goes into an unnamed temporary file.

mod packing;

use crate::op::{Op, OpKind};
use packing::{Dictionary, Packer, Unpacker};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Operations of a block: each block is unpacked for itself.
const BLOCK_OPS: u32 = 4096;
/// Operations that are handed out at once: as many as a CPU's second cache holds.
const OPS_AT_ONCE: u32 = 512;
/// Packed bytes that are kept in memory.
const MEMORY_BYTES: usize = 4 << 20;

/// Where a block lies behind the one before.
#[derive(Clone, Copy)]
struct Block {
    bytes: u32,
    ops: u32,
}

/// Operations in the order of the trace.
#[derive(Default)]
pub struct Ops {
    /// The first blocks.
    memory: Vec<u8>,
    /// The blocks behind them, if there are any.
    file: Option<File>,
    blocks: Vec<Block>,
    dictionary: Dictionary,
    /// Numbers of revocations that were found to trim after they had been packed, in order.
    trimmed: Vec<u64>,
}

impl Ops {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.ops)).sum()
    }

    /// Hands out every operation in order.
    ///
    /// # Errors
    /// If the temporary file cannot be read.
    pub fn each(&self, take: impl FnMut(&Op)) -> io::Result<()> {
        let mut take = take;
        self.each_block(|ops| ops.iter().for_each(&mut take))
    }

    /// The same, so many at once that several can go through them before the next are unpacked.
    ///
    /// # Errors
    /// If the temporary file cannot be read.
    pub(crate) fn each_block(&self, mut take: impl FnMut(&[Op])) -> io::Result<()> {
        let (mut bytes, mut at, mut number) = (Vec::new(), 0u64, 0u64);
        let mut trimmed = self.trimmed.iter().copied().peekable();
        let mut ops = Vec::with_capacity(OPS_AT_ONCE as usize);
        for block in &self.blocks {
            let mut unpacker = Unpacker::new(self.block(*block, at, &mut bytes)?, &self.dictionary);
            at += u64::from(block.bytes);
            let mut left = block.ops;
            while left > 0 {
                let count = left.min(OPS_AT_ONCE);
                ops.clear();
                ops.extend((0..count).map(|_| unpacker.op()));
                while let Some(trims) = trimmed.next_if(|&trims| trims < number + u64::from(count)) {
                    if let OpKind::Revoke { taken, .. } = &mut ops[(trims - number) as usize].kind {
                        taken.trims = true;
                    }
                }
                number += u64::from(count);
                left -= count;
                take(&ops);
            }
        }
        Ok(())
    }

    /// The bytes of a block that lies at `at`.
    fn block<'b>(&'b self, block: Block, at: u64, buffer: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
        let in_memory = self.memory.len() as u64;
        match &self.file {
            Some(file) if at >= in_memory => {
                buffer.resize(block.bytes as usize, 0);
                file.read_exact_at(buffer, at - in_memory)?;
                Ok(buffer)
            }
            _ => Ok(&self.memory[at as usize..][..block.bytes as usize]),
        }
    }
}

impl fmt::Debug for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ops").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// Takes operations one after the other.
#[derive(Default)]
pub(crate) struct Storing {
    ops: Ops,
    packer: Packer,
    /// Operations in blocks that are complete.
    before: u64,
    /// Bytes that went into the file.
    file_bytes: u64,
    /// Why the file could not be written, if so: what came behind is lost.
    failure: Option<io::Error>,
}

impl Storing {
    /// The number of the next operation.
    pub(crate) fn next(&self) -> u64 {
        self.before + u64::from(self.packer.ops)
    }

    pub(crate) fn push(&mut self, op: &Op) {
        self.packer.pack(op, &mut self.ops.dictionary);
        if self.packer.ops == BLOCK_OPS {
            self.end_block();
        }
    }

    /// The operation of this number is a revocation that trims.
    pub(crate) fn trims(&mut self, number: u64) {
        self.ops.trimmed.push(number);
    }

    /// All of them.
    pub(crate) fn finish(mut self) -> io::Result<Ops> {
        self.end_block();
        self.ops.trimmed.sort_unstable();
        self.ops.trimmed.dedup();
        let name = |error: io::Error| {
            let folder = std::env::temp_dir();
            io::Error::new(error.kind(), format!("a temporary file in {}: {error}", folder.display()))
        };
        self.failure.map_or(Ok(self.ops), |error| Err(name(error)))
    }

    fn end_block(&mut self) {
        let Packer { bytes, ops, .. } = std::mem::take(&mut self.packer);
        if self.failure.is_some() || ops == 0 {
            return;
        }
        self.before += u64::from(ops);
        self.ops.blocks.push(Block { bytes: bytes.len() as u32, ops });
        if self.ops.file.is_none() && self.ops.memory.len() + bytes.len() <= MEMORY_BYTES {
            return self.ops.memory.extend(bytes);
        }
        self.failure = self.write(&bytes).err();
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.ops.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.write_all_at(bytes, self.file_bytes)?;
        self.file_bytes += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;

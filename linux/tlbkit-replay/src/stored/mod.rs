//! Stores the operations of a trace, packed to about eight bytes each. A trace may have any number of them, and every
//! replay goes through all. The first few megabytes stay in memory, and the rest goes into an unnamed temporary file.

mod blocks;
mod bytes;
mod events;
mod packing;

use crate::op::{Op, OpKind};
use blocks::{Blocks, Filling};
pub(crate) use events::{KeepingEvents, KeptEvents};
use packing::{Dictionary, Packer, Unpacker};
use std::fmt;
use std::io;

/// How many operations a block has. Each block can be unpacked without the others.
const BLOCK_OPS: u32 = 4096;
/// How many operations are handed out at once, as many as fit into the second-level cache of a CPU.
const OPS_AT_ONCE: u32 = 512;

/// The operations of a trace, in its order.
#[derive(Default)]
pub struct Ops {
    blocks: Blocks,
    dictionary: Dictionary,
    /// The numbers, in order, of the revocations that were found to trim the CPU set only after they had been packed.
    trimmed: Vec<u64>,
}

impl Ops {
    /// How many operations there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.blocks.items()
    }

    /// Hands every operation to `take`, in order.
    ///
    /// # Errors
    /// If the temporary file cannot be read.
    pub fn for_each(&self, take: impl FnMut(&Op)) -> io::Result<()> {
        let mut take = take;
        self.each_block(|ops| ops.iter().for_each(&mut take))
    }

    /// Hands the operations to `take` in order, many at once, so that several replays can go through them before the
    /// next ones are unpacked.
    ///
    /// # Errors
    /// If the temporary file cannot be read.
    pub(crate) fn each_block(&self, mut take: impl FnMut(&[Op])) -> io::Result<()> {
        let mut number = 0;
        let mut trimmed = self.trimmed.iter().copied().peekable();
        let mut ops = Vec::with_capacity(OPS_AT_ONCE as usize);
        self.blocks.for_each(|bytes, mut left| {
            let mut unpacker = Unpacker::new(bytes, &self.dictionary);
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
        })
    }
}

impl fmt::Debug for Ops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ops").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// Packs operations one after the other.
#[derive(Default)]
pub(crate) struct Storing {
    ops: Ops,
    filling: Filling,
    packer: Packer,
    /// How many operations the complete blocks have.
    before: u64,
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

    /// Notes that the operation with this number, a revocation, trims the CPU set.
    pub(crate) fn trims(&mut self, number: u64) {
        self.ops.trimmed.push(number);
    }

    /// All operations that were pushed.
    ///
    /// # Errors
    /// If the temporary file could not be written.
    pub(crate) fn finish(mut self) -> io::Result<Ops> {
        self.end_block();
        self.ops.trimmed.sort_unstable();
        self.ops.trimmed.dedup();
        Ok(Ops { blocks: self.filling.finish()?, ..self.ops })
    }

    fn end_block(&mut self) {
        let Packer { put, ops, .. } = std::mem::take(&mut self.packer);
        self.before += u64::from(ops);
        self.filling.push(&put.0, ops);
    }
}

#[cfg(test)]
mod tests;

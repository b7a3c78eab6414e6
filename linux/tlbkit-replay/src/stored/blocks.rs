//! Stores blocks of packed bytes. The first few megabytes stay in memory, and the rest goes into an unnamed temporary
//! file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How many packed bytes are kept in memory at most.
pub(super) const MEMORY_BYTES: usize = 4 << 20;

/// The length in bytes of a block, which lies behind the one before, and its number of items.
#[derive(Clone, Copy)]
struct Block {
    bytes: u32,
    items: u32,
}

/// Blocks that have been stored, which can be read any number of times.
#[derive(Default)]
pub(super) struct Blocks {
    /// The bytes of the first blocks.
    pub(super) memory: Vec<u8>,
    /// The file with the other blocks, if there are any.
    pub(super) file: Option<File>,
    blocks: Vec<Block>,
}

impl Blocks {
    /// How many items all blocks have together.
    pub(super) fn items(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.items)).sum()
    }

    /// Hands the bytes of each block to `take`, in order, with its number of items.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn for_each(&self, mut take: impl FnMut(&[u8], u32)) -> io::Result<()> {
        let (mut buffer, mut at) = (Vec::new(), 0u64);
        for block in &self.blocks {
            take(self.block(*block, at, &mut buffer)?, block.items);
            at += u64::from(block.bytes);
        }
        Ok(())
    }

    /// The bytes of the block that lies at `at`, counted in bytes from the first block on. `buffer` is used for one
    /// that is in the file.
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

/// Blocks that are being stored.
#[derive(Default)]
pub(super) struct Filling {
    blocks: Blocks,
    /// How many bytes were written to the file.
    file_bytes: u64,
    /// The error with which the file could not be written, if there was one. What came later was not stored.
    failure: Option<io::Error>,
}

impl Filling {
    pub(super) fn push(&mut self, bytes: &[u8], items: u32) {
        if self.failure.is_some() || items == 0 {
            return;
        }
        self.blocks.blocks.push(Block { bytes: bytes.len() as u32, items });
        if self.blocks.file.is_none() && self.blocks.memory.len() + bytes.len() <= MEMORY_BYTES {
            return self.blocks.memory.extend(bytes);
        }
        self.failure = self.write(bytes).err();
    }

    /// All blocks that were pushed.
    ///
    /// # Errors
    /// If the file could not be written.
    pub(super) fn finish(self) -> io::Result<Blocks> {
        let name = |error: io::Error| {
            let folder = std::env::temp_dir();
            io::Error::new(error.kind(), format!("a temporary file in {}: {error}", folder.display()))
        };
        self.failure.map_or(Ok(self.blocks), |error| Err(name(error)))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.blocks.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.write_all_at(bytes, self.file_bytes)?;
        self.file_bytes += bytes.len() as u64;
        Ok(())
    }
}

//! Blocks of packed bytes. The first few megabytes stay in memory, the rest goes into an unnamed temporary file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Packed bytes that are kept in memory.
pub(super) const MEMORY_BYTES: usize = 4 << 20;

/// Where a block lies behind the one before.
#[derive(Clone, Copy)]
struct Block {
    bytes: u32,
    items: u32,
}

/// Blocks, to be read as often as wanted.
#[derive(Default)]
pub(super) struct Blocks {
    /// The first blocks.
    pub(super) memory: Vec<u8>,
    /// The blocks behind them, if there are any.
    pub(super) file: Option<File>,
    blocks: Vec<Block>,
}

impl Blocks {
    /// How many items all blocks have.
    pub(super) fn items(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.items)).sum()
    }

    /// Hands out the bytes of each block, and how many items it has.
    pub(super) fn each(&self, mut take: impl FnMut(&[u8], u32)) -> io::Result<()> {
        let (mut buffer, mut at) = (Vec::new(), 0u64);
        for block in &self.blocks {
            take(self.block(*block, at, &mut buffer)?, block.items);
            at += u64::from(block.bytes);
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

/// Blocks that are being put aside.
#[derive(Default)]
pub(super) struct Filling {
    blocks: Blocks,
    /// Bytes that went into the file.
    file_bytes: u64,
    /// Why the file could not be written, if so: what came behind is lost.
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

    /// All of them.
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
